"""Calls that start together."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Final, TypeVar

from django.db import connections

T = TypeVar("T")
# How often a race is run. The run of `.ci/run` on other servers repeats the tests and takes fewer rounds.
ROUNDS: Final = int(os.environ.get("TEST_RACE_ROUNDS", "200"))


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
