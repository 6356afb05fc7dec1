"""Wake processes that deliver something, through Valkey: for whom there is something to deliver, and when.

Nothing depends on a wake-up. If one is lost, a sweep finds what it was for.
"""

import time
from collections.abc import Sequence
from typing import cast

import redis
import structlog
from django.conf import settings

from identity_platform.api import valkey

log = structlog.get_logger("identity.wakeups")


class Wakeups:
    """The wake-ups of one kind of delivery. Members are texts: a tenant's id, for one."""

    def __init__(self, name: str) -> None:
        self._suffix = name
        self._breaker = valkey.CircuitBreaker()

    def _name(self) -> str:
        stores = cast("dict[str, dict[str, str]]", settings.CACHES)
        return f"{stores['default']['KEY_PREFIX']}:{self._suffix}:due"

    def wake(self, member: str, *, seconds: float = 0.0) -> bool:
        """Wake for `member` after `seconds`, or earlier if that was asked for. Return False without Valkey."""
        if not self._breaker.allows_request():
            return False
        try:
            valkey.client().zadd(self._name(), {member: time.time() + seconds}, lt=True)
        except (redis.RedisError, OSError) as problem:
            self._breaker.record_failure()
            log.warning("wakeup_lost", queue=self._suffix, reason=type(problem).__name__)
            return False
        log.debug("woken", queue=self._suffix, seconds=seconds)
        if self._breaker.is_open:
            self._breaker.record_success()
        return True

    def take_due(self, most: int) -> Sequence[str]:
        """Take at most `most` members that are due; each goes to one process only. Empty without Valkey."""
        try:
            store = valkey.client()
            due = cast("list[bytes]", store.zrange(self._name(), 0, time.time(), byscore=True, offset=0, num=most))
            return [member.decode() for member in due if store.zrem(self._name(), member)]
        except (redis.RedisError, OSError):
            return []
