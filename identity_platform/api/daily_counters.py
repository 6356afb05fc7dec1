"""Counters per day that piggyback on the rate limiter's round trips. No request depends on them.

The counters of one day are a Redis hash. The console's metrics read it from time to time and store the totals; a server
that loses its data loses the counts since then.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Final, cast

import redis
from django.core.cache import caches
from redis.client import Pipeline

from identity_platform.api import valkey

KEPT_SECONDS: Final = 10 * 86_400
# Fields that wait in one process for the next round trip. More than these are not counted.
MOST_WAITING: Final = 1_000

_lock = threading.Lock()
_waiting: Counter[tuple[str, str]] = Counter()
_expiring: set[str] = set()


def key_of(name: str, day: date) -> str:
    """The Redis key of the counters of one day (UTC)."""
    return f"{caches['default'].key_prefix}:tally:{name}:{day.isoformat()}"


def add(name: str, field: str) -> None:
    """Add one to `field` of today's counters with the next count of the rate limiter in this process."""
    entry = (key_of(name, datetime.now(UTC).date()), field)
    with _lock:
        if entry in _waiting or len(_waiting) < MOST_WAITING:
            _waiting[entry] += 1


def append_to(pipe: Pipeline) -> None:
    """Append what waits to the commands of a pipeline."""
    if not _waiting:
        return
    with _lock:
        sums = dict(_waiting)
        _waiting.clear()
    for (key, field), total in sums.items():
        pipe.hincrby(key, field, total)
    # Once per process and day, so that a hash that is never read does not stay forever.
    for key in {key for key, _ in sums} - _expiring:
        pipe.expire(key, KEPT_SECONDS)
        _expiring.add(key)


def read(name: str, days: int) -> dict[date, Mapping[str, int]]:
    """Return the counters of today and the days before; days without counters and unreachable ones are left out."""
    today = datetime.now(UTC).date()
    totals_by_day: dict[date, Mapping[str, int]] = {}
    with suppress(redis.RedisError, OSError):
        for day in (today - timedelta(days=back) for back in range(days)):
            fields = cast("dict[bytes, bytes]", valkey.client().hgetall(key_of(name, day)))
            if fields:
                totals_by_day[day] = {field.decode(): int(total) for field, total in fields.items()}
    return totals_by_day
