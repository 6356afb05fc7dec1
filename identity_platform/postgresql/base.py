"""The backend of the global database, and the ground on which `tenants.backend` stands."""

import datetime
import select
from functools import cache
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property
from psycopg import Connection, Cursor, Error, adapters
from psycopg.abc import AdaptContext, Params
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.errors import FeatureNotSupported
from psycopg.pq import Format, TransactionStatus

from identity_platform.postgresql.statement_timeout import TimeoutConnection

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


class PlacedErrors(DatabaseErrorWrapper):
    """Django's translation of the driver's errors, which also keeps where they come from, for the log."""

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            return
        if isinstance(problem, Error):
            problem.place = self.wrapper.named()  # type: ignore[attr-defined]  # read by api.handlers
        super().__exit__(kind, problem, trace)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper; the meaning of "usable" is cheaper, its cursors outlive a change of a column's type, its
    connections are given up when the server hangs, and its errors say of which database they are."""

    @cached_property
    def wrap_database_errors(self) -> PlacedErrors:
        return PlacedErrors(self)

    def named(self) -> tuple[str | None, UUID | None]:
        """The names of server and tenant; no tenant means the global database."""
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

    def is_usable(self) -> bool:
        return self.connection is not None and not is_stale(self.connection)
