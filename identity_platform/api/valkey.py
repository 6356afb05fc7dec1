"""Connections to Valkey or Redis: short timeouts, no hidden retries, one pool per process.

Valkey holds nothing that the platform cannot do without, so a long wait is worse than no reply. By default redis-py waits
5 s for a reply and tries ten times more.
"""

import functools
import threading
import time

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from identity_platform.api import valkey_sentinels

RETRY_SECONDS = 1.0


class PoolOfUrl:
    """What Django's cache takes for a class of pools: one of a server, or of the primary that Sentinels name."""

    @staticmethod
    def from_url(url: str, **options: object) -> redis.ConnectionPool:
        """Return a new pool with these options of a connection. Raises ValueError if the URL is invalid."""
        if valkey_sentinels.names_sentinels(url):
            return valkey_sentinels.sentinel_pool(url, **options)
        return redis.ConnectionPool.from_url(url, **options)


@functools.cache
def pool(url: str) -> redis.ConnectionPool:
    """Return this process's connection pool for a server. redis-py drops the connections in a child after a fork.

    Raises ValueError if the URL is invalid.
    """
    return PoolOfUrl.from_url(url, **_options(settings.REDIS_TIMEOUT_SECONDS))


def client() -> redis.Redis:
    """Return a client of `settings.REDIS_URL` over the process's pool; its calls raise `redis.RedisError`."""
    return redis.Redis(connection_pool=pool(settings.REDIS_URL))


def is_connected(timeout: float) -> bool:
    """Return whether the server answers a PING within about `timeout` seconds, on a connection of its own."""
    try:
        with redis.Redis.from_pool(PoolOfUrl.from_url(settings.REDIS_URL, **_options(timeout))) as probe:
            return bool(probe.ping())
    except (redis.RedisError, OSError):
        return False


class CircuitBreaker:
    """Stop asking a server that failed, except once a second, so that a hung server does not delay every request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # 0 while the server answers, else the time of the next attempt.
        self._next_attempt = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the server has failed and has not answered since."""
        return self._next_attempt > 0

    def allows_request(self) -> bool:
        """Return whether to ask now. While open, one caller each second may."""
        if not self.is_open:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._next_attempt:
                return False
            self._next_attempt = now + RETRY_SECONDS
            return True

    def record_failure(self) -> bool:
        """Open the breaker. Return whether it was closed."""
        with self._lock:
            was_closed, self._next_attempt = not self._next_attempt, time.monotonic() + RETRY_SECONDS
        return was_closed

    def record_success(self) -> None:
        """Close the breaker."""
        with self._lock:
            self._next_attempt = 0.0


_breakers: dict[str, CircuitBreaker] = {}


def breaker(url: str) -> CircuitBreaker:
    """Return this process's circuit breaker of a server."""
    return _breakers.setdefault(url, CircuitBreaker())


def _options(timeout: float) -> dict[str, object]:
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        # RESP 2: a new connection needs no handshake but the password.
        "protocol": 2,
        "driver_info": None,
    }
