"""Daily counters in Valkey, incremented in the same round trip as the rate limiter's count.

A counter is a hash for one name and day with a field per tenant. The console copies it to the database now and then. No
request depends on it: a Valkey server that loses its data loses the counts of the day and nothing else.
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
# Fields that one process holds back for the next count; more are dropped.
MOST_WAITING: Final = 1_000


class _Next(threading.local):
    entry: tuple[str, str] | None = None


_next = _Next()
_lock = threading.Lock()
_later: Counter[tuple[str, str]] = Counter()
_expiring: set[str] = set()


def key_of(name: str, day: date) -> str:
    """Return the key of the hash for this name and day (UTC)."""
    return f"{caches['default'].key_prefix}:tally:{name}:{day.isoformat()}"


def piggyback(name: str, field: str) -> None:
    """Increment `field` of today's counter together with this thread's next count."""
    _next.entry = (key_of(name, datetime.now(UTC).date()), field)


def add_later(name: str, field: str) -> None:
    """Increment together with the next count of this process: for facts known only after the present count."""
    entry = (key_of(name, datetime.now(UTC).date()), field)
    with _lock:
        if entry in _later or len(_later) < MOST_WAITING:
            _later[entry] += 1


def pending_commands() -> tuple[bytes, int]:
    """Return the commands (RESP 2) to send with the present count, and the number of their replies."""
    entry, _next.entry = _next.entry, None
    if entry is None:
        return b"", 0
    sums = Counter([entry])
    new = {entry[0]} - _expiring
    if _later:
        with _lock:
            sums.update(_later)
            _later.clear()
    commands = [_command("HINCRBY", key, field, str(total)) for (key, field), total in sums.items()]
    # Set once per process and day, so that unread hashes do not stay for ever.
    commands += [_command("EXPIRE", key, str(KEPT_SECONDS)) for key in new]
    if new:
        _expiring.clear()
        _expiring.update(new)
    return b"".join(commands), len(commands)


def read(name: str, days: int) -> dict[date, Mapping[str, int]]:
    """Return the counters of the last `days` days; days without a counter, or after a failure of Valkey, are left out."""
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
    # A lock that the parent holds at the fork would stay locked here for ever. The parent sends its pending counts itself.
    global _lock
    _lock = threading.Lock()
    _later.clear()


os.register_at_fork(after_in_child=_after_fork)
