"""Sessions that a passkey opens, and its audit events."""

from typing import Final
from uuid import UUID

from identity_platform.audit.origin import set_actor
from mfa.caller import Caller
from mfa.completion import SessionGrant, subject_and_tenant
from userflow.accounts.models import Account
from userflow.errors import NotSignedInByTicket, PasskeyNotVerified

# RFC 8176 and the IANA registry of authentication methods: `pop` is proof of possession of a key. With the user verified by
# the authenticator it is two factors in one step.
SECOND_STEP_AMR: Final = ("pop",)
ONLY_STEP_AMR: Final = ("pop", "mfa")


def only_step_grant(
    user: Account, *, client_id: UUID | None, caller: Caller, amr: tuple[str, ...] = ONLY_STEP_AMR
) -> SessionGrant:
    """Return the session that a passkey opens without a password.

    Raises PasskeyNotVerified without an active client, ClientNotAuthenticated (a confidential client without its secret),
    TenantSuspended.
    """
    set_actor(user.principal_kind, str(user.pk))
    try:
        subject, tenant = subject_and_tenant(user, client_id, caller=caller)
    except NotSignedInByTicket as deactivated:
        raise PasskeyNotVerified from deactivated
    return SessionGrant(subject, tenant, amr, caller.user_agent)
