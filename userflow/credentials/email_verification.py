"""Verify that an address belongs to an end user: a link and a code are sent there, and one of them is sent back.

Registration and a change of address start a verification in their own transaction; sign-in checks whether one is missing.
"""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F
from django.utils.timezone import now

from identity_platform.crypto import hash_token, keyed_digest
from tenants import keys, lookup
from tenants.context import current_tenant
from userflow import mail
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials.models import EmailProof
from userflow.mailed_tokens import placed_token

LINK_LIFETIME = timedelta(hours=24)
# Six digits can be guessed sooner than 256 bits.
CODE_LIFETIME = timedelta(minutes=30)
WRONG_CODES_ALLOWED = 5
REQUIRED = "required"


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


def start_proof(
    user: EndUser,
    email: str,
    key: str,
    tenant: lookup.TenantContext,
    *,
    until: datetime | None = None,
    keep: UUID | None = None,
) -> None:
    """Send a link and a code to `email`; an older verification of the user ends. Call it inside the tenant's transaction.

    The link is good until `until`, by default for a day. `keep` is the session that continues when the address changes.
    """
    begun = now()
    expires = until or begun + LINK_LIFETIME
    token, code = placed_token(tenant.tenant_id), f"{secrets.randbelow(1_000_000):06d}"
    proof = EmailProof(
        user=user,
        email=email,
        email_key=key,
        token_digest=hash_token(token),
        code_digest=code_digest(tenant, user.pk, code),
        session_id=keep,
        created_at=begun,
        expires_at=expires,
    )
    # One statement, also over an older proof.
    columns = [field.name for field in EmailProof._meta.concrete_fields if not field.primary_key]
    EmailProof.objects.bulk_create([proof], update_conflicts=True, unique_fields=["user"], update_fields=columns)
    page = tenant.effective["email_verification_url"]
    facts = {
        "issuer": tenant.effective["issuer_name"],
        **mail.link(page, token),
        "code": code,
        "minutes": int(CODE_LIFETIME.total_seconds() // 60),
        "until": expires,
        "changes": key != user.email_key,
        "required": is_required(tenant),
    }
    END_USERS.tell(user, "email_proof", facts, to=email)


def give_up_changes(user_ids: Collection[UUID]) -> None:
    """Cancel pending changes of address of these users; the verification of a current address continues."""
    EmailProof.objects.filter(user_id__in=user_ids).exclude(email_key=F("user__email_key")).delete()


def limit_changes(user_id: object, *, counts: bool = True) -> None:
    """Raise TooManyFromAddress (429) when the user requests too many mails to new addresses, which may belong to others.

    Call it inside the tenant; without `counts` before a proof is used up for the change.
    """
    # By tenant too: an import may create a user of another tenant with the same id.
    key = f"{current_tenant().tenant_id} {user_id}"
    mail.limit("email_change", key, "Too many changes of this address.", limits="email_resend", counts=counts)


def tell_of_ended_use(user: EndUser) -> None:
    """Tell the owner of an address, verified for the first time, that sessions or factors ended. Call it inside the
    tenant's transaction."""
    END_USERS.tell(user, "email_verified", {"issuer": current_tenant().effective["issuer_name"]})
