"""The bounded pool of raw connections to tenant databases, one for the whole process.

The budget covers all tenants together: with thousands of databases, a pool per tenant would exceed the servers'
max_connections. The least recently used idle connection is closed for a new one; if all are in use, a request waits for at
most `wait` seconds. A process that serves requests opens only what it has leased of a server (`tenants.backend.leases`). To a
server whose connections are not leased it opens at most `base`.
"""

import math
import os
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

import structlog
from django.conf import settings
from prometheus_client import Counter, Gauge
from psycopg.pq import TransactionStatus

from identity_platform.postgresql.base import is_stale
from tenants.backend.raw import TenantConnection as Raw
from tenants.backend.stuck import Key, StuckDatabases
from tenants.database_servers import servers
from tenants.errors import DatabaseServerFull, TenantConnectionsExhausted

OPEN = Gauge("identity_tenant_connections", "Open connections to tenant databases.", multiprocess_mode="livesum")
BUDGET = Gauge("identity_tenant_connection_budget", "How many may be open.", multiprocess_mode="livesum")
OPENED = Counter("identity_tenant_connections_opened", "Connections opened to tenant databases.")
WAITS = Counter("identity_tenant_connection_waits", "Requests that waited because all connections were in use.")
EXHAUSTED = Counter("identity_tenant_connections_exhausted", "Requests rejected after such a wait.")

log = structlog.get_logger("identity.tenants")

REFUSED = Counter(
    "identity_server_connections_refused", "Requests rejected because no connection could be leased.", ["server"]
)
# How long a request waits before it asks again for a connection that another process may have handed back.
ASK_AGAIN_SECONDS: Final = 0.5
# How long a request waits for a connection of its tenant that another thread is using, before it opens a further one: most
# are given back sooner than another is opened, which costs the server a process and the memory of it.
SHARE_SECONDS: Final = 0.05
# A process in the background opens the next connection after so many times the time that the last one took, at most so
# many seconds later: the longer it takes, the busier the server is with requests.
REST_TIMES: Final = 10
REST_SECONDS: Final = 0.5
# What one more connection may lack: a lease that was not asked for, room on the server, room in the budget.
_LEASE, _SERVER, _BUDGET = "lease", "server", "budget"
_at_once: ContextVar[bool] = ContextVar("connections_are_opened_at_once", default=False)


@contextmanager
def opening_at_once() -> Iterator[None]:
    """Open connections without the pace of background processes: an operator waits for what the block does."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


class Lender(Protocol):
    """What `tenants.backend.leases.Leases` does for the pool. That module imports this one."""

    def counts(self, key: Key) -> bool:
        """Return whether connections to the server of `key` are leased."""

    def ask(self, key: Key, connect: Callable[[], Raw], deadline: float) -> bool:
        """Lease connections to the server of `key`; return whether there are any."""


class TenantConnectionPool:
    """Raw connections by tenant database, at most `budget` of them open, `base` of them to a server without leases."""

    def __init__(self, *, budget: int, base: int, wait: float, share: float = SHARE_SECONDS) -> None:
        self.budget = budget
        self.base = base
        self.wait = wait
        self.share = share
        # None in commands, which open connections without leases.
        self.lender: Lender | None = None
        # Of a process in the background (`yield_to_requests`): how many it opens to one server, how long it keeps idle
        # ones, how many it opens in a second.
        self.most_on_server: int | None = None
        self.keep_seconds = math.inf
        self.open_per_second = math.inf
        self._reset()
        # A forked child must neither use nor close its parent's connections.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._idle: OrderedDict[Key, list[Raw]] = OrderedDict()
        self._open = 0
        # By server id. Only servers whose connections are leased are in `_leased`.
        self._open_on: defaultdict[int, int] = defaultdict(int)
        self._next_opens_at = 0.0
        # How many connections are in use, by their database.
        self._taken: defaultdict[Key, int] = defaultdict(int)
        self._leased: dict[int, int] = {}
        self._stuck = StuckDatabases()
        # When a connection to a server was last opened or given back in order.
        self._responded_at: dict[int, float] = {}

    @property
    def open(self) -> int:
        """The number of connections that are open or being opened, including idle ones."""
        return self._open

    def yield_to_requests(self, *, most: int, wait: float, keep_seconds: float, open_per_second: float) -> None:
        """Open at most `most` connections to each server, wait longer for one, and close those that are idle for so long.

        In a second at most `open_per_second` are opened, and fewer while the server is busy (`REST_TIMES`), so that a round
        through all tenants leaves the processors to requests. What an operator waits for (`opening_at_once`) is not held up.
        For processes beside those that serve requests. One that goes through all tenants would otherwise keep a connection
        to each of them, which requests then lack, and use none again before the next round.
        """
        self.most_on_server, self.wait, self.keep_seconds = most, wait, keep_seconds
        self.open_per_second = open_per_second

    def take(self, key: Key, connect: Callable[[], Raw]) -> Raw:
        """Return an idle connection to `key`, or a new one from `connect()` within the budget and the leases.

        Raises TenantConnectionsExhausted or DatabaseServerFull after `wait` seconds, and the errors of `connect`, also at once
        where the database has accepted no connection a moment ago (ConnectionTimeout).
        """
        deadline = time.monotonic() + self.wait
        shared_until = time.monotonic() + self.share
        lender = self.lender
        # Whether connections to this server are leased: looked up only if one must be opened, and not under the lock.
        leases = False if lender is None else None
        refused = waited = False
        while True:
            closing: list[Raw] = []
            try:
                with self._changed:
                    if (raw := self._idle_one(key, closing)) is not None:
                        self._taken[key] += 1
                        return raw
                    if self._taken.get(key, 0) > 0 and (left := shared_until - time.monotonic()) > 0:
                        self._changed.wait(left)
                        continue
                    if (pause := self._pause()) > 0:
                        self._changed.wait(pause)
                        continue
                    if leases is not None:
                        missing = self._missing(key, closing, leases=leases, refused=refused)
                        if missing is None:
                            self._count(key[0], 1)
                            self._stuck.opens(key)
                            self._next_opens_at = time.monotonic() + 1 / self.open_per_second
                            break
                        if missing is not _LEASE:
                            if not waited:
                                waited = True
                                WAITS.inc()
                            self._wait(key[0], missing, deadline)
                            refused = False
                            continue
            finally:
                for old in closing:
                    old.close()
            assert lender is not None  # without one `leases` is False, and no lease is missing
            if leases is None:
                leases = lender.counts(key)
            else:
                refused = not lender.ask(key, connect, deadline)
        OPENED.inc()
        BUDGET.set(self.budget)
        began = time.monotonic()
        try:
            raw = connect()
        except BaseException as problem:
            self._opened(key, began, problem)
            raise
        self._opened(key, began, None)
        return raw

    def _opened(self, key: Key, began: float, problem: BaseException | None) -> None:
        with self._changed:
            moment = time.monotonic()
            if not math.isinf(self.open_per_second):
                rest = min(REST_TIMES * (moment - began), REST_SECONDS)
                self._next_opens_at = max(self._next_opens_at, moment + rest)
            if problem is None:
                self._responded_at[key[0]] = moment
            responds = self._responded_at.get(key[0], -math.inf) >= began
            self._count(key[0], -self._stuck.opened(key, problem, server_responds=responds))
            if problem is None:
                self._taken[key] += 1
            # All: only some of those who wait may wait for this database or server.
            self._changed.notify_all()
        failure = None if problem is None else type(problem).__qualname__
        took = round((time.monotonic() - began) * 1000, 1)
        log.debug("connection_opened", server_id=key[0], database=key[2], ms=took, failure=failure)

    def _missing(self, key: Key, closing: list[Raw], *, leases: bool, refused: bool) -> str | None:
        """Return what one more connection lacks; None if there is room. Idle ones that make room are put into `closing`.

        Raises ConnectionTimeout during the pause of a database that accepts none.
        """
        server_id = key[0]
        for of_server, number in self._stuck.forget_old().items():
            self._count(of_server, -number)
        if not self._stuck.may_open(key):
            return _BUDGET
        while self.most_on_server is not None and self._open_on[server_id] >= self.most_on_server:
            if not self._close_idle_on(server_id, closing):
                return _BUDGET
        while leases and self._open_on[server_id] >= self._leased.setdefault(server_id, 0):
            if not refused:
                return _LEASE
            if not self._close_idle_on(server_id, closing):
                return _SERVER
        while not leases and self._open_on[server_id] >= self.base:
            if not self._close_idle_on(server_id, closing):
                return _BUDGET
        return None if self._open < self.budget or self._make_room(closing) else _BUDGET

    def _wait(self, server_id: int, missing: str, deadline: float) -> None:
        """Wait for a change, of this process or another one. Raises the error of what is missing after the deadline."""
        left = deadline - time.monotonic()
        if left > 0:
            self._changed.wait(min(left, ASK_AGAIN_SECONDS) if missing == _SERVER else left)
        elif missing == _SERVER:
            REFUSED.labels(servers.name_of(server_id) or "").inc()
            raise DatabaseServerFull
        else:
            EXHAUSTED.inc()
            raise TenantConnectionsExhausted

    def give_back(self, key: Key, raw: Raw) -> None:
        """Return a connection to the pool. Closes it if it is broken, has session state or is not leased any more."""
        reusable = not raw.closed and raw.pgconn.transaction_status == TransactionStatus.IDLE and raw.autocommit
        with self._changed:
            leased = self._leased.get(key[0])
            keeps = self.keep_seconds > 0 and (leased is None or self._open_on[key[0]] <= leased)
            if reusable and not raw.leaves_state and keeps:
                raw.idle_since = self._responded_at[key[0]] = time.monotonic()
                self._idle.setdefault(key, []).append(raw)
                self._idle.move_to_end(key)
                self._forget_taken(key)
                # All: only some of those who wait may wait for this database.
                self._changed.notify_all()
                return
        raw.close()
        self.discarded(key)

    def discarded(self, key: Key) -> None:
        """Count a taken connection as closed."""
        with self._changed:
            self._forget_taken(key)
            self._count(key[0], -1)
            # All: only some of those who wait may wait for this server.
            self._changed.notify_all()

    def close_idle(self, database: str | None = None) -> None:
        """Close idle connections of one database, before it is dropped, or of all."""
        self._close(lambda key: database is None or key[2] == database)

    def close_server(self, key: Key) -> None:
        """Close idle connections to all databases of that key's server: each would be waited for in vain."""
        self._close(lambda other: other[:2] == key[:2])

    def _close(self, concerned: Callable[[Key], bool]) -> None:
        with self._changed:
            keys = [key for key in self._idle if concerned(key)]
            closing = [(key, raw) for key in keys for raw in self._idle.pop(key)]
        self._close_taken(closing)

    def _close_taken(self, closing: list[tuple[Key, Raw]]) -> None:
        # Counted until they are closed, so that no other is opened in their place before.
        for _, raw in closing:
            raw.close()
        with self._changed:
            for key, _ in closing:
                self._count(key[0], -1)
            self._changed.notify_all()

    # --- leases: called by the thread of `tenants.backend.leases` only -------------------------------------------------

    def servers_leased(self) -> list[int]:
        """Return the ids of the servers whose connections are leased."""
        with self._changed:
            return list(self._leased)

    def leased(self, server_id: int) -> int:
        """Return how many connections to the server may be open."""
        with self._changed:
            return self._leased.get(server_id, 0)

    def lend(self, server_id: int, number: int) -> None:
        """Let so many more connections to the server be opened."""
        with self._changed:
            self._leased[server_id] = self._leased.get(server_id, 0) + number
            self._changed.notify_all()

    def has_unused(self, server_id: int, number: int) -> bool:
        """Return whether so many more connections to the server may be open than are."""
        with self._changed:
            return self._leased.get(server_id, 0) - self._open_on[server_id] >= number

    def retract(self, server_id: int, *, step: int) -> None:
        """Lower what may be open to what is open, rounded up to a multiple of `step`."""
        with self._changed:
            ceiling = -(-self._open_on[server_id] // step) * step
            self._leased[server_id] = min(self._leased[server_id], ceiling)

    def revoke(self, server_id: int) -> None:
        """Let no connection to the server be opened, and close the idle ones. Those in use are closed when given back."""
        with self._changed:
            if server_id in self._leased:
                self._leased[server_id] = 0
        self._close(lambda key: key[0] == server_id)

    def forget_leases(self) -> None:
        """Count no connections as leased any more: this process opens and keeps them without."""
        with self._changed:
            self._leased.clear()

    def close_surplus(self, server_id: int, *, idle_for: float) -> None:
        """Close connections to the server that were idle for so many seconds, but for the last one used of each database."""
        closing: list[tuple[Key, Raw]] = []
        with self._changed:
            before = time.monotonic() - idle_for
            for key, stack in self._idle.items():
                while key[0] == server_id and len(stack) > 1 and stack[0].idle_since < before:
                    closing.append((key, stack.pop(0)))
        self._close_taken(closing)

    def close_unused(self, server_id: int, *, keep: int, idle_for: float) -> None:
        """Close connections to the server that were idle for so many seconds, and idle ones until only `keep` are open."""
        closing: list[tuple[Key, Raw]] = []
        with self._changed:
            surplus, before = self._open_on[server_id] - keep, time.monotonic() - idle_for
            for key in [key for key in self._idle if key[0] == server_id]:
                stack = self._idle[key]
                while stack and (len(closing) < surplus or stack[0].idle_since < before):
                    closing.append((key, stack.pop(0)))
                if not stack:
                    del self._idle[key]
        self._close_taken(closing)

    # --- under the lock -----------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """Return how many seconds are left until this process may open its next connection."""
        return 0.0 if _at_once.get() else self._next_opens_at - time.monotonic()

    def _count(self, server_id: int, change: int) -> None:
        self._open += change
        self._open_on[server_id] += change
        OPEN.set(self._open)

    def _forget_taken(self, key: Key) -> None:
        self._taken[key] -= 1
        if self._taken[key] <= 0:
            del self._taken[key]

    def _idle_one(self, key: Key, closing: list[Raw]) -> Raw | None:
        stack = self._idle.get(key)
        while stack:
            raw = stack.pop()
            if not stack:
                del self._idle[key]
            if not is_stale(raw):
                return raw
            self._count(key[0], -1)
            closing.append(raw)
        return None

    def _make_room(self, closing: list[Raw]) -> bool:
        return bool(self._idle) and self._close_first(next(iter(self._idle)), closing)

    def _close_idle_on(self, server_id: int, closing: list[Raw]) -> bool:
        key = next((key for key in self._idle if key[0] == server_id), None)
        return key is not None and self._close_first(key, closing)

    def _close_first(self, key: Key, closing: list[Raw]) -> bool:
        stack = self._idle[key]
        closing.append(stack.pop(0))
        if not stack:
            del self._idle[key]
        self._count(key[0], -1)
        return True


POOL = TenantConnectionPool(
    budget=settings.TENANT_CONNECTION_BUDGET,
    base=settings.BASE_CONNECTION_BUDGET,
    wait=settings.TENANT_CONNECTION_WAIT_SECONDS,
)
