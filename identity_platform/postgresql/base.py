"""The backend of the global database, and the base of that of tenants' databases."""

import datetime
import re
import select
from functools import cache
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from django.db import OperationalError
from django.db.backends import utils
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property
from psycopg import Connection, Cursor, Error, adapters
from psycopg import OperationalError as DriverOperationalError
from psycopg.abc import AdaptContext, Params
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.errors import FeatureNotSupported, ReadOnlySqlTransaction
from psycopg.pq import Format, TransactionStatus

from identity_platform.postgresql.forbidden_writes import check_statement
from identity_platform.postgresql.statement_timeout import TimeoutConnection, is_limited

# The server of DATABASE_URL.
MAIN_SERVER: Final = "main"
_loader = adapters.get_loader(adapters.types["timestamptz"].oid, Format.TEXT)
assert _loader is not None
_DRIVERS_LOADER: Final = _loader


def is_stale(raw: "Connection[object]") -> bool:
    """Whether a resting connection has been closed by the server, seen without asking the server.

    A connection at rest has nothing to read. When its socket is readable the server has said goodbye (restart,
    termination, failover), so the next statement would fail. The check is one poll(2), about 2 microseconds, where
    Django's own health check is a round trip at every request.
    """
    if raw.closed or raw.pgconn.transaction_status == TransactionStatus.UNKNOWN:
        return True
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


class MomentLoader(Loader):
    """Reads a time with its zone by the driver's own loader, in C. Django's is in Python, and a refresh reads up to ten."""

    # Django's cursors replace a loader that does not have their zone.
    timezone = datetime.UTC

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        # The driver looks `load` up once for each result, so that its values are read without a call of ours.
        self.load = _DRIVERS_LOADER(oid, context).load  # type: ignore[method-assign]  # an attribute, for speed

    def load(self, data: Buffer) -> object:
        """Return the time, in the zone of the connection, which is UTC."""
        raise AssertionError("The instance has the driver's loader.")


@cache
def _with_moments(template: AdaptersMap) -> AdaptersMap:
    changed = AdaptersMap(template)
    changed.register_loader("timestamptz", MomentLoader)
    return changed


class BoundByServer(Cursor[object]):
    """The cursor of Django's option `server_side_binding`, under which the server plans a repeated statement once.

    Planning costs more than most of our statements themselves (docs/performance.md).
    """

    def execute(
        self, query: Any, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        try:
            return super().execute(query, params, prepare=prepare, binary=binary)
        except FeatureNotSupported:
            # A migration has changed a column's type since then ("cached plan must not change result type"). Inside a
            # transaction its rollback makes psycopg forget the plans.
            if self.connection.info.transaction_status != TransactionStatus.IDLE:
                raise
            super().execute("DEALLOCATE ALL")
            return super().execute(query, params, prepare=prepare, binary=binary)


class LocatedErrorWrapper(DatabaseErrorWrapper):
    """Django's translation of the driver's errors, which also keeps where they come from, for the log."""

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            return
        if isinstance(problem, ReadOnlySqlTransaction):
            self.wrapper.leave_standby()  # type: ignore[attr-defined]  # DatabaseWrapper's, below
        if isinstance(problem, Error):
            problem.server_and_tenant = self.wrapper.server_and_tenant()  # type: ignore[attr-defined]  # read by api.handlers
        super().__exit__(kind, problem, trace)


# What a SELECT may call that changes something: functions of the job queue, of counters, sequences, locks, large objects.
_CHANGES = re.compile(
    r"\b(?:procrastinate_\w+|userflow_count\w+|tenants_tell\w+|nextval|setval|set_config|pg_\w*advisory\w*|lo_\w+)\s*\(",
    re.IGNORECASE,
)


def is_read(statement: object) -> bool:
    """Whether executing the statement a second time changes nothing more."""
    return isinstance(statement, str) and statement.lstrip()[:6].upper() == "SELECT" and not _CHANGES.search(statement)


class CursorWrapper(utils.CursorWrapper):
    """Django's cursor, which executes a statement again on a new connection when the server was lost under it.

    It does so within requests only, and only where nothing can happen twice: for the first statement of a transaction,
    which has been rolled back with its connection, and for a read outside a transaction.
    """

    db: "DatabaseWrapper"

    def execute(self, sql: Any, params: Any = None) -> Any:
        check_statement(self.db.alias, sql)
        raw = self.db.connection
        resting = raw is not None and raw.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            return super().execute(sql, params)
        except OperationalError:
            repeatable = resting and (self.db.in_atomic_block or is_read(sql))
            if not repeatable or not self.db.reopen():
                raise
        self.cursor = self.db.create_cursor()
        return super().execute(sql, params)

    def executemany(self, sql: Any, param_list: Any) -> Any:
        check_statement(self.db.alias, sql)
        return super().executemany(sql, param_list)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper; the meaning of "usable" is cheaper, its cursors outlive a change of a column's type and the loss of a
    server, its connections are given up when the server hangs, and its errors say of which database they are."""

    connection: TimeoutConnection | None

    @cached_property
    def wrap_database_errors(self) -> LocatedErrorWrapper:
        return LocatedErrorWrapper(self)

    def server_and_tenant(self) -> tuple[str | None, UUID | None]:
        """Return the names of server and tenant; no tenant means the global database."""
        return MAIN_SERVER, None

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        params["context"] = _with_moments(params["context"])
        if self.settings_dict["OPTIONS"].get("server_side_binding") is True:
            params["cursor_factory"] = BoundByServer
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> TimeoutConnection:
        # As Django's own without its options `isolation_level` and `pool`, which are not used here.
        self.isolation_level = IsolationLevel.READ_COMMITTED
        return TimeoutConnection.connect(**conn_params)

    def make_cursor(self, cursor: Any) -> CursorWrapper:
        return CursorWrapper(cursor, self)

    def reopen(self) -> bool:
        """Replace a connection that was lost during a request, in the same state. False if it cannot be.

        One that hung is replaced only where there is another host: the time of the request is over.
        """
        lost = self.connection
        if lost is None or not lost.closed or not is_limited() or (lost.hung and not lost.places):
            return False
        try:
            raw = self.connect_again()
        except DriverOperationalError:
            return False
        raw.set_autocommit(lost.autocommit)
        self.connection = raw
        return True

    def connect_again(self) -> TimeoutConnection:
        """Return another connection to the same database, in autocommit."""
        raw = self.get_new_connection(self.get_connection_params() | {"autocommit": True})
        self._configure_connection(raw)  # type: ignore[attr-defined]  # not in the stubs
        return raw

    def leave_standby(self) -> None:
        """Close the connection if the server is a standby: the next one may reach the primary."""
        if self.connection is not None and self.connection.pgconn.parameter_status(b"in_hot_standby") == b"on":
            self.connection.close()

    def is_usable(self) -> bool:
        return self.connection is not None and not is_stale(self.connection)
