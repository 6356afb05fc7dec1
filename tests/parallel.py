"""Calls that start together."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls that start at the same moment, each in a thread of its own."""
    start = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        start.wait()
        try:
            return call()
        finally:
            # Threads of a test end; a server's keep their connections.
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
