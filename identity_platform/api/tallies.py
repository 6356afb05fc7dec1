"""Day figures that ride along with a count of the rate limiter: one round trip for both, and no request depends on them.

A tally is a Redis hash of a day; whoever keeps figures reads it once in a while and keeps what it says. A server that
forgets takes the tallies of the day with it, and nothing else.
"""

import os
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import redis
from django.core.cache import caches

from identity_platform.api import valkey

KEPT_SECONDS: Final = 10 * 86_400
# Of what waits for its ride in a process: fields beyond are let go.
MOST_WAITING: Final = 1_000


class _Waiting(threading.local):
    ride: tuple[str, str] | None = None


_next = _Waiting()
_lock = threading.Lock()
_later: Counter[tuple[str, str]] = Counter()
_expiring: set[str] = set()


def key_of(name: str, day: date) -> str:
    """The hash of a tally and a day (UTC)."""
    return f"{caches['default'].key_prefix}:tally:{name}:{day.isoformat()}"


def ride_along(name: str, field: str) -> None:
    """Let the next count of this thread add one to `field` of today's tally."""
    _next.ride = (key_of(name, datetime.now(UTC).date()), field)


def add_later(name: str, field: str) -> None:
    """Add one with whichever count of this process comes next: for what is known only after the count."""
    entry = (key_of(name, datetime.now(UTC).date()), field)
    with _lock:
        if entry in _later or len(_later) < MOST_WAITING:
            _later[entry] += 1


def taken() -> tuple[bytes, int]:
    """The commands (RESP 2) that ride along now, and how many answers they give."""
    ride, _next.ride = _next.ride, None
    if ride is None:
        return b"", 0
    sums = Counter([ride])
    new = {ride[0]} - _expiring
    if _later:
        with _lock:
            sums.update(_later)
            _later.clear()
    commands = [_command("HINCRBY", key, field, str(total)) for (key, field), total in sums.items()]
    # Once per process and day: a hash that nobody reads must not stay for ever.
    commands += [_command("EXPIRE", key, str(KEPT_SECONDS)) for key in new]
    if new:
        _expiring.clear()
        _expiring.update(new)
    return b"".join(commands), len(commands)


def read(name: str, days: int) -> dict[date, Mapping[str, int]]:
    """The tallies of today and the days before; those that the server does not have, or cannot tell, are not in it."""
    today = datetime.now(UTC).date()
    found: dict[date, Mapping[str, int]] = {}
    try:
        for day in (today - timedelta(days=back) for back in range(days)):
            fields: Any = valkey.client().hgetall(key_of(name, day))
            if fields:
                found[day] = {field.decode(): int(total) for field, total in fields.items()}
    except (redis.RedisError, OSError):
        return found
    return found


def _command(*words: str) -> bytes:
    encoded = [word.encode() for word in words]
    return b"*%d\r\n%b" % (len(encoded), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded))


def _after_fork() -> None:
    # A lock held in the parent at that moment would stay locked here for ever; what waits there is sent from there.
    global _lock
    _lock = threading.Lock()
    _later.clear()


os.register_at_fork(after_in_child=_after_fork)
