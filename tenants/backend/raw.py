"""A raw connection that tracks whether a statement may have left session state."""

import re
from functools import partial
from typing import Any, Final, Self
from weakref import ref

from psycopg import ClientCursor
from psycopg.abc import Params
from psycopg.errors import Diagnostic
from psycopg.rows import TupleRow

from identity_platform.postgresql import base
from identity_platform.postgresql.statement_timeout import TimeoutConnection

# Statements whose effect outlives the transaction. This project does not use them, as a pooler in transaction mode would
# lose or leak their state. A connection that ran one is not pooled again. The check takes under a microsecond; DISCARD ALL
# would be a round trip each time a tenant is exited.
_LEAVES_STATE = re.compile(
    r"\s*(?:SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b)"
    r"|CREATE\s+(?:LOCAL\s+|GLOBAL\s+)?TEMP(?!.*\bON\s+COMMIT\s+DROP\b)|LISTEN\b|PREPARE\b|LOAD\b"
    r"|DECLARE\b|SELECT\s+pg_(?:try_)?advisory_lock)",
    re.IGNORECASE | re.DOTALL,
)


# What triggers tell, once in a transaction that has noted rows for the global database (`tenants.journals.deliveries`).
ROWS_NOTED: Final = "identity: revocation noted"


class TenantConnection(TimeoutConnection):
    """A psycopg connection that knows whether it has session state."""

    leaves_state: bool = False
    # When it was given back to the pool (`time.monotonic()`).
    idle_since: float = 0.0
    # Whether triggers have noted rows since it was taken from the pool (`tenants.journals.deliveries`).
    has_noted_rows: bool = False

    def watch_noted_rows(self) -> None:
        """Take the message of the triggers from now on."""
        # A weak reference, so that a connection that is lost is closed at once.
        self.add_notice_handler(partial(_see_noted_rows, ref(self)))


def _see_noted_rows(connection: "ref[TenantConnection]", message: Diagnostic) -> None:
    if message.message_primary == ROWS_NOTED and (raw := connection()) is not None:
        raw.has_noted_rows = True


def _track(connection: object, query: object) -> None:
    if isinstance(connection, TenantConnection) and isinstance(query, str) and _LEAVES_STATE.match(query):
        connection.leaves_state = True


class BoundByClient(ClientCursor[TupleRow]):
    """Django's default cursor, which binds parameters in the client. Tracks session state."""

    def execute(
        self, query: Any, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        _track(self.connection, query)
        return super().execute(query, params, prepare=prepare, binary=binary)


# The end of a statement that is planned each time, because its best plan depends on its values.
PLANNED_EACH_TIME: Final = " /* planned each time */"
# How often a statement runs in this process, on any connection, before it is prepared.
REPEATED = 50
# A limit against texts that never repeat, such as lists of values.
_MOST_KNOWN = 2_000
_runs: dict[str, int] = {}


def _is_repeated(query: object) -> bool:
    if not isinstance(query, str):
        return False
    runs = _runs.get(query, 0)
    if runs < REPEATED:
        if runs == 0 and len(_runs) >= _MOST_KNOWN:
            _runs.clear()
        _runs[query] = runs + 1  # accepted race: threads may lose a count
        return False
    return True


class BoundByServer(base.BoundByServer):
    """The cursor of Django's option `server_side_binding`. Tracks session state.

    A statement that the process repeats is prepared at its first use on a new connection. The driver alone would count per
    connection, and with many tenants plan every statement five times on each.
    """

    def execute(
        self, query: Any, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        _track(self.connection, query)
        # A text without parameters may contain several statements, which cannot be prepared.
        if prepare is None and params:
            if isinstance(query, str) and query.endswith(PLANNED_EACH_TIME):
                prepare = False
            elif _is_repeated(query):
                prepare = True
        return super().execute(query, params, prepare=prepare, binary=binary)
