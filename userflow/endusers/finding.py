"""Find end users whose tenant is unknown, in the index of all tenants."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from identity_platform.audit.writer import record_for_platform
from tenants.entering.lookup import GONE
from tenants.models import Tenant
from userflow.accounts.principals import ADMIN, OPERATOR, Principal
from userflow.sessions.permissions import require
from userflow.user_index.entries import digest_of
from userflow.user_index.models import IndexedEndUser

# An address can be in every tenant. Of more than these, the caller needs to know the tenant.
MOST_FOUND: Final = 20


@dataclass(frozen=True, slots=True)
class EndUserMatch:
    """An end user and the tenant. What else is known of the user is in the tenant's own database."""

    user_id: UUID
    tenant: Tenant


def find_end_users(
    *, by: Principal, email_key: str | None = None, user_id: UUID | None = None
) -> Sequence[EndUserMatch]:
    """Return the end users with this address (its `email_key`) or this id, in all tenants that the caller may see.

    An operator sees all tenants, with `tenants:read`; a tenant's admin only the own one. No tenant's database is entered. The
    search is audited with the number of users found, but without the address. Returns at most MOST_FOUND + 1 of them.
    Raises InsufficientScope.
    """
    require(by, "endusers:read", OPERATOR, ADMIN)
    if by.kind == OPERATOR:
        require(by, "tenants:read")
    rows = IndexedEndUser.objects.filter(user_id=user_id) if user_id else IndexedEndUser.objects.all()
    if email_key:
        rows = rows.filter(digest=digest_of(email_key))
    if by.tenant_id is not None:
        rows = rows.filter(tenant_id=by.tenant_id)
    ids = list(rows.order_by("tenant_id").values_list("tenant_id", "user_id")[: MOST_FOUND + 1])
    tenants = Tenant.objects.exclude(database__status__in=GONE).in_bulk([tenant_id for tenant_id, _ in ids])
    users = [EndUserMatch(user, tenants[tenant_id]) for tenant_id, user in ids if tenant_id in tenants]
    details = {"by": "address" if email_key else "id", "matches": len(users)}
    record_for_platform("people.searched", tenant_id=by.tenant_id, details=details)
    return users
