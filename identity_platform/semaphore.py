"""Bound how many slow operations run at once in a process, so that they never occupy all threads of the server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings

from identity_platform.api.errors import ApiError


class Semaphore:
    """Let at most `number` operations run at once in this process. Raises what `full` returns when all are taken."""

    def __init__(self, number: int, full: Callable[[], ApiError]) -> None:
        self.number = number
        self._free = threading.BoundedSemaphore(number)
        self._full = full

    @classmethod
    def for_slow_requests(cls, full: Callable[[], ApiError]) -> "Semaphore":
        """For requests that wait long for another server: they may use a quarter of the threads."""
        return cls(max(1, settings.WEB_THREADS // 4), full)

    @contextmanager
    def acquire(self, *, wait: float = 0.0) -> Iterator[None]:
        """Run one operation, after waiting at most `wait` seconds for another one to end."""
        if not self._free.acquire(timeout=wait):
            raise self._full()
        try:
            yield
        finally:
            self._free.release()
