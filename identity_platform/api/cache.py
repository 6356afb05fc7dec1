"""The counters behind django-ratelimit: one round trip for each count, and none that can fail a request.

django-ratelimit 4.1 counts with `add(key, 1, ttl)` and, when the key was there, `incr(key)`; it looks with
`add(key, 0, ttl)` and `get(key)`. On Django's Redis back end that is three round trips (set, exists, incr). Here `add`
asks everything at once and keeps the answer for the `incr` or `get` that follows in the same thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import Any

import redis
import structlog
from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from prometheus_client import Counter, Gauge

from identity_platform.api import daily_counters, valkey

log = structlog.get_logger("identity.ratelimit")

FALLBACKS = Counter("identity_ratelimit_fallback", "Counts taken in this process because Valkey did not answer.")
DEGRADED = Gauge(
    "identity_ratelimit_degraded", "1 while counts are taken in this process.", multiprocess_mode="livemax"
)

MOST_LOCAL_KEYS = 50_000
_GET = b"*2\r\n$3\r\nGET\r\n%b"


class RateLimitCache(BaseCache):
    """Counts for django-ratelimit in Valkey, in this process while Valkey is away; never raises for its absence."""

    def __init__(self, server: str | list[str], params: dict[str, Any]) -> None:
        super().__init__(params)
        self._counters = _counters(server if isinstance(server, str) else server[0])

    @property
    def degraded(self) -> bool:
        """Whether counts are being taken in this process because the server does not answer."""
        return self._counters.degraded

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Count one (`value` 1) or only look (`value` 0). True when nothing had been counted before."""
        if type(value) is not int or value not in (0, 1):
            raise ValueError("This cache counts one by one.")
        name = self.make_key(key, version)
        seconds = int(timeout)
        if value:
            beside, _along.name = _along.name, None
            total, _along.total = self._counters.count(name, seconds, beside)
            _along.seen = beside if _along.total is not None else None
        elif (seen := _seen_along(name)) is not None:
            total = seen
        else:
            total, _ = self._counters.look(name)
        if total == value:
            _answer.name = None
            return True
        _answer.name, _answer.total = name, total
        return False

    def look_along(self, key: str) -> None:
        """Ask for this counter together with the next one that is counted in this thread."""
        _along.name = self.make_key(key)

    def look_at_both(self, key: str, other: str) -> tuple[int, int]:
        """Two totals in one question, past the library, which asks for each by itself."""
        total, beside = self._counters.look(self.make_key(key), self.make_key(other))
        return total, self._counters.look(self.make_key(other))[0] if beside is None else beside

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """The total that the `add` just before has counted already. Raises ValueError without such an `add`."""
        name = self.make_key(key, version)
        total = _taken(name)
        if total is None or delta != 1:
            raise ValueError("Counting begins with add().")
        return total

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The total, known from the `add` just before or asked for."""
        name = self.make_key(key, version)
        total = _taken(name)
        if total is None:
            total = self._counters.look(name)[0] or None
        return default if total is None else total


def degraded() -> bool:
    """Whether django-ratelimit's counts are being taken in this process because the server does not answer."""
    cache = caches[settings.RATELIMIT_USE_CACHE]
    return isinstance(cache, RateLimitCache) and cache.degraded


class _Answer(threading.local):
    name: str | None = None
    total: int = 0


_answer = _Answer()


def _taken(name: str) -> int | None:
    if _answer.name != name:
        return None
    _answer.name = None
    return _answer.total


class _Along(threading.local):
    # What is to be asked with the next count, what was, and its total.
    name: str | None = None
    seen: str | None = None
    total: int | None = None


_along = _Along()


def _seen_along(name: str) -> int | None:
    if _along.seen != name:
        return None
    _along.seen = None
    return _along.total


class _Counters:
    """The counters of one server, with the process's own in reserve."""

    def __init__(self, url: str) -> None:
        self._pool = valkey.pool(url)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._local: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._pause = valkey.Pause()

    @property
    def degraded(self) -> bool:
        return self._pause.lasts

    def count(self, name: str, seconds: int, beside: str | None = None) -> tuple[int, int | None]:
        """The total with this one, and the total of `beside` if that was asked for and the server answers."""
        # Each of the two is atomic, so every caller gets a total of its own. Sent together they are one round trip,
        # cost less than a script, and nothing has to be loaded again after a flush.
        key = _bulk(name)
        along, extra_answers = daily_counters.pending_commands()
        commands = b"*6\r\n$3\r\nSET\r\n%b$1\r\n0\r\n$2\r\nEX\r\n%b$2\r\nNX\r\n*2\r\n$4\r\nINCR\r\n%b%b%b" % (
            key,
            _bulk(str(seconds)),
            key,
            _GET % _bulk(beside) if beside is not None else b"",
            along,
        )
        totals = self._ask(commands, answers=extra_answers + (2 if beside is None else 3))
        if totals is None:
            return self._count_here(name, seconds), None
        return totals[1], None if beside is None else totals[2]

    def look(self, name: str, beside: str | None = None) -> tuple[int, int | None]:
        """The total, and that of `beside` if it was asked for and the server answers."""
        commands = _GET % _bulk(name) + (_GET % _bulk(beside) if beside is not None else b"")
        totals = self._ask(commands, answers=1 if beside is None else 2)
        if totals is None:
            return self._look_here(name), None
        return totals[0], None if beside is None else totals[1]

    def _ask(self, commands: bytes, *, answers: int) -> list[int] | None:
        """Send commands in RESP 2 and give the answers as numbers; None when the server cannot be asked."""
        trying_again = self._pause.lasts
        if not self._pause.may_ask():
            return None
        try:
            connection: Any = self._pool.get_connection()
            try:
                connection.send_packed_command([commands])
                given = [connection.read_response() for _ in range(answers)]
            except BaseException:
                # An answer may still be on its way, and must not be taken for that of the next question.
                connection.disconnect()
                raise
            finally:
                self._pool.release(connection)
            # SET answers OK, or nothing where the counter is there already; no counter is a total of 0.
            totals = [0 if one in (None, b"OK") else int(one) for one in given]
        except (redis.RedisError, OSError, ValueError) as problem:
            self._failed(problem)
            return None
        # An answer from before the failure of another thread says nothing about the server after it.
        if trying_again:
            self._answered()
        return totals

    def _failed(self, problem: Exception) -> None:
        news = self._pause.failed()
        DEGRADED.set(1)
        if news:
            # The kind only: messages of the driver name hosts.
            log.warning("valkey_unavailable", kind=type(problem).__name__)

    def _answered(self) -> None:
        self._pause.answered()
        DEGRADED.set(0)
        log.info("valkey_available")

    def _count_here(self, name: str, seconds: int) -> int:
        FALLBACKS.inc()
        with self._lock:
            now = time.monotonic()
            total, ends = self._local.get(name, (0, 0.0))
            if ends <= now:
                self._local.pop(name, None)
                total, ends = 0, now + seconds
            self._local[name] = (total + 1, ends)
            if len(self._local) > MOST_LOCAL_KEYS:
                self._local.popitem(last=False)
            return total + 1

    def _look_here(self, name: str) -> int:
        FALLBACKS.inc()
        with self._lock:
            total, ends = self._local.get(name, (0, 0.0))
            return total if ends > time.monotonic() else 0


def _bulk(text: str) -> bytes:
    encoded = text.encode()
    return b"$%d\r\n%b\r\n" % (len(encoded), encoded)


_known: dict[str, _Counters] = {}
_making = threading.Lock()


def _counters(url: str) -> _Counters:
    # Django makes a cache object for every thread; what is behind it belongs to the process.
    with _making:
        if url not in _known:
            _known[url] = _Counters(url)
        return _known[url]


def _after_fork() -> None:
    # A lock held in the parent at that moment would stay locked here for ever.
    global _making
    _making = threading.Lock()
    for counters in _known.values():
        counters._reset()


os.register_at_fork(after_in_child=_after_fork)
