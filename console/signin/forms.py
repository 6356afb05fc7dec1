"""Forms of the sign-in pages. `autocomplete` lets browsers and password managers fill them in."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from console.frame.forms import Fields
from identity_platform.api.errors import MalformedBody
from identity_platform.api.parsers import json_object
from mfa.totp.backup_codes import normalised

LONGEST_TYPED = 255


def _text(**attributes: Any) -> Any:
    return UnfoldAdminTextInputWidget(attrs={"autocapitalize": "none", "spellcheck": "false", **attributes})


def _password(**attributes: Any) -> Any:
    return UnfoldAdminPasswordWidget(attrs=attributes)


class SignInForm(forms.Form):
    """Name and password."""

    username = forms.CharField(
        label=_("Username or e-mail address"),
        max_length=LONGEST_TYPED,
        widget=_text(autocomplete="username webauthn", autofocus=True),
    )
    password = forms.CharField(
        label=_("Password"), strip=False, max_length=1024, widget=_password(autocomplete="current-password")
    )


class CodeForm(forms.Form):
    """The six digits of an authenticator app."""

    code = forms.RegexField(
        r"^[0-9]{3} ?[0-9]{3}$",
        label=_("Code from your authenticator app"),
        error_messages={"invalid": _("Enter the six digits that the app shows.")},
        widget=_text(autocomplete="one-time-code", inputmode="numeric", maxlength="7"),
    )

    def clean_code(self) -> str:
        """Without the space that apps show in the middle."""
        return str(self.cleaned_data["code"]).replace(" ", "")


class NewAppForm(CodeForm):
    """The first code of a new secret, which is a hidden field."""

    secret = forms.CharField(max_length=128, widget=forms.HiddenInput)


class BackupCodeForm(forms.Form):
    """One of the ten codes that were shown when the app was set up."""

    backup_code = forms.CharField(
        label=_("Backup code"),
        help_text=_("Each of them works once."),
        max_length=64,
        widget=_text(autocomplete="off"),
    )

    def clean_backup_code(self) -> str:
        """Return the code in its stored form, without dashes and differences of case."""
        code = normalised("".join(str(self.cleaned_data["backup_code"]).split()))
        if code is None:
            raise forms.ValidationError(_("A backup code has four groups of four letters and digits."))
        return code


class PasswordForm(forms.Form):
    """The own password."""

    password = forms.CharField(
        label=_("Your password"),
        strip=False,
        max_length=1024,
        widget=_password(autocomplete="current-password", autofocus=True),
    )


class ProofForm(forms.Form):
    """The proof that a change to the own sign-in needs; no fields right after a step-up."""

    current_password = forms.CharField(
        label=_("Your password"),
        strip=False,
        required=False,
        max_length=1024,
        widget=_password(autocomplete="current-password"),
    )
    code = CodeForm.base_fields["code"]

    def __init__(self, *args: Any, has_proof: bool, has_app: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["code"].required = False
        self.fields["code"].label = _("Or a code from your authenticator app")
        self.fields["code"].widget.attrs.pop("autofocus", None)
        for name, wanted in (("current_password", not has_proof), ("code", has_app and not has_proof)):
            if not wanted:
                del self.fields[name]

    def clean_code(self) -> str:
        """Without the space that apps show in the middle."""
        return str(self.cleaned_data["code"]).replace(" ", "")

    def needs_proof(self, given: Fields) -> bool:
        """Return whether the change needs the proof."""
        return True

    def clean(self) -> Fields:
        """One of the proofs must be there."""
        given: Fields = super().clean() or {}
        asked = [name for name in ("current_password", "code") if name in self.fields]
        if asked and not self.errors and self.needs_proof(given) and not any(given.get(name) for name in asked):
            self.add_error(
                "current_password",
                _("Enter your password, or a code.") if "code" in asked else _("Enter your password."),
            )
        return given


class NewPasswordForm(forms.Form):
    """The current password, and the new one twice."""

    current_password = forms.CharField(
        label=_("Current password"),
        strip=False,
        max_length=1024,
        widget=_password(autocomplete="current-password", autofocus=True),
    )
    new_password = forms.CharField(
        label=_("New password"), strip=False, max_length=1024, widget=_password(autocomplete="new-password")
    )
    repeated = forms.CharField(
        label=_("New password again"), strip=False, max_length=1024, widget=_password(autocomplete="new-password")
    )

    def clean(self) -> Fields:
        """Both must be the same."""
        given: Fields = super().clean() or {}
        if "repeated" in given and given.get("new_password") != given["repeated"]:
            self.add_error("repeated", _("The passwords do not match."))
        return given


class PasskeyForm(forms.Form):
    """The browser's response in a WebAuthn ceremony as JSON, which a script fills in."""

    credential = forms.CharField(widget=forms.HiddenInput)

    def clean_credential(self) -> Fields:
        """Return the JSON object. Raises ValidationError."""
        # The API's reader: Django's JSON field fails with an exception on deeply nested text.
        try:
            return json_object(str(self.cleaned_data["credential"]).encode("utf-8", "surrogatepass"))
        except MalformedBody as problem:
            raise forms.ValidationError(_("The browser's response was not understood. Try again.")) from problem


class NewPasskeyForm(PasskeyForm):
    """A new passkey and its name."""

    name = forms.CharField(
        label=_("Name of the passkey"),
        help_text=_("Shown in your list, such as “Laptop” or “Security key”."),
        required=False,
        max_length=60,
        widget=_text(autocomplete="off", autocapitalize="sentences"),
    )


class ForgottenForm(forms.Form):
    """The address that the link is mailed to."""

    email = forms.EmailField(
        label=_("E-mail address"),
        max_length=254,
        widget=_text(type="email", autocomplete="email", autofocus=True),
    )
