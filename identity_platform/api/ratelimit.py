import time
from dataclasses import dataclass

from django_ratelimit import core

from identity_platform.api.cache import ratelimit_cache


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `limit` uses of `key` in `group` in each window of `period` seconds."""

    group: str
    key: str
    limit: int
    period: int


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a limit is used in the current window. `reset_at` is Unix time, `retry_after` is in seconds."""

    limit: int
    count: int
    remaining: int
    reset_at: int
    limited: bool
    retry_after: int


def count(*, group: str, key: str, limit: int, period: int) -> Usage:
    """Count one use. `limited` means that this use is over the limit.

    Does not fail without a server: the process then counts for itself (`cache.degraded`).
    """
    return _ask_library(Limit(group, key, limit, period), increment=True)


def peek(*, group: str, key: str, limit: int, period: int) -> Usage:
    """Read without counting. `limited` means that the next use would be over the limit."""
    return _ask_library(Limit(group, key, limit, period), increment=False)


def count_and_peek(counted: Limit, peeked: Limit) -> tuple[Usage, Usage]:
    """`count` the first and `peek` at the second limit, in one round trip."""
    (key, ends), (other, other_ends) = _window(counted), _window(peeked)
    total, seen = ratelimit_cache().count(key, counted.period + core.EXPIRATION_FUDGE, other)
    return _usage(counted, total, ends, limited=total > counted.limit), _peeked(peeked, seen, other_ends)


def peek_both(one: Limit, other: Limit) -> tuple[Usage, Usage]:
    """`peek` at two limits in one round trip."""
    (key, ends), (other_key, other_ends) = _window(one), _window(other)
    total, other_total = ratelimit_cache().totals(key, other_key)
    return _peeked(one, total, ends), _peeked(other, other_total, other_ends)


def _ask_library(limit: Limit, *, increment: bool) -> Usage:
    found = core.get_usage(
        request=None,
        group=limit.group,
        key=lambda *_: limit.key,
        rate=(limit.limit, limit.period),
        increment=increment,
    )
    total, ends = found["count"], int(time.time()) + found["time_left"]
    return _usage(limit, total, ends, limited=total > limit.limit) if increment else _peeked(limit, total, ends)


def _window(limit: Limit) -> tuple[str, int]:
    """Return the cache key of the current counter and when its window ends. The library has no public API for them."""
    ends = core._get_window(limit.key, limit.period)
    return core._make_cache_key(limit.group, ends, (limit.limit, limit.period), limit.key, core.ALL), ends


def _peeked(limit: Limit, total: int, ends: int) -> Usage:
    return _usage(limit, total, ends, limited=total >= limit.limit)


def _usage(limit: Limit, total: int, ends: int, *, limited: bool) -> Usage:
    now = int(time.time())
    wait = max(1, ends - now)
    return Usage(limit.limit, total, max(0, limit.limit - total), now + wait, limited, wait if limited else 0)
