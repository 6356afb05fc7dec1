"""The one way to Valkey or Redis: a bounded wait, no hidden retries, a pool per process.

Valkey is an accelerator here and never the truth, so waiting for it is worse than doing without it. redis-py's own
settings wait 5 s for an answer, and its plain client tries ten times more.
"""

from __future__ import annotations

import functools
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry


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


def _options(timeout: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        # RESP 2: a new connection needs no handshake but the password.
        "protocol": 2,
        "driver_info": None,
    }
