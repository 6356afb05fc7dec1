"""How long a thread waits for an answer of the database server, seen from here.

The server's own limits (`statement_timeout`) help against slow statements and locks. A server that is stopped, or whose
machine has gone from the network without a word, keeps none of them: without a limit on this side each of a worker's
threads would in turn wait for ever.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from psycopg import Connection, OperationalError
from psycopg.pq import TransactionStatus

# A server that works and is only slow or locked stops at once when it is asked to; one that hangs does not hear it.
CANCEL_SECONDS: Final = 0.3


class _Timeouts(threading.local):
    # Commands and jobs wait as long as it takes: migrations, backups and exports may.
    seconds: float | None = None


_mine = _Timeouts()


def limit(seconds: float | None) -> None:
    """From now on this thread waits for a statement so long at most; None: as long as it takes."""
    _mine.seconds = seconds


@contextmanager
def no_timeout() -> Iterator[None]:
    """Wait as long as it takes, for what cannot be done in the time of a request."""
    before, _mine.seconds = _mine.seconds, None
    try:
        yield
    finally:
        _mine.seconds = before


class TimeoutConnection(Connection[Any]):
    """A connection that is given up when the server has not answered for as long as the thread waits.

    The statement then raises OperationalError, like that of a server that has gone; whether it was carried out is not
    known.
    """

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        seconds = _mine.seconds
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
