"""Forms of the sign-in pages. `autocomplete` lets browsers and password managers fill them in."""

from typing import ClassVar, Unpack

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from console.frame.access import Context
from console.frame.forms import Address, FormOptions
from console.frame.records import Text
from identity_platform.api.errors import MalformedBody
from identity_platform.api.form_fields import SixDigitsField
from identity_platform.api.parsers import json_object
from mfa.totp.backup_codes import normalised

LONGEST_TYPED = 255


def _text(**attributes: str | bool) -> forms.TextInput:
    widget: forms.TextInput = UnfoldAdminTextInputWidget(
        attrs={"autocapitalize": "none", "spellcheck": "false", **attributes}
    )
    return widget


class Password(forms.CharField):
    """A password, exactly as typed."""

    def __init__(self, *, label: Text, autocomplete: str, autofocus: bool = False, required: bool = True) -> None:
        widget = UnfoldAdminPasswordWidget({"autocomplete": autocomplete, "autofocus": autofocus})
        super().__init__(label=label, required=required, strip=False, max_length=1024, widget=widget)


class SignInForm(forms.Form):
    username = forms.CharField(
        label=_("Username or e-mail address"),
        max_length=LONGEST_TYPED,
        widget=_text(autocomplete="username webauthn", autofocus=True),
    )
    password = Password(label=_("Password"), autocomplete="current-password")


class Code(SixDigitsField):
    """The six digits of an authenticator app."""

    default_error_messages = {"invalid": _("Enter the six digits that the app shows.")}


class CodeForm(forms.Form):
    code = Code(
        label=_("Code from your authenticator app"), widget=_text(autocomplete="one-time-code", inputmode="numeric")
    )


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
        code = normalised(str(self.cleaned_data["backup_code"]))
        if code is None:
            raise forms.ValidationError(_("A backup code has four groups of four letters and digits."))
        return code


class PasswordForm(forms.Form):
    password = Password(label=_("Your password"), autocomplete="current-password", autofocus=True)


class ProofForm(forms.Form):
    """The proof that a change to the own sign-in needs: the password of a user without a factor, else a code.

    Without fields right after a step-up, and for a user whose factor is no app: the page leads to the step-up.
    """

    current_password = Password(label=_("Your password"), autocomplete="current-password", required=False)
    code = CodeForm.base_fields["code"]
    # The help text of the password.
    proof_help: ClassVar[Text] = ""

    def __init__(self, *, has_proof: bool, has_factor: bool, has_app: bool, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        self.fields["current_password"].help_text = self.proof_help
        self.fields["code"].required = False
        self.fields["code"].widget.attrs.pop("autofocus", None)
        for name, is_needed in (("current_password", not has_factor), ("code", has_app and not has_proof)):
            if not is_needed:
                del self.fields[name]

    def needs_proof(self) -> bool:
        """Return whether the change needs the proof."""
        return True

    def clean(self) -> Context:
        """Require one of the proofs."""
        super().clean()
        proof_names = [name for name in ("current_password", "code") if name in self.fields]
        if proof_names and not self.errors and self.needs_proof() and not any(map(self.cleaned_data.get, proof_names)):
            self.add_error(proof_names[0], _("Enter a code.") if "code" in proof_names else _("Enter your password."))
        return self.cleaned_data


class NewPasswordForm(forms.Form):
    """A new password, with the present one of a user who has no factor."""

    current_password = Password(label=_("Current password"), autocomplete="current-password", autofocus=True)
    new_password = Password(label=_("New password"), autocomplete="new-password")
    repeated = Password(label=_("Confirm new password"), autocomplete="new-password")

    def __init__(self, *, has_factor: bool, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        if has_factor:
            del self.fields["current_password"]

    def clean_repeated(self) -> str:
        repeated = str(self.cleaned_data["repeated"])
        if self.cleaned_data.get("new_password") != repeated:
            raise forms.ValidationError(_("The passwords do not match."))
        return repeated


class PasskeyForm(forms.Form):
    """The browser's response in a WebAuthn ceremony as JSON, which a script fills in."""

    credential = forms.CharField(widget=forms.HiddenInput)

    def clean_credential(self) -> Context:
        # The API's reader: Django's JSON field fails with an exception on deeply nested text.
        try:
            return json_object(str(self.cleaned_data["credential"]).encode("utf-8", "surrogatepass"))
        except MalformedBody as problem:
            raise forms.ValidationError(_("The browser's response was not understood. Try again.")) from problem


class NewPasskeyForm(PasskeyForm):
    name = forms.CharField(
        label=_("Name of the passkey"),
        help_text=_("Shown in your list, such as “Laptop” or “Security key”."),
        required=False,
        max_length=60,
        widget=_text(autocomplete="off", autocapitalize="sentences"),
    )


class ForgottenForm(forms.Form):
    email = Address(label=_("E-mail address"), widget=_text(type="email", autocomplete="email", autofocus=True))
