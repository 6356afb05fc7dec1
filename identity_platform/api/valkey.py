"""The one way to Valkey or Redis: a bounded wait, no hidden retries, a pool per process.

Valkey is an accelerator here and never the truth, so waiting for it is worse than doing without it. redis-py's own
settings wait 5 s for an answer, and its plain client tries ten times more.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

PAUSE_SECONDS = 1.0


@functools.cache
def pool(url: str) -> redis.ConnectionPool:
    """The process's connections to a server. redis-py drops them in a child after a fork.

    Raises ValueError when the URL is none.
    """
    return redis.ConnectionPool.from_url(url, **_options(settings.REDIS_TIMEOUT_SECONDS))


def client() -> redis.Redis:
    """A client of `settings.REDIS_URL` over the process's pool; its calls raise `redis.RedisError`."""
    return redis.Redis(connection_pool=pool(settings.REDIS_URL))


def is_connected(timeout: float) -> bool:
    """Whether the server answers a PING within about `timeout` seconds; asks over a connection of its own."""
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **_options(timeout)) as probe:
            return bool(probe.ping())
    except (redis.RedisError, OSError):
        return False


class Pause:
    """When a server that failed may be asked again, so that a hung one costs one request a second its timeout, not all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # 0 while the server answers, else the time before which it is not asked.
        self._until = 0.0

    @property
    def lasts(self) -> bool:
        """Whether the server has failed and has not answered since."""
        return self._until > 0

    def may_ask(self) -> bool:
        """Whether to ask now. After a failure whoever comes first asks; the others go on without until `answered`."""
        if not self.lasts:
            return True
        with self._lock:
            moment = time.monotonic()
            if moment < self._until:
                return False
            self._until = moment + PAUSE_SECONDS
            return True

    def failed(self) -> bool:
        """The server did not answer. Tells whether that is news."""
        with self._lock:
            news, self._until = not self._until, time.monotonic() + PAUSE_SECONDS
        return news

    def answered(self) -> None:
        """The server answers again."""
        with self._lock:
            self._until = 0.0


def _options(timeout: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        # RESP 2: a new connection needs no handshake but the password.
        "protocol": 2,
        "driver_info": None,
    }
