"""The bounded pool of raw connections to tenant databases, one for the whole process.

The budget holds over all tenants together: with thousands of databases, a pool per tenant overruns the servers'
max_connections (measured). The least recently used idle connection makes room for a new one;
when all are in use a request waits for `wait` seconds at most.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from psycopg.pq import TransactionStatus

from identity_platform.postgresql.base import is_stale
from tenants.backend.raw import TenantConnection as Raw
from tenants.errors import TenantConnectionsExhausted

Key = tuple[int, int, str]


class TenantConnectionPool:
    """Raw connections by tenant database; never more than `budget` open."""

    def __init__(self, *, budget: int, wait: float) -> None:
        self.budget = budget
        self.wait = wait
        self._forget_everything()
        # A forked child must not speak on its parent's sockets, nor close them politely on the server.
        os.register_at_fork(after_in_child=self._forget_everything)

    def _forget_everything(self) -> None:
        self._changed = threading.Condition()
        self._idle: OrderedDict[Key, list[Raw]] = OrderedDict()
        self._open = 0

    @property
    def open(self) -> int:
        """How many connections are open or being opened, idle ones included."""
        return self._open

    def take(self, key: Key, connect: Callable[[], Raw]) -> Raw:
        """An idle connection to `key`, or a new one from `connect()` when the budget has or can make room.

        Raises TenantConnectionsExhausted after `wait` seconds, and whatever `connect` raises.
        """
        deadline = time.monotonic() + self.wait
        closing: list[Raw] = []
        try:
            with self._changed:
                while True:
                    if (raw := self._idle_one(key, closing)) is not None:
                        return raw
                    if self._open < self.budget or self._make_room(closing):
                        self._open += 1
                        break
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        raise TenantConnectionsExhausted
        finally:
            for old in closing:
                old.close()
        try:
            return connect()
        except BaseException:
            self.discarded()
            raise

    def give_back(self, key: Key, raw: Raw) -> None:
        """Take a connection back; one that is broken or in doubt is closed."""
        at_rest = not raw.closed and raw.pgconn.transaction_status == TransactionStatus.IDLE and raw.autocommit
        if not at_rest or raw.leaves_state:
            raw.close()
            self.discarded()
            return
        with self._changed:
            self._idle.setdefault(key, []).append(raw)
            self._idle.move_to_end(key)
            self._changed.notify()

    def discarded(self) -> None:
        """One taken connection no longer exists."""
        with self._changed:
            self._open -= 1
            self._changed.notify()

    def close_idle(self, database: str | None = None) -> None:
        """Close idle connections, of one database or all: before it is dropped, moved or copied."""
        with self._changed:
            keys = [key for key in self._idle if database is None or key[2] == database]
            closing = [raw for key in keys for raw in self._idle.pop(key)]
            self._open -= len(closing)
            self._changed.notify_all()
        for raw in closing:
            raw.close()

    def _idle_one(self, key: Key, closing: list[Raw]) -> Raw | None:
        stack = self._idle.get(key)
        while stack:
            raw = stack.pop()
            if not stack:
                del self._idle[key]
            if not is_stale(raw):
                return raw
            self._open -= 1
            closing.append(raw)
        return None

    def _make_room(self, closing: list[Raw]) -> bool:
        if not self._idle:
            return False
        key, stack = next(iter(self._idle.items()))
        closing.append(stack.pop(0))
        if not stack:
            del self._idle[key]
        self._open -= 1
        return True
