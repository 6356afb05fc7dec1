"""Wake the deliverers through Valkey: which tenant has something to send, and when.

Nothing depends on a wakeup. If one is lost, the sweep over the tenants with endpoints finds the messages.
"""

import time
from collections.abc import Sequence
from typing import cast
from uuid import UUID

import redis
import structlog
from django.conf import settings

from identity_platform.api import valkey

log = structlog.get_logger("identity.webhooks")

_breaker = valkey.CircuitBreaker()


def _name() -> str:
    stores = cast("dict[str, dict[str, str]]", settings.CACHES)
    return f"{stores['default']['KEY_PREFIX']}:webhooks:due"


def wake(tenant_id: UUID, *, seconds: float = 0.0) -> None:
    """Wake a deliverer for the tenant after `seconds`, or earlier if that was asked for. Does not raise without Valkey."""
    if not _breaker.allows_request():
        return
    try:
        valkey.client().zadd(_name(), {str(tenant_id): time.time() + seconds}, lt=True)
    except (redis.RedisError, OSError) as problem:
        _breaker.record_failure()
        log.warning("webhook_hint_lost", reason=type(problem).__name__)
    else:
        if _breaker.is_open:
            _breaker.record_success()


def due(most: int) -> Sequence[UUID]:
    """Take at most `most` tenants that are due; each goes to one deliverer only. Empty without Valkey."""
    try:
        store = valkey.client()
        found = cast("list[bytes]", store.zrange(_name(), 0, time.time(), byscore=True, offset=0, num=most))
        taken = [name for name in found if store.zrem(_name(), name)]
    except (redis.RedisError, OSError):
        return []
    return [UUID(name.decode()) for name in taken]
