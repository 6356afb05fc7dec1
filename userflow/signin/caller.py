"""The caller of an endpoint that verifies or enrolls a factor: its access token, tickets and proof."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from userflow.accounts.models import Account
from userflow.accounts.principals import Principal
from userflow.accounts.realms import Realm
from userflow.signin.delivery import ApplicationTokens, Delivery


@dataclass(frozen=True, slots=True)
class Caller:
    """The proofs in a request. Its network address is that of the audit log's origin.

    `principal` belongs to a valid Authorization header. An invalid one is rejected before any view runs
    (BearerAuthentication, 401), so it cannot fall through to a lower proof level.
    """

    principal: Principal | None = None
    # Enrollment ticket or enrollment pass.
    ticket: str | None = None
    # What a sign-in that the factor completes hands out.
    delivery: Delivery = field(default_factory=ApplicationTokens)
    # The proof for a change of the caller's own factors (userflow.signin.proofs).
    proof: Mapping[str, object] = field(default_factory=dict)


def is_this_user(realm: Realm, user: Account, principal: Principal | None) -> bool:
    """Return whether the principal is this user: same realm, same tenant, same id."""
    return bool(user.pk == id_in(realm, principal))


def id_in(realm: Realm, principal: Principal | None) -> UUID | None:
    """Return the principal's id as a user of this realm (and tenant), or None if it is not one."""
    if principal is None or principal.kind not in realm.kinds:
        return None
    tenant = realm.tenant()
    return principal.id if tenant is None or tenant.tenant_id == principal.tenant_id else None
