"""Facts of the global database that processes share through Valkey, for one that starts while that database is away.

Nothing is read here while the database responds, except what its reader confirms. Secrets are
sealed or wrapped as in the database. Without Valkey nothing is shared.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import orjson
import redis
import structlog
from django.conf import settings

from identity_platform.api import valkey

log = structlog.get_logger("identity.facts")

Fact = TypeVar("Fact")

KEPT_SECONDS: Final = 86_400
# The installation that a process of it has proven.
INSTALLATION: Final = "installation"


def read(name: str, parse: Callable[[Any], Fact]) -> Fact | None:
    """Return what `parse` makes of the value that a process has shared under this name within a day.

    None without a value, with one that cannot be parsed, and without Valkey.
    """
    breaker = valkey.breaker(settings.REDIS_URL)
    if breaker.is_open:
        return None
    try:
        text = valkey.client().get(_key(name))
    except (redis.RedisError, OSError):
        breaker.record_failure()
        return None
    try:
        return None if text is None else parse(orjson.loads(text))
    except (ValueError, TypeError, AttributeError, LookupError):
        log.warning("malformed_fact", name=name)
        return None


def write(name: str, value: object) -> None:
    """Share a value that JSON can hold."""
    breaker = valkey.breaker(settings.REDIS_URL)
    if breaker.is_open:
        return
    try:
        valkey.client().set(_key(name), orjson.dumps(value), ex=KEPT_SECONDS)
    except (redis.RedisError, OSError):
        breaker.record_failure()


def remove(name: str) -> None:
    """Remove what is shared under this name. It ends within a day in any case."""
    try:
        valkey.client().delete(_key(name))
    except (redis.RedisError, OSError):
        valkey.breaker(settings.REDIS_URL).record_failure()


def _key(name: str) -> str:
    # The number changes with the form of any value.
    stores = cast("dict[str, dict[str, str]]", settings.CACHES)
    return f"{stores['default']['KEY_PREFIX']}:fact:1:{name}"
