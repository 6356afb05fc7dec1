"""Calls that start together."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from threading import Barrier
from typing import Final, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.world import undo_after_test

T = TypeVar("T")
# How often a race is repeated: TEST_RACE_ROUNDS=200 for a thorough run, fewer in `.ci/run` on other servers.
ROUNDS: Final = int(os.environ.get("TEST_RACE_ROUNDS", "50"))
MOST_AT_ONCE = 128


class _Threads:
    """Threads that keep their connections between the rounds of a test, as those of a server do."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(MOST_AT_ONCE)
        self.connected: set[BaseDatabaseWrapper] = set()

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        start = Barrier(len(calls))

        def run(call: Callable[[], T]) -> T:
            # Connecting takes longer than the windows of most races.
            connection = connections["default"]
            connection.ensure_connection()
            self.connected.add(connection)
            start.wait()
            try:
                # Context variables of an earlier round are not visible to this one.
                return Context().run(call)
            except BaseException:
                connection.close()
                raise

        return [each.result() for each in [self.pool.submit(run, call) for call in calls]]

    def end(self) -> None:
        self.pool.shutdown()
        for connection in self.connected:
            connection.inc_thread_sharing()
            connection.close()


_threads: list[_Threads] = []


def run_concurrently(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Start the calls together, each in its own thread, and return their results in order."""
    if not _threads:
        _threads.append(_Threads())
        undo_after_test.append(lambda: _threads.pop().end())
    return _threads[0].run(calls)
