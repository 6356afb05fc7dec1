"""The cache behind django-ratelimit: one round trip for each count, and no request fails when Valkey does.

django-ratelimit 4.1 counts with `add(key, 1, ttl)` and then `incr(key)`, and reads with `add(key, 0, ttl)` and then
`get(key)`: three and two round trips with Django's Redis cache. Here `add` only notes the window, and the call that
follows sends everything in one pipeline. Django gives each thread a cache object of its own, so the note cannot mix.
"""

from collections.abc import Callable, Sequence
from typing import cast

import redis
import structlog
from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.cache.backends.locmem import LocMemCache
from prometheus_client import Counter, Gauge

from identity_platform.api import daily_counters, valkey

log = structlog.get_logger("identity.ratelimit")

FALLBACKS = Counter("identity_ratelimit_fallback", "Counts taken in this process because Valkey did not answer.")
DEGRADED = Gauge(
    "identity_ratelimit_degraded", "1 while counts are taken in this process.", multiprocess_mode="livemax"
)

MOST_LOCAL_KEYS = 50_000

Replies = Sequence[bytes | str | int | None]


class RateLimitCache(BaseCache):
    """Counters in Valkey, and in this process while Valkey is unavailable."""

    def __init__(self, server: str | list[str], params: dict[str, object]) -> None:
        super().__init__(params)
        url = server if isinstance(server, str) else server[0]
        self._client = redis.Redis(connection_pool=valkey.pool(url))
        self._breaker = valkey.breaker(url)
        # A full table drops the counter that was used least recently, one at a time.
        self._local = LocMemCache(url, {"max_entries": MOST_LOCAL_KEYS, "cull_frequency": MOST_LOCAL_KEYS})
        self._window: tuple[str, int] | None = None

    @property
    def degraded(self) -> bool:
        """Whether counts are taken in this process because the server does not answer."""
        return self._breaker.is_open

    def add(self, key: str, value: object, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Note the window for the `incr` that follows. Always False: nothing is stored yet."""
        if type(value) is not int or value not in (0, 1):
            raise ValueError("This cache counts one by one.")
        self._window = (key, int(timeout)) if value and timeout is not None else None
        return False

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """Count one and return the total. Raises ValueError without the `add` that names the window."""
        window, self._window = self._window, None
        if window is None or window[0] != key or delta != 1:
            raise ValueError("Counting begins with add().")
        return self.count(window)[0]

    def get(self, key: str, default: object = None, version: int | None = None) -> object:
        return self.total(key) or default

    def count(self, *windows: tuple[str, int], by: int = 1) -> list[int]:
        """Count one use of each key, or take one back (`by` -1), in one round trip; return the totals.

        Each key comes with the seconds that its counter is kept.
        """
        names = [(self.make_key(key), seconds) for key, seconds in windows]
        # SET NX and INCR are atomic each, so every caller gets a total of its own.
        with self._client.pipeline(transaction=False) as pipe:
            for name, seconds in names:
                pipe.set(name, 0, ex=seconds, nx=True)
                pipe.incrby(name, by)
            daily_counters.append_to(pipe)
            replies = self._ask(pipe.execute)
        if replies is None:
            return [self._count_locally(name, seconds, by) for name, seconds in names]
        return [int(reply or 0) for reply in replies[1 : 2 * len(names) : 2]]

    def total(self, key: str) -> int:
        """Return the total of a key without counting."""
        name = self.make_key(key)
        replies = self._ask(lambda: self._client.mget([name]))
        if replies is not None:
            return int(replies[0] or 0)
        FALLBACKS.inc()
        total: int = self._local.get(name, 0)
        return total

    def _ask(self, send: Callable[[], Replies]) -> Replies | None:
        """Return the server's replies, or None while it cannot be asked."""
        recovering = self._breaker.is_open
        if not self._breaker.allows_request():
            return None
        try:
            replies = send()
        except (redis.RedisError, OSError) as problem:
            first = self._breaker.record_failure()
            DEGRADED.set(1)
            if first:
                # The type only: messages of the driver name hosts.
                log.warning("valkey_unavailable", kind=type(problem).__name__)
            return None
        # A reply that was sent before another thread's failure says nothing about the server after it.
        if recovering:
            self._breaker.record_success()
            DEGRADED.set(0)
            log.info("valkey_available")
        return replies

    def _count_locally(self, name: str, seconds: int, by: int) -> int:
        FALLBACKS.inc()
        self._local.add(name, 0, seconds)
        try:
            return self._local.incr(name, by)
        except ValueError:  # the window ended in between
            return by


def degraded() -> bool:
    """Whether rate limits are counted in this process because the server does not answer."""
    return ratelimit_cache().degraded


def ratelimit_cache() -> RateLimitCache:
    """This thread's cache of the rate limits."""
    return cast("RateLimitCache", caches[settings.RATELIMIT_USE_CACHE])
