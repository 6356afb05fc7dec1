"""A client-side limit on how long a thread waits for the database server.

The server's own `statement_timeout` ends slow statements and waits for locks. A server that is frozen or unreachable does
not enforce it, and without a limit on this side every thread of a worker would wait forever.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

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
def no_timeout() -> Iterator[None]:
    """Wait without a limit, for work that takes longer than a request may."""
    before, _limit.seconds = _limit.seconds, None
    try:
        yield
    finally:
        _limit.seconds = before


class TimeoutConnection(Connection[object]):
    """A connection that closes itself when the server does not respond within the thread's limit.

    The statement then raises OperationalError. Whether the server has executed it is not known.
    """

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        seconds = _limit.seconds
        if seconds is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, seconds)
        except OperationalError:
            # An error of the server's own has left the connection at rest or in a failed transaction.
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                with suppress(OperationalError):
                    self.cancel_safe(timeout=CANCEL_SECONDS)
                self.close()
            raise
