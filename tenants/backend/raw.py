"""A raw connection that knows whether a statement may have left something behind in its session."""

import re
from typing import Any, Self

from psycopg import ClientCursor, Connection

from identity_platform.postgresql import base

# Statements that outlive their transaction. They are not used here (a pooler in transaction mode would lose them, or
# hand them to somebody else); a connection on which one appears all the same does not go back into the pool. Looking
# costs well under a microsecond; asking the server to DISCARD ALL would be a round trip each time a tenant is left.
_LEAVES_STATE = re.compile(
    r"\s*(?:SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b)|CREATE\s+(?:LOCAL\s+|GLOBAL\s+)?TEMP|LISTEN\b|PREPARE\b|LOAD\b"
    r"|DECLARE\b|SELECT\s+pg_(?:try_)?advisory_lock)",
    re.IGNORECASE,
)


class TenantConnection(Connection[Any]):
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


class BoundByServer(base.BoundByServer):
    """The cursor of Django's option `server_side_binding`; it marks its connection."""

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        _look(self.connection, query)
        return super().execute(query, params, **how)
