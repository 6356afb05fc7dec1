"""How the tenant travels: a ContextVar that fails closed (DESIGN.md section 4)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from uuid import UUID

import structlog
from django.db import ProgrammingError, connections, transaction
from psycopg.errors import UndefinedColumn, UndefinedFunction, UndefinedTable

from tenants import lookup
from tenants.errors import NoActiveTenant, TenantBehind, TenantSwitchInTransaction
from tenants.states import Purpose

if TYPE_CHECKING:
    from tenants.backend.base import DatabaseWrapper

log = structlog.get_logger("identity.tenants")

TENANT_ALIAS = "tenant"
_NOT_THERE = (UndefinedColumn, UndefinedFunction, UndefinedTable)


@dataclass(frozen=True, slots=True)
class Place:
    """A database to connect to. `key` names it in the pool; a direct place is maintenance and bypasses the pool."""

    server_id: int
    server_revision: int
    database: str
    direct: bool = False
    # The tenant whose place it is; none while a template or a spare database is made.
    tenant: lookup.TenantContext | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[int, int, str]:
        return (self.server_id, self.server_revision, self.database)


_place: ContextVar[Place | None] = ContextVar("tenant_place", default=None)


def is_entered() -> bool:
    """Whether tenant models mean a database at the moment."""
    return _place.get() is not None


def entered() -> Place | None:
    """The place that is entered, if one is."""
    return _place.get()


def current_place() -> Place:
    """Where tenant models go at the moment; NoActiveTenant outside `in_tenant()`."""
    place = _place.get()
    if place is None:
        raise NoActiveTenant("A tenant model was used outside in_tenant(): the action must say which tenant it means.")
    return place


def current_tenant() -> lookup.TenantContext:
    """The tenant that is entered; NoActiveTenant if none is."""
    tenant = current_place().tenant
    if tenant is None:
        raise NoActiveTenant("A database is entered for maintenance, not for a tenant.")
    return tenant


def _wrapper() -> "DatabaseWrapper":
    return cast("DatabaseWrapper", connections[TENANT_ALIAS])


@contextmanager
def in_place(place: Place) -> Iterator[None]:
    """Enter a database by its place; used by `in_tenant` and by maintenance."""
    outer = _place.get()
    if outer is not None and outer == place:
        yield
        return
    wrapper = _wrapper()
    if wrapper.in_atomic_block:
        raise TenantSwitchInTransaction("Another tenant was entered inside an open tenant transaction.")
    wrapper.leave()
    token = _place.set(place)
    try:
        yield
    finally:
        try:
            wrapper.leave()
        finally:
            _place.reset(token)


@contextmanager
def in_tenant(tenant_id: UUID, purpose: Purpose = Purpose.WRITE) -> Iterator[lookup.TenantContext]:
    """Enter a tenant: from here tenant models mean its database.

    Takes the tenant's id and what it is entered for. Gives the tenant's context (settings, state). Raises
    UnknownTenant, TenantSuspended or TenantBusy; with TenantBehind when a statement misses what this release's migrations
    make. No connection is opened before the first statement.
    """
    tenant = lookup.find(tenant_id)
    tenant.check(purpose)
    try:
        with in_place(Place(tenant.server_id, tenant.server_revision, tenant.database, tenant=tenant)):
            yield tenant
    except ProgrammingError as problem:
        # Asked only now: whether a tenant is migrated costs no request that goes well.
        if isinstance(problem.__cause__, _NOT_THERE) and lookup.is_behind(tenant_id):
            log.warning("tenant_behind", tenant=str(tenant_id), next="run migrate_tenants")
            raise TenantBehind from problem
        raise


def tenant_atomic() -> AbstractContextManager[None]:
    """A transaction in the tenant's database. Django's bare `atomic()` would open one in the global database."""
    current_place()
    return transaction.atomic(using=TENANT_ALIAS)
