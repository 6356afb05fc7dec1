"""Mails that tell a user that their factors changed: whoever did it, the user hears of it."""

from typing import Any

import structlog
from django.core.mail import send_mail
from django.db import transaction
from django.template.loader import render_to_string
from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from mfa.people import settings_of
from tenants.context import current_tenant
from userflow.realms import END_USERS, Realm

log = structlog.get_logger("identity.mfa")

KINDS = {
    "webauthn": "a passkey",
    "totp": "an authenticator app",
    "sms": "a phone for codes by SMS",
    "backup_code": "backup codes",
    "all": "all second factors",
}
CHANGES = {
    "enrolled": "added",
    "replaced": "replaced",
    "removed": "removed",
    "reset": "removed by an administrator",
    "regenerated": "made anew",
}


def issuer_of(realm: Realm, user: Any) -> str:
    """The name under which users know whoever runs this: the tenant's issuer name, else the tenant's name."""
    fallback = current_tenant().name if realm is END_USERS else "Identity platform"
    return str(settings_of(realm, user).get("issuer_name") or fallback)


def tell_of_change(realm: Realm, user: Any, *, change: str, kind: str) -> None:
    """Mail the user once the running transaction is committed. A mail server that is down undoes nothing."""
    facts = {
        "what": KINDS[kind],
        "done": CHANGES[change],
        "issuer": issuer_of(realm, user),
        "at": now(),
        "address": current_origin().address,
    }
    recipient = user.email

    def send() -> None:
        subject = render_to_string("email/factor_changed.subject.txt", facts).strip()
        try:
            send_mail(subject, render_to_string("email/factor_changed.txt", facts), None, [recipient])
        except OSError as problem:  # smtplib's errors are OSErrors
            log.warning("notice_not_sent", change=change, kind=kind, cause=type(problem).__name__)

    transaction.on_commit(send, using=realm.alias)
