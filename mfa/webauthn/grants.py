"""Who speaks after a passkey was used or enrolled: what that earns, and what the audit trail says of it."""

from typing import Any, Final
from uuid import UUID

from identity_platform.audit.origin import set_actor
from mfa import factors
from mfa.completion import ClientProof, subject_and_tenant
from mfa.enrollment import Caller
from mfa.verification import Earned
from userflow.accounts import principals
from userflow.accounts.realms import END_USERS, Realm
from userflow.errors import NotSignedInByTicket, PasskeyNotVerified

# RFC 8176 and the IANA registry of authentication methods: `pop` proof of possession of a key; with the user verified
# by the authenticator it is two factors in one step.
SECOND_STEP_AMR: Final = ("pop",)
ONLY_STEP_AMR: Final = ("pop", "mfa")


def only_step(
    realm: Realm, user: Any, *, client_id: UUID | None, caller: Caller, amr: tuple[str, ...] = ONLY_STEP_AMR
) -> Earned:
    """What a passkey with user verification earns.

    Raises PasskeyNotVerified without a good client, ClientNotAuthenticated (a confidential client without its secret),
    TenantSuspended.
    """
    set_actor(principal_kind(realm, user), str(user.pk))
    try:
        subject, tenant = subject_and_tenant(realm, user, client_id, client_proof=ClientProof(caller.client_secret))
    except NotSignedInByTicket as switched_off:
        raise PasskeyNotVerified from switched_off
    return Earned(subject, tenant, amr, caller.user_agent)


def principal_kind(realm: Realm, user: Any) -> str:
    """The kind of principal that the user is (`userflow.accounts.principals`)."""
    if realm is END_USERS:
        return principals.END_USER
    return principals.ADMIN if user.tenant_id else principals.OPERATOR


def record(realm: Realm, user: Any, action: str, *, outcome: str = "success", **details: Any) -> None:
    """Write to the realm's audit trail what was done with a passkey, or rejected; `user` is None where nobody was found."""
    realm.record(
        action,
        target=("end_user" if realm is END_USERS else "admin_user", user.pk) if user else None,
        tenant_id=getattr(user, "tenant_id", None),
        outcome=outcome,
        details={"kind": factors.WEBAUTHN, **details},
    )
