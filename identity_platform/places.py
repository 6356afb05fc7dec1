"""Places for what takes long: so many at the same moment, so that it never holds all threads of the server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings

from identity_platform.api.errors import ApiError


class Places:
    """So many places in this process; whoever finds none is rejected with what `full` makes."""

    def __init__(self, number: int, full: Callable[[], ApiError]) -> None:
        self.number = number
        self._free = threading.BoundedSemaphore(number)
        self._full = full

    @classmethod
    def for_slow_requests(cls, full: Callable[[], ApiError]) -> "Places":
        """For requests that wait long for somebody else: a quarter of the threads, so that the others stay free."""
        return cls(max(1, settings.WEB_THREADS // 4), full)

    @contextmanager
    def one(self, *, wait: float = 0.0) -> Iterator[None]:
        """Hold a place, waited for at most so many seconds. Raises what `full` makes."""
        if not self._free.acquire(timeout=wait):
            raise self._full()
        try:
            yield
        finally:
            self._free.release()
