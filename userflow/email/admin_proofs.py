"""Verifying the address of an admin user: a link is sent there, and following it reserves the address for this user."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.crypto import hash_token
from identity_platform.postgresql.row_errors import unique_or
from userflow.accounts.models import AdminUser
from userflow.accounts.realms import ADMINS
from userflow.credentials import tickets
from userflow.credentials.models import AdminEmailProof
from userflow.errors import AdminNameTaken, EmailProofInvalid
from userflow.mail.budgets import limit_mails
from userflow.mail.rendering import link_facts
from userflow.mailed_tokens import placed_token
from userflow.sessions.ending import end_sessions

LIFETIME: Final = timedelta(days=7)


def start_admin_proof(user: AdminUser, email: str, *, keep: UUID | None = None) -> None:
    """Send a link to `email`, the user's own address or the one that it is to become; an older link of the user ends.

    Call it inside a transaction, with the user stored. `keep` is the session that goes on when the address changes.
    """
    token, expires = placed_token(None), now() + LIFETIME
    AdminEmailProof.objects.update_or_create(
        user=user,
        defaults={
            "email": email,
            "email_key": email_key(email),
            "token_digest": hash_token(token),
            "session_id": keep,
            "expires_at": expires,
        },
    )
    facts = {**link_facts(settings.EMAIL_VERIFICATION_URL, token), "until": expires}
    ADMINS.notify(user, "admin_email_proof", facts, to=email)


def limit_changes(user_id: UUID, *, counts: bool = True) -> None:
    """Raise TooManyFromAddress (429) if the address of a user changes too often: each change sends a mail to a new address.

    Call it without `counts` before a proof is used up for the change.
    """
    limit_mails(
        "admin_email_change", str(user_id), "Too many changes of this address.", limits="email_resend", counts=counts
    )


def verify_admin_email(*, token: str) -> AdminUser:
    """Verify the address that the link was sent to; return the user. Of two users who verify one address, one wins.

    Raises EmailProofInvalid (unknown, used, expired), AdminNameTaken (another user has verified the address).
    """
    valid = AdminEmailProof.objects.filter(token_digest=hash_token(token), expires_at__gt=now())
    user_id = valid.values_list("user_id", flat=True).first()
    with unique_or(AdminNameTaken), transaction.atomic():
        # Lock the user first, as in a change: another order could deadlock.
        users = AdminUser.objects.select_for_update(no_key=True).filter(pk__in=[user_id], active=True)
        user = users.first()
        email_proof = valid.first() if user is not None else None
        if user is None or email_proof is None:
            raise EmailProofInvalid
        email_proof.delete()
        changed = user.email_key != email_proof.email_key
        user.email, user.email_verified_at = email_proof.email, now()
        user.save(update_fields=["email", "email_key", "email_verified_at", "updated_at"])
        if changed:
            # Password reset links were sent to the old address.
            tickets.end_tickets(ADMINS, user.pk, purposes=[tickets.PASSWORD_RESET])
            end_sessions(ADMINS, user_id=user.pk, keep=email_proof.session_id, reason="email_changed")
        ADMINS.record_about(user, "email.proven", {"changed": changed})
    return user
