"""Forms of the hosted pages. `autocomplete` lets browsers and password managers fill them in (WCAG 2.2, 1.3.5)."""

from typing import Any
from urllib.parse import parse_qs

from django import forms
from django.core.validators import ProhibitNullCharactersValidator, RegexValidator
from django.utils.translation import gettext_lazy as _

from identity_platform.api.errors import MalformedBody
from identity_platform.api.fields import NOT_IN_A_LINE
from identity_platform.api.form_fields import AddressField, SixDigitsField
from identity_platform.api.parsers import json_object
from mfa.sms.codes import typed_number
from mfa.totp.backup_codes import normalised
from openid.device.codes import normalized as normalized_user_code
from userflow.branding.texts import named_languages

LONGEST_PASSWORD = 1024
# Half a character, which has no encoding.
_NO_SURROGATES = RegexValidator("[\ud800-\udfff]", _("Enter one line without control characters."), inverse_match=True)


def attributes(autocomplete: str, **more: str | bool) -> dict[str, str | bool]:
    """Return the attributes of an input that is no prose."""
    return {"autocomplete": autocomplete, "autocapitalize": "none", "spellcheck": "false", **more}


class PageForm(forms.Form):
    """A form that puts the focus on its first field, or on the first one with an error."""

    def focus(self) -> "PageForm":
        """Mark the field that has the focus when the page opens."""
        visible = [field for field in self.visible_fields() if not field.field.disabled]
        first = next((field for field in visible if field.errors), visible[0] if visible else None)
        if first is not None:
            first.field.widget.attrs["autofocus"] = True
        return self


class Line(forms.CharField):
    """One line of text, as the API accepts it."""

    def validate(self, value: str) -> None:
        super().validate(value)
        if NOT_IN_A_LINE.search(value):
            raise forms.ValidationError(_("Enter one line without control characters."))


class EmailField(AddressField):
    """An address, as the API stores it."""

    default_error_messages = {"invalid": _("Enter an e-mail address such as name@example.com.")}

    def __init__(self, *, autocomplete: str = "username") -> None:
        super().__init__(
            label=_("E-mail address"), widget=forms.EmailInput(attributes(autocomplete, inputmode="email"))
        )


class PasswordField(forms.CharField):
    """A password, exactly as typed."""

    def __init__(self, *, label: Any, autocomplete: str, required: bool = True, help_text: Any = "") -> None:
        widget = forms.PasswordInput({"autocomplete": autocomplete, "data-password": True})
        super().__init__(
            label=label,
            strip=False,
            max_length=LONGEST_PASSWORD,
            required=required,
            help_text=help_text,
            widget=widget,
        )
        # Control characters are for the rules of passwords to judge, but PostgreSQL takes no NUL.
        self.validators = [*self.validators, ProhibitNullCharactersValidator(), _NO_SURROGATES]


class SignInForm(PageForm):
    """Who signs in, and the password. Browsers offer passkeys in the first field."""

    email = EmailField(autocomplete="username webauthn")
    password = PasswordField(label=_("Password"), autocomplete="current-password")

    def focus(self) -> "PageForm":
        """Mark the field for the password if there is an address."""
        has_address = self["email"].value() and "email" not in self.errors
        self.fields["password" if has_address else "email"].widget.attrs["autofocus"] = True
        return self


class AddressForm(PageForm):
    """An address that a mail is sent to."""

    email = EmailField()


class PasswordForm(PageForm):
    """The password of the address that was entered before."""

    password = PasswordField(label=_("Password"), autocomplete="current-password")


class Digits(SixDigitsField):
    default_error_messages = {"invalid": _("Enter the six digits.")}

    def __init__(self, *, label: Any) -> None:
        super().__init__(label=label, widget=forms.TextInput(attributes("one-time-code", inputmode="numeric")))


class TotpForm(PageForm):
    """A code of an authenticator app."""

    code = Digits(label=_("Code from your authenticator app"))


class NewTotpForm(PageForm):
    """The first code of a new secret, which is a hidden field."""

    secret = forms.CharField(max_length=128, widget=forms.HiddenInput)
    code = Digits(label=_("Six digits that the app shows"))


class SmsForm(PageForm):
    """A code from a text message."""

    sms_code = Digits(label=_("Code from the text message"))


class BackupCodeForm(PageForm):
    """One of the ten codes that were shown when the app was set up."""

    backup_code = forms.CharField(
        label=_("Backup code"),
        help_text=_("Each code works once."),
        max_length=64,
        widget=forms.TextInput(attributes("off")),
    )

    def clean_backup_code(self) -> str:
        """Return the code in its stored form, without dashes and differences of case."""
        code = normalised(str(self.cleaned_data["backup_code"]))
        if code is None:
            raise forms.ValidationError(_("A backup code has four groups of four letters and digits."))
        return code


class PasskeyForm(PageForm):
    """The browser's response in a WebAuthn ceremony as JSON, which the script fills in."""

    credential = forms.CharField(widget=forms.HiddenInput)

    def clean_credential(self) -> dict[str, object]:
        """Return the JSON object. Raises ValidationError."""
        # The API's reader: Django's JSON field fails with an exception on deeply nested text.
        try:
            return json_object(str(self.cleaned_data["credential"]).encode("utf-8", "surrogatepass"))
        except MalformedBody as problem:
            raise forms.ValidationError(_("The browser's response was not understood. Try again.")) from problem


class PhoneForm(PageForm):
    """A number that codes are sent to."""

    phone_number = Line(
        label=_("Mobile number"),
        help_text=_("With + and the country code, such as +44 7400 123456."),
        max_length=32,
        widget=forms.TextInput(attributes("tel", inputmode="tel", type="tel")),
    )

    def clean_phone_number(self) -> str:
        """Return the number without the spaces and dashes that people write."""
        return typed_number(str(self.cleaned_data["phone_number"]))


class NewPasswordForm(PageForm):
    password = PasswordField(label=_("New password"), autocomplete="new-password")

    def __init__(self, *arguments: Any, least: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        text = _("At least %(least)s characters. A few unusual words make a good password.")
        self.fields["password"].help_text = text % {"least": least}


class NameForm(PageForm):
    name = Line(label=_("Your name"), required=False, max_length=255, widget=forms.TextInput({"autocomplete": "name"}))


class FirstPasswordForm(NewPasswordForm):
    """The password of a new account."""

    def __init__(self, *arguments: Any, least: int, **options: Any) -> None:
        super().__init__(*arguments, least=least, **options)
        self.fields["password"].label = _("Password")


class RegisterForm(FirstPasswordForm, NameForm):
    """A new account."""

    email = EmailField()
    field_order = ["name", "email", "password"]


class MailedTokenField(forms.CharField):
    """The token of a mail. The script takes it from the address of the page; without a script the link is pasted."""

    def __init__(self) -> None:
        super().__init__(
            label=_("Link from the mail"),
            help_text=_("Copy the whole link from the mail and paste it here."),
            max_length=2048,
            widget=forms.TextInput({**attributes("off"), "data-mailed": True}),
        )

    def clean(self, value: Any) -> str:
        """Return the token of a pasted link, or the text itself."""
        text = str(super().clean(value))
        _before, fragment, after = text.partition("#")
        return parse_qs(after).get("token", [""])[0] if fragment else text


class ResetForm(NewPasswordForm):
    """A new password, with the token of a mail."""

    token = MailedTokenField()
    field_order = ["token", "password"]


class InvitationForm(FirstPasswordForm, NameForm):
    """An account for an invited user."""

    token = MailedTokenField()
    field_order = ["token", "name", "password"]


class VerifyLinkForm(PageForm):
    """The verification of an address by the link of its mail."""

    token = MailedTokenField()


class VerifyCodeForm(PageForm):
    """The verification of an address by the code of its mail."""

    email = EmailField()
    code = Digits(label=_("Code from the mail"))


class UserCodeForm(PageForm):
    """The code that a device shows."""

    user_code = forms.CharField(
        label=_("Code on your device"),
        max_length=32,
        widget=forms.TextInput(attributes("off", placeholder="WDJB-MJHT") | {"autocapitalize": "characters"}),
    )

    def clean_user_code(self) -> str:
        """Return the letters of the code."""
        code = normalized_user_code(str(self.cleaned_data["user_code"]))
        if code is None:
            raise forms.ValidationError(_("Enter the eight letters that your device shows."))
        return code


class NewPhoneForm(SmsForm):
    """The code that a new number has received; the number is a hidden field."""

    phone_number = forms.CharField(max_length=32, widget=forms.HiddenInput)


class ProfileForm(PageForm):
    """Name and language of the user."""

    name = Line(label=_("Name"), required=False, max_length=255, widget=forms.TextInput({"autocomplete": "name"}))
    language = forms.ChoiceField(
        label=_("Language of pages and mails"),
        required=False,
        choices=[("", _("As set in the browser")), *named_languages()],
    )


class NewEmailForm(PageForm):
    email = EmailField(autocomplete="email")


class PasskeyNameForm(PageForm):
    name = Line(label=_("Name of the passkey"), required=False, max_length=60)
