"""Verify that an address belongs to an end user: a link and a code are sent there, and one of them is sent back.

Registration and a change of address start a verification in their own transaction; sign-in checks whether one is missing.
"""

import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import F
from django.utils.timezone import now

from identity_platform.crypto import hash_token, keyed_digest
from tenants import keys
from tenants.entering import lookup
from tenants.entering.context import current_tenant
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts
from userflow.credentials.models import EmailProof, MailedCode
from userflow.mail.budgets import limit_mails
from userflow.mail.rendering import link_facts
from userflow.mailed_tokens import derived_token

LINK_LIFETIME = timedelta(hours=24)
# Six digits can be guessed sooner than 256 bits.
CODE_LIFETIME = timedelta(minutes=30)
# Of one code: from the network of its first request, and from all others together, whose attempts must not use up those of
# the first. Callers who know the id of what is verified have attempts of their own (`userflow.email.actions`).
OWN_WRONG_CODES, WRONG_CODES_FROM_ELSEWHERE = 5, 20
SEED_BYTES = 16
REQUIRED = "required"


class MailSecrets(NamedTuple):
    """What a mail contains to verify its address."""

    token: str
    code: str


def is_required(tenant: lookup.TenantContext) -> bool:
    """Return whether the tenant requires a verified address."""
    # Not by `effective`, which computes all settings: every authorized read of an end user asks.
    return tenant.settings.get("email_verification") == REQUIRED


def is_unverified(user: Account, tenant: lookup.TenantContext | None) -> bool:
    """Return whether this is an end user whose address must be verified before any sign-in, session, ticket or factor.

    Every entry point checks this, and only after the password or passkey was right: an earlier response would tell who exists.
    """
    return tenant is not None and user.address_policy_applies and is_required(tenant) and user.email_verified_at is None


def code_digest(tenant: lookup.TenantContext, user_id: object, code: str) -> bytes:
    """Return the stored digest of a code, keyed and bound to the user: six digits are soon tried against a plain hash."""
    return keyed_digest(f"{user_id} {code}", key=keys.tenant_key(tenant.tenant_id), purpose="email code")


def issue_secrets(row: MailedCode, tenant: lookup.TenantContext, *, lifetime: timedelta = LINK_LIFETIME) -> MailSecrets:
    """Set a new link and a new code of a row that is not stored yet or is about to be saved, and return them."""
    row.created_at = now()
    row.expires_at = row.created_at + lifetime
    row.seed = secrets.token_bytes(SEED_BYTES)
    row.network = attempts.caller_network() or ""
    row.wrong_codes = row.own_wrong_codes = 0
    issued = _secrets_of(row, tenant)
    row.token_digest, row.code_digest = hash_token(issued.token), code_digest(tenant, row.pk, issued.code)
    return issued


def repeat_secrets(row: MailedCode, tenant: lookup.TenantContext) -> MailSecrets:
    """Return the link and the code of a stored row for another mail. Call it with the row locked.

    A link that is valid stays, and so does a code: the caller may be another than the one who waits for the mail. A code is
    replaced once it has expired, or for the first caller after too many wrong ones.
    """
    repeated = _secrets_of(row, tenant)
    if hash_token(repeated.token) != bytes(row.token_digest):
        # Issued by an earlier release, or revoked with the domain that the link led to.
        row.seed = secrets.token_bytes(SEED_BYTES)
    elif row.created_at > now() - CODE_LIFETIME and not (
        row.own_wrong_codes >= OWN_WRONG_CODES and row.network == (attempts.caller_network() or "")
    ):
        return repeated
    row.created_at = now()
    row.wrong_codes = row.own_wrong_codes = 0
    repeated = _secrets_of(row, tenant)
    row.token_digest, row.code_digest = hash_token(repeated.token), code_digest(tenant, row.pk, repeated.code)
    row.save(update_fields=["seed", "created_at", "wrong_codes", "own_wrong_codes", "token_digest", "code_digest"])
    return repeated


def _secrets_of(row: MailedCode, tenant: lookup.TenantContext) -> MailSecrets:
    key, seed = keys.tenant_key(tenant.tenant_id), bytes(row.seed).hex()
    link = keyed_digest(f"{row.pk} {seed}", key=key, purpose="email link")
    digits = keyed_digest(f"{row.pk} {seed} {row.created_at.timestamp()}", key=key, purpose="email link's code")
    code = f"{int.from_bytes(digits) % 1_000_000:06d}"
    return MailSecrets(derived_token(tenant.tenant_id, link), code)


def mail_facts(
    row: MailedCode, issued: MailSecrets, tenant: lookup.TenantContext, *, changes: bool = False
) -> dict[str, object]:
    """Return what the mail with the link and the code says."""
    return {
        "issuer": tenant.effective["issuer_name"],
        **link_facts(tenant.effective["email_verification_url"], issued.token),
        "code": issued.code,
        "minutes": max(1, round((row.created_at + CODE_LIFETIME - now()).total_seconds() / 60)),
        "until": row.expires_at,
        "changes": changes,
        "registers": not isinstance(row, EmailProof),
        "required": is_required(tenant),
    }


def start_proof(
    user: EndUser,
    email: str,
    key: str,
    tenant: lookup.TenantContext,
    *,
    keep: UUID | None = None,
    mails: bool = True,
) -> None:
    """Send a link and a code to `email`; an older verification of the user ends. Call it inside the tenant's transaction.

    `keep` is the session that continues when the address changes. Without `mails`, the row is stored all the same: a change
    to the address of another user must look like any other change, and its link and code are sent to no one.
    """
    email_proof = EmailProof(user=user, email=email, email_key=key, session_id=keep)
    issued = issue_secrets(email_proof, tenant)
    # One statement, also over an older proof.
    columns = [field.name for field in EmailProof._meta.concrete_fields if not field.primary_key]
    EmailProof.objects.bulk_create([email_proof], update_conflicts=True, unique_fields=["user"], update_fields=columns)
    if mails:
        _mail_proof(user, email_proof, issued, tenant)


def repeat_proof(user: EndUser, email_proof: EmailProof, tenant: lookup.TenantContext) -> None:
    """Mail the link and the code of a pending verification again. Call it with both rows locked, in the transaction.

    A pending change of address keeps its expiry.
    """
    if email_proof.email_key == user.email_key:
        email_proof.expires_at = now() + LINK_LIFETIME
        email_proof.save(update_fields=["expires_at"])
    _mail_proof(user, email_proof, repeat_secrets(email_proof, tenant), tenant)


def _mail_proof(user: EndUser, email_proof: EmailProof, issued: MailSecrets, tenant: lookup.TenantContext) -> None:
    facts = mail_facts(email_proof, issued, tenant, changes=email_proof.email_key != user.email_key)
    END_USERS.notify(user, "email_proof", facts, to=email_proof.email)


def give_up_changes(user_ids: Collection[UUID]) -> None:
    """Cancel pending changes of address of these users; the verification of a current address continues."""
    EmailProof.objects.filter(user_id__in=user_ids).exclude(email_key=F("user__email_key")).delete()


def limit_changes(user_id: object, *, counts: bool = True) -> None:
    """Raise TooManyFromAddress (429) when the user requests too many mails to new addresses, which may belong to others.

    Call it inside the tenant; without `counts` before a proof is used up for the change.
    """
    # By tenant too: an import may create a user of another tenant with the same id.
    key = f"{current_tenant().tenant_id} {user_id}"
    limit_mails("email_change", key, "Too many changes of this address.", limits="email_resend", counts=counts)


def tell_of_ended_use(user: EndUser) -> None:
    """Tell the owner of an address, verified for the first time, that sessions or factors ended. Call it inside the
    tenant's transaction."""
    END_USERS.notify(user, "email_verified", {"issuer": current_tenant().effective["issuer_name"]})
