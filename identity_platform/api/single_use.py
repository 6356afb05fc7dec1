"""Values that count once on all servers, such as the `jti` of a proof."""

import hashlib

import redis
from django.core.cache import cache

from identity_platform.api.errors import Unavailable


def use_once(purpose: str, value: str, *, seconds: int) -> bool:
    """Return whether this is the first use of the value in so many seconds; of concurrent callers one gets True.

    Raises Unavailable (503) while Valkey does not respond: a replay must not pass.
    """
    digest = hashlib.sha256(value.encode()).hexdigest()
    try:
        return cache.add(f"once:{purpose}:{digest}", 1, timeout=seconds)
    except (redis.RedisError, OSError) as problem:
        raise Unavailable from problem
