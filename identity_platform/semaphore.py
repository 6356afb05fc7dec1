"""Bound how many slow operations run at once in a process, so that they never occupy all threads of the server."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings
from prometheus_client import Counter, Gauge

from identity_platform.api.errors import ApiError
from identity_platform.tracing import span

RUNNING = Gauge(
    "identity_bounded_operations",
    "Operations of bounded number that run now, by kind.",
    ["kind"],
    multiprocess_mode="livesum",
)
REJECTED = Counter("identity_bounded_operations_rejected", "Those rejected because too many were running.", ["kind"])


class _Queue:
    """A semaphore that serves in order of arrival.

    Those of `threading` let a thread that comes at the moment of a release overtake all that wait, until one of them has
    waited too long.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._lock = threading.Lock()
        self._turns: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take a place. Return False if none is free within `timeout` seconds."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if timeout <= 0:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._turns.append(turn)
        if turn.acquire(timeout=timeout):
            return True
        with self._lock:
            if turn not in self._turns:
                return True  # a place was handed over at the last moment
            self._turns.remove(turn)
            return False

    def release(self) -> None:
        """Hand the place to the thread that waits longest, or leave it free."""
        with self._lock:
            if self._turns:
                self._turns.popleft().release()
            else:
                self._free += 1


class Semaphore:
    """Let at most `number` operations run at once in this process. Raises what `full` returns when all are taken.

    `kind` names them in metrics and traces.
    """

    def __init__(self, kind: str, number: int, full: Callable[[], ApiError]) -> None:
        self.number = number
        self._kind = kind
        self._running, self._rejected = RUNNING.labels(kind), REJECTED.labels(kind)
        self._free = _Queue(number)
        self._full = full

    @classmethod
    def for_slow_requests(cls, kind: str, full: Callable[[], ApiError]) -> "Semaphore":
        """For requests that wait long for another server: they may use a quarter of the threads."""
        return cls(kind, max(1, settings.WEB_THREADS // 4), full)

    @contextmanager
    def acquire(self, *, wait: float = 0.0) -> Iterator[None]:
        """Run one operation, after waiting at most `wait` seconds for another one to end."""
        with span(self._kind):
            if not self._free.acquire(timeout=wait):
                self._rejected.inc()
                raise self._full()
            self._running.inc()
            try:
                yield
            finally:
                self._running.dec()
                self._free.release()
