"""Where a tenant is right now: one statement on the global database, remembered for the rest of the request only.

A tenant is not cached across requests on purpose. Suspending, moving or deleting a tenant must count from the very next
request in every process on every host; a cache would need an invalidation that can get lost, the statement is one
primary-key look-up. Signing in with a token reads the route together with the caller's state, so that an authenticated
request pays nothing extra (`userflow.sessions.verify`).
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.signals import request_finished, request_started
from django.db import connection

from identity_platform.audit.origin import set_tenant
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from tenants.settings import value_of
from tenants.states import ALLOWED, Purpose, State

GONE = frozenset({State.DELETED, State.DELETING})


@dataclass(frozen=True, slots=True)
class TenantContext:
    """A tenant's place and state."""

    tenant_id: UUID
    slug: str
    name: str
    status: State
    database: str
    server_id: int
    server_revision: int
    settings: dict[str, Any]
    # Whether systems of the tenant hear of events: without any, a deed need not ask who does.
    has_webhooks: bool = False

    def setting(self, name: str) -> Any:
        """The value of a setting that applies in this tenant."""
        return value_of(self.settings, name, tenant_name=self.name)

    def allows(self, purpose: Purpose) -> bool:
        """Return whether the state allows this."""
        return purpose in ALLOWED[self.status]

    def check(self, purpose: Purpose) -> None:
        """Refuse what the state does not allow: UnknownTenant, TenantSuspended or TenantBusy."""
        if self.allows(purpose):
            return
        if self.status in GONE:
            raise UnknownTenant
        raise TenantSuspended if self.status is State.SUSPENDED else TenantBusy


# The columns of a route, to be joined by whoever reads more than that in the same statement.
COLUMNS = (
    "t.id, t.slug, t.name, d.status, d.name, d.server_id, s.revision, t.settings,"
    " EXISTS (SELECT FROM tenants_webhooktenant w WHERE w.tenant_id = t.id)"
)
JOINS = "JOIN tenants_tenantdatabase d ON d.tenant_id = t.id JOIN tenants_databaseserver s ON s.id = d.server_id"
WIDTH = 9

_seen: ContextVar[dict[UUID, TenantContext] | None] = ContextVar("routes_of_this_request", default=None)


def from_row(row: Any) -> TenantContext:
    """A route from the values of COLUMNS."""
    tenant_id, slug, name, status, database, server_id, revision, settings, has_webhooks = row
    return TenantContext(
        tenant_id, slug, name, State(status), database, server_id, revision, decoded(settings), has_webhooks
    )


def decoded(value: Any) -> dict[str, Any]:
    """A jsonb value; Django's adapters leave it as text on plain cursors."""
    if isinstance(value, str):
        import orjson

        return dict(orjson.loads(value))
    return dict(value or {})


def remember(tenant: TenantContext) -> TenantContext:
    """Keep the route for the rest of this request."""
    seen = _seen.get()
    if seen is not None:
        seen[tenant.tenant_id] = tenant
        set_tenant(tenant.tenant_id)
    return tenant


def find(tenant_id: UUID) -> TenantContext:
    """The tenant's route; UnknownTenant if there is none or it was deleted."""
    seen = _seen.get()
    if seen is not None and tenant_id in seen:
        return seen[tenant_id]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COLUMNS} FROM tenants_tenant t {JOINS} WHERE t.id = %s", [tenant_id])
        row = cursor.fetchone()
    if row is None:
        raise UnknownTenant
    tenant = from_row(row)
    if tenant.status in GONE:
        raise UnknownTenant
    return remember(tenant)


def forget() -> None:
    """Drop what this request has seen; after a change of state in the same request."""
    if _seen.get() is not None:
        _seen.set({})


def forget_at_request_ends() -> None:
    """Begin to remember at each request's start and stop at its end."""
    request_started.connect(lambda **_: _seen.set({}), weak=False, dispatch_uid="routes.begin")
    request_finished.connect(lambda **_: _seen.set(None), weak=False, dispatch_uid="routes.end")


def is_behind(tenant_id: UUID) -> bool:
    """Whether the tenant's database has another schema than this release's code expects."""
    from tenants.schema import schema_version  # it enters tenants itself

    with connection.cursor() as cursor:
        cursor.execute("SELECT schema_version FROM tenants_tenantdatabase WHERE tenant_id = %s", [tenant_id])
        row = cursor.fetchone()
    return row is not None and row[0] != schema_version()
