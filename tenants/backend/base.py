"""One alias, many databases: the connection belongs to the tenant that is currently entered."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from psycopg import OperationalError

from identity_platform.postgresql import base
from tenants.backend.leases import Leases
from tenants.backend.pool import POOL
from tenants.backend.raw import BoundByClient, BoundByServer, TenantConnection
from tenants.database_servers import fences, marks, servers
from tenants.entering.target import DatabaseTarget, current_target, entered_target
from tenants.errors import NoActiveTenant, TenantSwitchInTransaction

# Connection parameters for all servers. Every other option of DATABASE_URL is for the main server only.
SHARED_PARAMETERS = frozenset(
    {"client_encoding", "context", "prepare_threshold", "connect_timeout", "tcp_user_timeout", "application_name"}
)
LEASES = Leases(POOL, settings.CONNECTION_LEASE_SECONDS)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's PostgreSQL wrapper with connections from the process-wide pool."""

    connection: TenantConnection | None
    target: DatabaseTarget | None = None
    # Tenants whose triggers have noted rows for the global database, until `in_tenant` sends `rows_noted`.
    noted_in: set[UUID]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.noted_in = set()

    def connect(self) -> None:
        """Take a connection to the entered tenant. Pooled connections need no SET and no round trip."""
        target = current_target()
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
        if target.direct:  # maintenance: one connection for one job, outside the budget
            self.connection = self._open(target)
        else:
            self.connection = POOL.take(target.key, lambda: self._open(target))
        self.target = target
        self.autocommit = True
        self.run_on_commit = []

    def ensure_connection(self) -> None:
        """Raise NoActiveTenant if the open connection belongs to another tenant than the entered one."""
        if self.connection is not None and self.target is not entered_target():
            raise NoActiveTenant("The open connection belongs to another tenant: it was not released.")
        super().ensure_connection()

    def server_and_tenant(self) -> tuple[str | None, UUID | None]:
        """Return the server's name and the tenant's id."""
        target = entered_target()
        return (servers.name_of(target.server_id), target.tenant_id) if target else (None, None)

    def _open(self, target: DatabaseTarget) -> TenantConnection:
        # One server's address, password or TLS settings must not mix with another's.
        params: servers.Parameters = {
            name: value for name, value in self.get_connection_params().items() if name in SHARED_PARAMETERS
        }
        params |= servers.parameters(target.server_id, target.server_revision, direct=target.direct)
        by_server = self.settings_dict["OPTIONS"].get("server_side_binding") is True
        params |= {"dbname": target.database, "cursor_factory": BoundByServer if by_server else BoundByClient}
        fences.require()
        raw = TenantConnection.connect(**params, autocommit=True)
        raw.watch_noted_rows()
        if target.tenant_id is not None:
            # Once per connection: requests that find one in the pool pay nothing.
            try:
                marks.check(raw, target.server_id, target.database, target.tenant_id)
            except BaseException:
                raw.close()
                raise
        return raw

    def connect_again(self) -> TenantConnection:
        target, lost = self.target, self.connection
        assert target is not None  # set together with the connection
        self._keep_noted()
        if target.direct or (lost is not None and lost.leaves_state):
            raise OperationalError("A connection with session state is not replaced.")
        if lost is not None and lost.unreachable:
            POOL.close_server(target.key)
        # It takes the place of the lost one in the budget.
        return self._open(target)

    def release(self) -> None:
        """Return the connection to the pool, at the end of `in_tenant()`."""
        if self.connection is None:
            return
        if self.in_atomic_block:
            # Closing rolls back, and keeps later statements out of another tenant's transaction.
            self.close()
            raise TenantSwitchInTransaction("A tenant was left inside an open transaction.")
        self._keep_noted()
        raw, target = self.connection, self.target
        self.connection = self.target = None
        assert target is not None  # set together with the connection
        if target.direct:
            raw.close()
        else:
            POOL.give_back(target.key, raw)
            if raw.unreachable:
                POOL.close_server(target.key)

    def _keep_noted(self) -> None:
        """Keep that triggers have noted rows, also if the reply to the commit was lost."""
        raw, target = self.connection, self.target
        if raw is not None and raw.has_noted_rows:
            raw.has_noted_rows = False
            if target is not None and target.tenant_id is not None:
                self.noted_in.add(target.tenant_id)

    def _close(self) -> None:
        if self.connection is None:
            return
        self._keep_noted()
        target = self.target
        super()._close()  # type: ignore[misc]  # not in the stubs
        if target is not None and not target.direct:
            POOL.discarded(target.key)

    def close(self) -> None:
        """Close the connection. Inside a transaction the wrapper keeps it until the transaction ends."""
        BaseDatabaseWrapper.close(self)
        if self.connection is None:
            self.target = None
