"""The bounded pool of raw connections to tenant databases, one for the whole process.

The budget covers all tenants together: with thousands of databases, a pool per tenant would exceed the servers'
max_connections. The least recently used idle connection is closed for a new one; if all are in use, a request waits for at
most `wait` seconds.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from prometheus_client import Counter, Gauge
from psycopg.pq import TransactionStatus

from identity_platform.postgresql.base import is_stale
from tenants.backend.raw import TenantConnection as Raw
from tenants.errors import TenantConnectionsExhausted

Key = tuple[int, int, str]

OPEN = Gauge("identity_tenant_connections", "Open connections to tenant databases.", multiprocess_mode="livesum")
BUDGET = Gauge("identity_tenant_connection_budget", "How many may be open.", multiprocess_mode="livesum")
OPENED = Counter("identity_tenant_connections_opened", "Connections opened to tenant databases.")
WAITS = Counter("identity_tenant_connection_waits", "Requests that waited because all connections were in use.")
EXHAUSTED = Counter("identity_tenant_connections_exhausted", "Requests rejected after such a wait.")


class TenantConnectionPool:
    """Raw connections by tenant database, at most `budget` of them open."""

    def __init__(self, *, budget: int, wait: float) -> None:
        self.budget = budget
        self.wait = wait
        self._reset()
        # A forked child must neither use nor close its parent's connections.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._idle: OrderedDict[Key, list[Raw]] = OrderedDict()
        self._open = 0

    @property
    def open(self) -> int:
        """The number of connections that are open or being opened, including idle ones."""
        return self._open

    def take(self, key: Key, connect: Callable[[], Raw]) -> Raw:
        """Return an idle connection to `key`, or a new one from `connect()` within the budget.

        Raises TenantConnectionsExhausted after `wait` seconds, and the errors of `connect`.
        """
        deadline = time.monotonic() + self.wait
        closing: list[Raw] = []
        waited = False
        try:
            with self._changed:
                while True:
                    if (raw := self._idle_one(key, closing)) is not None:
                        return raw
                    if self._open < self.budget or self._make_room(closing):
                        self._count(1)
                        break
                    if not waited:
                        waited = True
                        WAITS.inc()
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        EXHAUSTED.inc()
                        raise TenantConnectionsExhausted
        finally:
            for old in closing:
                old.close()
        OPENED.inc()
        BUDGET.set(self.budget)
        try:
            return connect()
        except BaseException:
            self.discarded()
            raise

    def give_back(self, key: Key, raw: Raw) -> None:
        """Return a connection to the pool. Closes it if it is broken or has session state."""
        reusable = not raw.closed and raw.pgconn.transaction_status == TransactionStatus.IDLE and raw.autocommit
        if not reusable or raw.leaves_state:
            raw.close()
            self.discarded()
            return
        with self._changed:
            self._idle.setdefault(key, []).append(raw)
            self._idle.move_to_end(key)
            self._changed.notify()

    def discarded(self) -> None:
        """Count a taken connection as closed."""
        with self._changed:
            self._count(-1)
            self._changed.notify()

    def close_idle(self, database: str | None = None) -> None:
        """Close idle connections of one database, before it is dropped, or of all."""
        self._close(lambda key: database is None or key[2] == database)

    def close_server(self, key: Key) -> None:
        """Close idle connections to all databases of that key's server: each would be waited for in vain."""
        self._close(lambda other: other[:2] == key[:2])

    def _close(self, concerned: Callable[[Key], bool]) -> None:
        with self._changed:
            keys = [key for key in self._idle if concerned(key)]
            closing = [raw for key in keys for raw in self._idle.pop(key)]
            self._count(-len(closing))
            self._changed.notify_all()
        for raw in closing:
            raw.close()

    def _count(self, change: int) -> None:
        self._open += change
        OPEN.set(self._open)

    def _idle_one(self, key: Key, closing: list[Raw]) -> Raw | None:
        stack = self._idle.get(key)
        while stack:
            raw = stack.pop()
            if not stack:
                del self._idle[key]
            if not is_stale(raw):
                return raw
            self._count(-1)
            closing.append(raw)
        return None

    def _make_room(self, closing: list[Raw]) -> bool:
        if not self._idle:
            return False
        key, stack = next(iter(self._idle.items()))
        closing.append(stack.pop(0))
        if not stack:
            del self._idle[key]
        self._count(-1)
        return True
