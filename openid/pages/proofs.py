"""Proofs that a page asks for, one at a time: a code, a passkey or the password."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from django.utils.translation import gettext_lazy as _

from mfa.factors import BACKUP_CODE, SMS, TOTP, WEBAUTHN
from openid.pages import forms

PASSWORD: Final = "password"


class Way(NamedTuple):
    """A kind of proof: its form, the field that has it, and its name on pages."""

    form: type[forms.PageForm]
    field: str
    label: object


WAYS: Final[dict[str, Way]] = {
    WEBAUTHN: Way(forms.PasskeyForm, "credential", _("Passkey")),
    TOTP: Way(forms.TotpForm, "code", _("Authenticator app")),
    SMS: Way(forms.SmsForm, "sms_code", _("Text message")),
    BACKUP_CODE: Way(forms.BackupCodeForm, "backup_code", _("Backup code")),
    PASSWORD: Way(forms.PasswordForm, "password", _("Password")),
}


def chosen_way(stated: str | None, possible: Sequence[str]) -> str:
    """Return the way that the address of the page names, else the strongest one that the user has."""
    ordered = [kind for kind in WAYS if kind in possible]
    return stated if stated is not None and stated in ordered else ordered[0]


def other_ways(kind: str, possible: Sequence[str]) -> list[tuple[str, object]]:
    """Return the other ways with their names."""
    return [(name, way.label) for name, way in WAYS.items() if name in possible and name != kind]
