"""The database that tenant models use: a ContextVar that fails closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol, Self, cast
from uuid import UUID

from django.db import connections

from tenants.errors import NoActiveTenant, TenantSwitchInTransaction
from tenants.models import DatabaseServer

TENANT_ALIAS: Final = "tenant"


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """A database to connect to. `key` identifies it in the pool; a direct target is for maintenance and bypasses the pool."""

    server_id: int
    server_revision: int
    database: str
    direct: bool = False
    # None while a template or a spare database is created.
    tenant_id: UUID | None = field(default=None, compare=False)

    @classmethod
    def for_maintenance(cls, server: DatabaseServer, database: str) -> Self:
        return cls(server.pk, server.revision, database, direct=True)

    @property
    def key(self) -> tuple[int, int, str]:
        return (self.server_id, self.server_revision, self.database)


class _PooledConnection(Protocol):
    """What `tenants.backend.base.DatabaseWrapper` adds to Django's wrapper. The backend imports this module."""

    in_atomic_block: bool
    noted_in: set[UUID]

    def release(self) -> None: ...


_entered: ContextVar[DatabaseTarget | None] = ContextVar("tenant_database_target", default=None)


def entered_target() -> DatabaseTarget | None:
    """Return the target that is entered, or None."""
    return _entered.get()


def current_target() -> DatabaseTarget:
    """Return the target that is entered. Raises NoActiveTenant outside `in_tenant()`."""
    target = _entered.get()
    if target is None:
        raise NoActiveTenant("A tenant model was used outside in_tenant(): the action must say which tenant it means.")
    return target


def take_noted() -> set[UUID]:
    """Return the tenants whose databases this thread has left after transactions that noted rows, once."""
    wrapper = cast(_PooledConnection, connections[TENANT_ALIAS])
    noted = wrapper.noted_in
    if noted:
        wrapper.noted_in = set()
    return noted


@contextmanager
def in_target(target: DatabaseTarget) -> Iterator[None]:
    """Enter a database. Used by `in_tenant` and by maintenance."""
    if _entered.get() == target:
        yield
        return
    wrapper = cast(_PooledConnection, connections[TENANT_ALIAS])
    if wrapper.in_atomic_block:
        raise TenantSwitchInTransaction("Another tenant was entered inside an open tenant transaction.")
    wrapper.release()
    token = _entered.set(target)
    try:
        yield
    finally:
        try:
            wrapper.release()
        finally:
            _entered.reset(token)
