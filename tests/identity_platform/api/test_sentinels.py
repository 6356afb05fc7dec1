"""`REDIS_URL` that names Sentinels: connections lead to the primary, also after another server has become it."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.core.cache import caches

from drill.sentinels import Sentinels
from identity_platform.api import valkey
from identity_platform.api.cache import RateLimitCache
from tests.machine.conftest import within


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    made = Sentinels(tmp_path_factory.mktemp("sentinels"))
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def url(sentinels: Sentinels, settings: Any) -> str:
    """The URL, as the setting too."""
    settings.REDIS_URL = sentinels.url
    named = {name: {**one, "LOCATION": [sentinels.url]} for name, one in settings.CACHES.items()}
    settings.CACHES = named
    return sentinels.url


def works(call: Callable[[], object]) -> bool:
    """Whether the server answers, which it may fail to do in the short time of production on a busy machine."""
    try:
        call()
    except redis.RedisError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_counting_goes_on_with_the_promoted_replica(sentinels: Sentinels, url: str, number: signal.Signals) -> None:
    cache, key = RateLimitCache([url], {}), f"uses-{number.name}"
    assert within(10, lambda: cache.count((key, 60))[0] > 0 and not cache.degraded)
    assert within(10, lambda: works(lambda: caches["default"].set(key, "before", 60)))
    lost = sentinels.fail_over(number)
    # Until the process has noticed, it counts by itself.
    assert within(10, lambda: cache.count((f"{key}-after", 60))[0] > 0 and not cache.degraded)
    promoted = sentinels.primary()
    assert promoted is not lost
    assert promoted.client().get(cache.make_key(f"{key}-after"))
    assert within(10, lambda: works(lambda: valkey.client().set(key, 2)))
    assert promoted.client().get(key) == "2"
    assert within(10, lambda: works(lambda: caches["default"].set(key, "after", 60)))
    assert within(10, lambda: valkey.is_connected(timeout=1.0))
    lost.kill()
    lost.start()
    assert within(60, sentinels.is_complete)


def test_sentinel_that_is_gone_is_passed_over(sentinels: Sentinels, url: str) -> None:
    gone = sentinels.members[0]
    gone.kill()
    try:
        assert within(10, lambda: valkey.is_connected(timeout=1.0))
    finally:
        gone.start()


def test_other_service_is_not_connected(url: str, settings: Any) -> None:
    settings.REDIS_URL = url.replace("/identity/0", "/other/0")
    assert not valkey.is_connected(timeout=0.5)
    with pytest.raises(redis.ConnectionError):
        valkey.client().ping()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://a:26379,b:26379",
        "redis+sentinel://a:26379/",
        "redis+sentinel://a:26379/identity/first",
        "redis+sentinel:///identity/0",
        "redis+sentinel://a,,b/identity",
        "redis+sentinel://a/identity?timeout=3",
        "redis+sentinel://a:port/identity",
    ],
)
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match=r"REDIS_URL|[Pp]ort"):
        valkey.PoolOfUrl.from_url(url)


def test_url_states_login_database_and_sentinel_password() -> None:
    stated = "rediss+sentinel://u:p%40ss@a,b:1,[::1]:2/identity/3?sentinel_password=s"
    pool: Any = valkey.PoolOfUrl.from_url(stated, socket_timeout=0.5)
    known = pool.connection_kwargs
    assert (known["username"], known["password"], known["db"], known["socket_timeout"]) == ("u", "p@ss", 3, 0.5)
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in asked] == [("a", 26379), ("b", 1), ("::1", 2)]
    assert {one["password"] for one in asked} == {"s"}
    assert {one["socket_timeout"] for one in asked} == {0.5}
