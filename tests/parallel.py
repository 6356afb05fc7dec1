"""Calls that start together."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Final, TypeVar

from django.db import connections

T = TypeVar("T")
# How often a race is repeated: TEST_RACE_ROUNDS=200 for a thorough run, fewer in `.ci/run` on other servers.
ROUNDS: Final = int(os.environ.get("TEST_RACE_ROUNDS", "50"))


def run_concurrently(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Start the calls together, each in its own thread, and return their results in order."""
    start = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        # Connecting takes longer than the windows of most races.
        connections["default"].ensure_connection()
        start.wait()
        try:
            return call()
        finally:
            # A thread of a server would keep its connections; these threads end.
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
