"""The backend of the global database, and the ground on which `tenants.backend` stands."""

import select

from django.db.backends.postgresql import base
from psycopg import Connection
from psycopg.pq import TransactionStatus


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


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper; only the meaning of "usable" is cheaper."""

    def is_usable(self) -> bool:
        return self.connection is not None and not is_stale(self.connection)
