"""One alias, many databases: the wrapper's raw connection belongs to the tenant that is entered at the moment."""

from uuid import UUID

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import IsolationLevel

from identity_platform.postgresql import base
from tenants import context, servers
from tenants.backend.pool import TenantConnectionPool
from tenants.backend.raw import BoundByClient, BoundByServer, TenantConnection
from tenants.errors import NoActiveTenant, TenantSwitchInTransaction

# What connections to all servers share; everything else of DATABASE_URL is the main server's alone.
SHARED_PARAMETERS = frozenset(
    {"client_encoding", "context", "prepare_threshold", "connect_timeout", "tcp_user_timeout", "application_name"}
)
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
        if place.direct:  # maintenance: one connection for one job, not of the budget
            self.connection = self._open(place)
        else:
            self.connection = POOL.take(place.key, lambda: self._open(place))
        self.place = place
        self.autocommit = True
        self.run_on_commit = []

    def ensure_connection(self) -> None:
        """Refuse to go on with the connection of a tenant that is not the one entered; NoActiveTenant."""
        if self.connection is not None and self.place is not context.entered():
            raise NoActiveTenant("The open connection is another tenant's: it was not given back.")
        super().ensure_connection()

    def named(self) -> tuple[str | None, UUID | None]:
        """The names of server and tenant."""
        place = context.entered()
        if place is None:
            return None, None
        return servers.name_of(place.server_id), place.tenant.tenant_id if place.tenant else None

    def _open(self, place: context.Place) -> TenantConnection:
        # One server's address, password or TLS settings must not mix with another's.
        params = {name: value for name, value in self.get_connection_params().items() if name in SHARED_PARAMETERS}
        params |= servers.parameters(place.server_id, place.server_revision, direct=place.direct)
        by_server = self.settings_dict["OPTIONS"].get("server_side_binding") is True
        params |= {"dbname": place.database, "cursor_factory": BoundByServer if by_server else BoundByClient}
        return TenantConnection.connect(**params, autocommit=True)

    def leave(self) -> None:
        """Give the connection back, at the end of `in_tenant()`."""
        if self.connection is None:
            return
        if self.in_atomic_block:
            # Closed, so that the server undoes it and nothing can be added to it under another tenant's name.
            self.close()
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
