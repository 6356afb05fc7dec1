"""A raw connection that knows whether a statement may have left something behind in its session."""

import re
from typing import Any, Self

from psycopg import ClientCursor

from identity_platform.postgresql import base
from identity_platform.postgresql.statement_timeout import TimeoutConnection

# Statements that outlive their transaction. They are not used here (a pooler in transaction mode would lose them, or
# hand them to somebody else); a connection on which one appears all the same does not go back into the pool. Looking
# costs well under a microsecond; asking the server to DISCARD ALL would be a round trip each time a tenant is left.
_LEAVES_STATE = re.compile(
    r"\s*(?:SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b)"
    r"|CREATE\s+(?:LOCAL\s+|GLOBAL\s+)?TEMP(?!.*\bON\s+COMMIT\s+DROP\b)|LISTEN\b|PREPARE\b|LOAD\b"
    r"|DECLARE\b|SELECT\s+pg_(?:try_)?advisory_lock)",
    re.IGNORECASE | re.DOTALL,
)


class TenantConnection(TimeoutConnection):
    """A psycopg connection with a mark."""

    leaves_state: bool = False


def _look(connection: Any, query: Any) -> None:
    if isinstance(query, str) and _LEAVES_STATE.match(query):
        connection.leaves_state = True


class BoundByClient(ClientCursor[Any]):
    """The cursor that Django uses by default (parameters are bound in the client); it marks its connection."""

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        _look(self.connection, query)
        return super().execute(query, params, **how)


# How often a statement has run in this process, on whatever connection, before it is worth a plan that is kept.
REPEATED = 50
# More texts than that are not repeated statements but lists of values written out.
_MOST_KNOWN = 2_000
_runs: dict[str, int] = {}


def _is_repeated(query: Any) -> bool:
    if not isinstance(query, str):
        return False
    runs = _runs.get(query, 0)
    if runs < REPEATED:
        if runs == 0 and len(_runs) >= _MOST_KNOWN:
            _runs.clear()
        _runs[query] = runs + 1  # threads may lose a count to each other: then it takes one run more
        return False
    return True


class BoundByServer(base.BoundByServer):
    """The cursor of Django's option `server_side_binding`; it marks its connection.

    A statement that the process repeats is prepared at its first use on a new connection. With many tenants each
    connection is used rarely: counted apart, the driver would have every statement planned five times on every one of them.
    """

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        _look(self.connection, query)
        # Without parameters it may be several statements in one text, which cannot be prepared.
        if params and _is_repeated(query):
            how.setdefault("prepare", True)
        return super().execute(query, params, **how)
