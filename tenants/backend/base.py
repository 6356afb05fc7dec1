"""One alias, many databases: the wrapper's raw connection belongs to the tenant that is entered at the moment."""

from typing import Any

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from psycopg import Connection

from identity_platform.postgresql import base
from tenants import context, servers
from tenants.backend.pool import TenantConnectionPool
from tenants.errors import TenantSwitchInTransaction

POOL = TenantConnectionPool(budget=settings.TENANT_CONNECTION_BUDGET, wait=settings.TENANT_CONNECTION_WAIT_SECONDS)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's PostgreSQL wrapper whose connections come from the process-wide pool and go back there."""

    place: context.Place | None = None

    def connect(self) -> None:
        """Take a connection to the tenant that is entered. Connections in the pool are ready: no SET, no round trip."""
        place = context.current_place()
        self.in_atomic_block = False
        self.savepoint_ids = []
        self.atomic_blocks = []
        self.needs_rollback = False
        self.health_check_enabled = False
        self.health_check_done = True
        self.close_at = None
        self.closed_in_transaction = False
        self.errors_occurred = False
        self.isolation_level = IsolationLevel.READ_COMMITTED
        if place.direct:
            self.connection = self._open(place)
        else:
            self.connection = POOL.take(place.key, lambda: self._open(place))
        self.place = place
        self.autocommit = True
        self.run_on_commit = []

    def _open(self, place: context.Place) -> "Connection[Any]":
        params = self.get_connection_params()
        # One server's address, user and password must not mix with another's.
        for name in ("user", "password", "host", "port"):
            params.pop(name, None)
        params |= servers.parameters(place.server_id, place.server_revision, direct=place.direct)
        params["dbname"] = place.database
        raw: Connection[Any] = self.Database.connect(**params, autocommit=True)
        return raw

    def leave(self) -> None:
        """Give the connection back, at the end of `in_tenant()`."""
        if self.connection is None:
            return
        if self.in_atomic_block:
            raise TenantSwitchInTransaction("A tenant was left inside an open transaction.")
        raw, place = self.connection, self.place
        self.connection = self.place = None
        assert place is not None  # set together with the connection
        if place.direct:
            raw.close()
        else:
            POOL.give_back(place.key, raw)

    def _close(self) -> None:
        if self.connection is None:
            return
        place = self.place
        super()._close()  # type: ignore[misc]  # not in the stubs
        if place is not None and not place.direct:
            POOL.discarded()

    def close(self) -> None:
        """Close for good; a connection that is closed inside a transaction stays the wrapper's until that ends."""
        BaseDatabaseWrapper.close(self)
        if self.connection is None:
            self.place = None
