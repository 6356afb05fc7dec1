"""Mails to users about changes of their factors, by themselves or by an administrator."""

from datetime import datetime
from typing import Final

from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from identity_platform.audit.origin import current_origin
from mfa.users import settings_of
from userflow.accounts.models import Account
from userflow.accounts.realms import Realm

# By kind of factor ("all": every one) and change.
EVENTS: Final = {
    ("webauthn", "enrolled"): _("a passkey was added"),
    ("webauthn", "replaced"): _("a passkey was replaced"),
    ("webauthn", "removed"): _("a passkey was removed"),
    ("totp", "enrolled"): _("an authenticator app was added"),
    ("totp", "replaced"): _("an authenticator app was replaced"),
    ("totp", "removed"): _("an authenticator app was removed"),
    ("sms", "enrolled"): _("a phone for codes by SMS was added"),
    ("sms", "replaced"): _("a phone for codes by SMS was replaced"),
    ("sms", "removed"): _("a phone for codes by SMS was removed"),
    ("backup_code", "enrolled"): _("backup codes were added"),
    ("backup_code", "regenerated"): _("backup codes were replaced by new ones"),
    ("backup_code", "removed"): _("backup codes were removed"),
    ("all", "removed"): _("all second factors were removed"),
}


def issuer_of(realm: Realm, user: Account) -> str:
    """Return the name that users know the service by: the tenant's issuer name, else the tenant's name."""
    tenant = realm.tenant()
    fallback = tenant.name if tenant else "Identity platform"
    return str(settings_of(realm, user).get("issuer_name") or fallback)


def mail_factor_change(realm: Realm, user: Account, *, change: str, kind: str, by_admin: bool = False) -> None:
    """Mail the user after the transaction is committed. A mail server that is down does not undo the change.

    A change `by_admin` shows no network address: it would be the admin's, and the audit trail has it.
    """
    facts = {
        "event": EVENTS[kind, "removed" if change == "reset" else change],
        "issuer": issuer_of(realm, user),
        "at": now(),
        "by_admin": by_admin,
        "gone": kind == "all",
        "address": "" if by_admin else current_origin().address,
    }
    realm.notify(user, "factor_changed", facts)


def mail_enrollment_pass(realm: Realm, user: Account, *, token: str, expires_at: datetime) -> None:
    """Mail the user that an enrollment pass was issued, and the pass itself unless `token` is empty."""
    facts = {"issuer": issuer_of(realm, user), "token": token, "until": expires_at}
    realm.notify(user, "enrollment_pass", facts)
