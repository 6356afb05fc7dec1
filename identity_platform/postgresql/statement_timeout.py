"""A client-side limit on how long a thread waits for the database server.

The server's own `statement_timeout` ends slow statements and waits for locks. A server that is frozen or unreachable does
not enforce it, and without a limit on this side every thread of a worker would wait forever.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Self, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from identity_platform.postgresql import hosts

Result = TypeVar("Result")

# A server that is only slow or locked cancels at once; a hung server does not respond.
CANCEL_SECONDS: Final = 0.3


class _Limit(threading.local):
    # None: no limit. Commands and jobs (migrations, backups, exports) have none.
    seconds: float | None = None


_limit = _Limit()


def limit(seconds: float | None) -> None:
    """Set how long this thread waits for a statement; None for no limit."""
    _limit.seconds = seconds


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Let this thread wait so long for a statement inside the block; None for no limit."""
    before, _limit.seconds = _limit.seconds, seconds
    try:
        yield
    finally:
        _limit.seconds = before


def no_timeout() -> AbstractContextManager[None]:
    """Wait without a limit, for work that takes longer than a request may."""
    return limited(None)


def is_limited() -> bool:
    """Whether this thread serves a request."""
    return _limit.seconds is not None


class TimeoutConnection(Connection[object]):
    """A connection that closes itself when the server does not respond within the thread's limit.

    The statement then raises OperationalError. Whether the server has executed it is not known.
    """

    # All hosts of the server where it has several, else empty, and the one of this connection.
    places: tuple[hosts.HostAndPort, ...] = ()
    connected_host: hosts.HostAndPort = ("", "")
    # Whether the server crashed, hung or is gone from the network, as opposed to one that ended this connection.
    unreachable: bool = False
    # Whether the thread's limit is used up.
    hung: bool = False

    @classmethod
    def connect(cls, conninfo: str = "", **parameters: Any) -> Self:
        """Return a new connection, to the primary where the parameters name several hosts."""
        places = hosts.hosts_and_ports(parameters)
        if len(places) < 2:
            return super().connect(conninfo, **parameters)
        parameters |= hosts.in_order(places)
        try:
            raw = super().connect(conninfo, **parameters)
        except OperationalError:
            # None is the primary yet, or the first was waited for in vain: the next attempt begins with another.
            hosts.lost(places, hosts.hosts_and_ports(parameters)[0])
            raise
        raw.places, raw.connected_host = places, (raw.info.host, str(raw.info.port))
        hosts.remember_primary(places, raw.connected_host)
        return raw

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        seconds = _limit.seconds
        limited = seconds is not None and timeout is None
        try:
            return super().wait(gen, interval, seconds if limited else timeout)
        except OperationalError as problem:
            # A server that ends a connection says why.
            self.unreachable = self.closed and problem.sqlstate is None
            # An error of the server's own has left the connection at rest or in a failed transaction.
            if limited and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self._give_up()
            if self.unreachable and self.places:
                hosts.lost(self.places, self.connected_host)
            raise

    def _give_up(self) -> None:
        self.hung = True
        try:
            self.cancel_safe(timeout=CANCEL_SECONDS)
        except OperationalError:
            self.unreachable = True
        self.close()
