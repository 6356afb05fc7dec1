"""Where a tenant's database is, and whose a slug, a domain or a client is, without the global database.

A process keeps what it has read, and shares it through Valkey, so that a process that starts while the global database is away
knows it too. Nothing here is trusted: a database says whose it is when a connection to it is opened
(`tenants.database_servers.marks`), and its record is read with each request (`tenants.entering.lookup`). Nothing expires in
the process; what turns out to be stale is read again from the global database.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from identity_platform import shared_facts
from identity_platform.postgresql.statements import fetch_row
from tenants import operating_modes
from tenants.entering.target import DatabaseTarget
from tenants.errors import TenantBusy, UnknownTenant
from tenants.states import State

# In each process. When there are more, the oldest is read again.
MOST_KEPT: Final = 20_000
_WITHOUT_DATABASE: Final = frozenset({State.PROVISIONING, State.FAILED})
_GONE: Final = frozenset({State.DELETING, State.DELETED})
_READ: Final = """
SELECT d.name, d.server_id, s.revision, d.placement_revision, d.status
FROM tenants_tenantdatabase d JOIN tenants_databaseserver s ON s.id = d.server_id WHERE d.tenant_id = %s
"""


class Route(NamedTuple):
    """Where the database of a tenant is."""

    database: str
    server_id: int
    # Of the server when the route was read; a later one that the process knows counts.
    server_revision: int
    placement_revision: int

    def target(self, tenant_id: UUID) -> DatabaseTarget:
        """Return the database."""
        revision = max(self.server_revision, operating_modes.revision_of(self.server_id))
        return DatabaseTarget(self.server_id, revision, self.database, tenant_id=tenant_id)


class Names(StrEnum):
    """What leads to a tenant."""

    SLUG = "slug"
    DOMAIN = "domain"
    CLIENT = "client"


_routes: dict[UUID, Route] = {}
_tenants: dict[tuple[Names, str], UUID] = {}


def route_to(tenant_id: UUID) -> Route:
    """Return where the tenant's database was when this was last read. Raises as `read_again`."""
    route = _routes.get(tenant_id)
    if route is None:
        route = shared_facts.read(f"route:{tenant_id}", _from_fact)
        if route is None:
            return read_again(tenant_id)
        _keep(_routes, tenant_id, route)
    return route


def read_again(tenant_id: UUID) -> Route:
    """Read from the global database where the tenant's database is.

    Raises UnknownTenant, TenantBusy for a tenant without a database, and the errors of the global database.
    """
    row = fetch_row("default", _READ, [tenant_id])
    state = None if row is None else State(row[-1])
    if state is None or state in _GONE or state in _WITHOUT_DATABASE:
        _routes.pop(tenant_id, None)
        raise TenantBusy if state in _WITHOUT_DATABASE else UnknownTenant
    route = Route._make(row[:-1])
    if _routes.get(tenant_id) != route:
        _keep(_routes, tenant_id, route)
        shared_facts.write(f"route:{tenant_id}", [*route])
    return route


def tenant_named(names: Names, name: str, read: Callable[[], UUID | None]) -> UUID | None:
    """Return the tenant that the name has led to, else what `read` finds in the global database. None if unknown."""
    known = _tenants.get((names, name))
    if known is not None:
        return known
    known = shared_facts.read(f"{names}:{name}", UUID)
    if known is None:
        return named_again(names, name, read)
    _keep(_tenants, (names, name), known)
    return known


def named_again(names: Names, name: str, read: Callable[[], UUID | None]) -> UUID | None:
    """Return the tenant that `read` finds, after what was known has turned out to be stale. Unknown names are not kept."""
    tenant_id = read()
    if tenant_id is None:
        _tenants.pop((names, name), None)
    elif _tenants.get((names, name)) != tenant_id:
        _keep(_tenants, (names, name), tenant_id)
        shared_facts.write(f"{names}:{name}", str(tenant_id))
    return tenant_id


def _from_fact(shared: list[Any]) -> Route:
    database, *numbers = shared
    return Route(str(database), *map(int, numbers))


def is_known(names: Names, name: str) -> bool:
    """Return whether this process knows a tenant that the name leads to."""
    return (names, name) in _tenants


def forget(names: Names, name: str) -> None:
    """Forget where the name leads, here and in Valkey."""
    if _tenants.pop((names, name), None) is not None:
        shared_facts.remove(f"{names}:{name}")


def _keep(kept: dict[Any, Any], key: object, value: object) -> None:
    if len(kept) >= MOST_KEPT:
        # Another thread may do so at the same time: then one entry more or less is dropped.
        with suppress(RuntimeError, StopIteration):
            kept.pop(next(iter(kept)), None)
    kept[key] = value
