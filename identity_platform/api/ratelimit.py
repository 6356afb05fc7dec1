import time
from dataclasses import dataclass

import structlog
from django_ratelimit import core

from identity_platform.api.cache import ratelimit_cache

log = structlog.get_logger("identity.ratelimit")


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
    # Its name in the cache, for `take_back`.
    counter: str = ""


def count(*, group: str, key: str, limit: int, period: int) -> Usage:
    """Count one use. `limited` means that this use is over the limit.

    Does not fail without a server: the process then counts for itself (`cache.degraded`).
    """
    return _ask_library(Limit(group, key, limit, period), increment=True)


def peek(*, group: str, key: str, limit: int, period: int) -> Usage:
    """Read without counting. `limited` means that the next use would be over the limit.

    Only for what rejects nothing by itself: of callers at once who read and then count, any number gets through.
    """
    return _ask_library(Limit(group, key, limit, period), increment=False)


def count_all(*limits: Limit) -> list[Usage]:
    """`count` one use of each limit, in one round trip."""
    windows = [_window(limit) for limit in limits]
    totals = ratelimit_cache().count(
        *((key, limit.period + core.EXPIRATION_FUDGE) for limit, (key, _) in zip(limits, windows, strict=True))
    )
    return [
        _usage(limit, total, ends, limited=total > limit.limit, counter=key)
        for limit, (key, ends), total in zip(limits, windows, totals, strict=True)
    ]


def take_back(*usages: Usage) -> None:
    """Take back uses that `count_all` has counted, in one round trip: they were none of those that the limits are for."""
    if usages:
        now = int(time.time())
        # A counter that has expired meanwhile comes back for its former time only.
        ratelimit_cache().count(
            *((usage.counter, max(1, usage.reset_at - now) + core.EXPIRATION_FUDGE) for usage in usages), by=-1
        )


def _ask_library(limit: Limit, *, increment: bool) -> Usage:
    usage = core.get_usage(
        request=None,
        group=limit.group,
        key=lambda *_: limit.key,
        rate=(limit.limit, limit.period),
        increment=increment,
    )
    total, ends = usage["count"], int(time.time()) + usage["time_left"]
    return _usage(limit, total, ends, limited=total > limit.limit if increment else total >= limit.limit)


def _window(limit: Limit) -> tuple[str, int]:
    """Return the cache key of the current counter and when its window ends. The library has no public API for them."""
    ends = core._get_window(limit.key, limit.period)
    return core._make_cache_key(limit.group, ends, (limit.limit, limit.period), limit.key, core.ALL), ends


def _usage(limit: Limit, total: int, ends: int, *, limited: bool, counter: str = "") -> Usage:
    now = int(time.time())
    wait = max(1, ends - now)
    if limited:
        # Not the key, which is an address or an account.
        log.debug("limit_reached", group=limit.group, limit=limit.limit, period=limit.period, used=total)
    remaining = max(0, limit.limit - total)
    return Usage(limit.limit, total, remaining, now + wait, limited, wait if limited else 0, counter)
