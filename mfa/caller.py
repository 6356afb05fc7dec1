"""The caller of an MFA endpoint: its access token, tickets and proof."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tenants.context import current_tenant
from userflow.accounts.models import Account
from userflow.accounts.principals import END_USER, Principal
from userflow.accounts.realms import END_USERS, Realm


@dataclass(frozen=True, slots=True)
class Caller:
    """The proofs in a request. Its network address is that of the audit log's origin.

    `principal` belongs to a valid Authorization header. An invalid one is rejected before any view runs
    (BearerAuthentication, 401), so it cannot fall through to a lower proof level.
    """

    principal: Principal | None = None
    # Enrollment ticket or enrollment pass.
    ticket: str | None = None
    user_agent: str = ""
    # The secret of a confidential client, for a sign-in without the ticket of a login.
    client_secret: str | None = None
    # The proof for a change of the caller's own factors (userflow.signin.proofs).
    proof: Mapping[str, object] = field(default_factory=dict)


def is_this_user(realm: Realm, user: Account, principal: Principal | None) -> bool:
    """Return whether the principal is this user: same realm, same tenant, same id."""
    return bool(user.pk == id_in(realm, principal))


def id_in(realm: Realm, principal: Principal | None) -> UUID | None:
    """Return the principal's id as a user of this realm (and tenant), or None if it is not one."""
    if principal is None:
        return None
    if realm is END_USERS:
        here = principal.kind == END_USER and principal.tenant_id == current_tenant().tenant_id
    else:
        here = principal.is_admin
    return principal.id if here else None
