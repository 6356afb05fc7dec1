"""Rate limits as the views use them, and the client address."""

import time

import pytest
from django_ratelimit.core import EXPIRATION_FUDGE
from pytest_django.fixtures import Settings

from identity_platform.api.cache import degraded
from identity_platform.api.client_address import client_address, network_of
from identity_platform.api.ratelimit import Limit, Usage, count, count_all, peek, take_back
from identity_platform.api.valkey import client, is_connected
from tests.identity_platform.api.private_valkey import Valkey
from tests.world import seconds_left_in_window


@pytest.fixture
def limits(valkey: Valkey, settings: Settings) -> Valkey:
    """Count limits in a private server."""
    # No window of an hour may end during a test.
    while min(seconds_left_in_window(f"192.0.2.{number}", 3600) for number in (1, 2)) < 10:
        time.sleep(1)
    settings.REDIS_URL = valkey.url
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "ratelimit": {"BACKEND": "identity_platform.api.cache.RateLimitCache", "LOCATION": valkey.url},
    }
    settings.RATELIMIT_USE_CACHE = "ratelimit"
    return valkey


def count_one(key: str = "192.0.2.1", *, limit: int = 2, period: int = 3600) -> Usage:
    return count(group="signin", key=key, limit=limit, period=period)


@pytest.mark.usefixtures("limits")
def test_limit_rejects_the_first_use_beyond_it() -> None:
    uses = [count_one() for _ in range(3)]

    assert [use.limited for use in uses] == [False, False, True]
    assert [use.remaining for use in uses] == [1, 0, 0]
    assert [use.count for use in uses] == [1, 2, 3]
    assert {use.limit for use in uses} == {2}


@pytest.mark.usefixtures("limits")
def test_limit_error_names_the_wait() -> None:
    count_one(limit=0)
    use = count_one(limit=0)

    assert use.limited
    assert 1 <= use.retry_after <= 3600
    assert abs(use.reset_at - (time.time() + use.retry_after)) <= 1.5
    assert count_one("192.0.2.2").retry_after == 0


@pytest.mark.usefixtures("limits")
def test_limit_counts_keys_and_groups_separately() -> None:
    count_one(), count_one()

    assert not count_one("192.0.2.2").limited
    assert not count(group="registration", key="192.0.2.1", limit=2, period=3600).limited
    assert count_one().limited


@pytest.mark.usefixtures("limits")
def test_peek_counts_nothing() -> None:
    def peeked() -> Usage:
        return peek(group="signin", key="192.0.2.1", limit=2, period=3600)

    assert [peeked().count, peeked().remaining] == [0, 2]
    count_one()
    assert [peeked().count, peeked().remaining, peeked().limited] == [1, 1, False]
    count_one()
    assert [peeked().count, peeked().remaining, peeked().limited] == [2, 0, True]
    assert peeked().retry_after > 0


def test_counting_two_limits_takes_one_round_trip(limits: Valkey) -> None:
    def both() -> list[Usage]:
        return count_all(Limit("signin", "192.0.2.1", 2, 3600), Limit("wrong_secret", "192.0.2.1", 1, 3600))

    assert [usage.count for usage in both()] == [1, 1]
    reads = client().info("stats")["total_reads_processed"]
    signin, guessed = both()
    assert (signin.count, signin.limited, guessed.count, guessed.limited) == (2, False, 2, True)
    # Reading the statistics is one of the two.
    assert client().info("stats")["total_reads_processed"] - reads == 2
    limits.kill()
    assert [usage.count for usage in both()] == [1, 1]


@pytest.mark.usefixtures("limits")
def test_limits_counted_together_are_those_counted_alone() -> None:
    alone = count_one()
    [together] = count_all(Limit("signin", "192.0.2.1", 2, 3600))
    assert (alone.count, together.count, count_one().count) == (1, 2, 3)
    assert abs(together.reset_at - alone.reset_at) <= 1


def test_taken_back_use_does_not_count(limits: Valkey) -> None:
    def guess() -> Usage:
        return count_all(Limit("wrong_secret", "192.0.2.1", 2, 3600))[0]

    guess(), take_back(guess(), guess())
    assert (guess().limited, guess().limited) == (False, True)
    used = guess()
    limits.client().flushall()
    # The counter of a window that has ended does not come back for ever.
    take_back(used)
    assert all(limits.client().ttl(name) > 0 for name in limits.client().keys("*"))
    limits.kill()
    assert [guess().count, guess().count] == [1, 2]
    take_back(guess())
    assert guess().count == 3


@pytest.mark.usefixtures("limits")
def test_new_window_starts_at_zero() -> None:
    while not (use := count_one(limit=1, period=2)).limited:
        pass
    assert use.retry_after <= 2

    time.sleep(use.retry_after + 1.05)

    assert not count_one(limit=1, period=2).limited


def test_server_stores_no_address_and_expires_counts(limits: Valkey) -> None:
    count_one(period=60)

    (name,) = limits.client().keys("*")
    assert b"192.0.2.1" not in name
    assert 60 <= limits.client().ttl(name) <= 60 + EXPIRATION_FUDGE


def test_limits_hold_when_the_server_dies(limits: Valkey) -> None:
    count_one()
    assert not degraded()
    limits.kill()

    assert [count_one().limited for _ in range(3)] == [False, False, True]
    assert degraded()


@pytest.mark.quiet_machine
def test_readiness_reports_the_server_and_its_absence(limits: Valkey) -> None:
    assert client().ping()
    assert is_connected(5)

    limits.hang()
    times = []
    for _ in range(5):
        began = time.monotonic()
        assert not is_connected(0.1)
        times.append(time.monotonic() - began)
    assert min(times) < 0.5
    limits.resume()
    limits.kill()
    assert not is_connected(0.1)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", "0.0.0.0"),
        ("unix:", "0.0.0.0"),
    ],
)
def test_client_address_without_proxies_is_the_peer(peer: str, address: str) -> None:
    assert client_address({"REMOTE_ADDR": peer}, 0) == address
    assert client_address({"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": "198.51.100.7"}, 0) == address


@pytest.mark.parametrize(
    ("hops", "forwarded", "address"),
    [
        (1, "198.51.100.7", "198.51.100.7"),
        (1, "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        (1, "forged, , 203.0.113.9,198.51.100.7 ", "198.51.100.7"),
        (2, "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        (2, "198.51.100.7, 10.0.0.2", "198.51.100.7"),
        (1, "198.51.100.7:54321", "198.51.100.7"),
        (1, "[2001:db8::7]:54321", "2001:db8::7"),
        (1, "[2001:db8::7]", "2001:db8::7"),
        (1, "2001:db8::7", "2001:db8::7"),
        (1, "::ffff:198.51.100.7", "198.51.100.7"),
    ],
)
def test_client_address_comes_from_the_outermost_own_proxy(hops: int, forwarded: str, address: str) -> None:
    assert client_address({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": forwarded}, hops) == address


@pytest.mark.parametrize(
    ("hops", "forwarded"),
    [
        (1, ""),
        (1, " , "),
        (2, "198.51.100.7"),
        (1, "unknown"),
        (1, "_hidden"),
        (1, "198.51.100.7,"),
        (1, "198.51.100.7:"),
        (1, "198.51.100.7:x"),
        (1, "198.51.100.7:65536"),
        (1, "198.51.100.7:1:2"),
        (1, "198.51.100.007"),
        (1, "198.51.100"),
        (1, "3325256711"),
        (1, "\u0661.2.3.4"),
        (1, "[198.51.100.7]"),
        (1, "[2001:db8::7"),
        (1, "[2001:db8::7]x"),
        (1, "2001:db8::7]"),
        (1, '"198.51.100.7"'),
        (1, "198.51.100.7 198.51.100.8"),
        (1, "198.51.100.7/32"),
        (1, " " * 100_000 + "198.51.100.7"),
        (1, "1" * 100_000),
        (10, "198.51.100.7" + "," * 8),
    ],
)
def test_client_address_ignores_short_or_malformed_headers(hops: int, forwarded: str) -> None:
    assert client_address({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": forwarded}, hops) == "10.0.0.1"


def test_ipv6_network_of_64_bits_counts_as_one_caller() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1/32"
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::1") != network_of("2001:db8:1:2::1")
    with pytest.raises(ValueError, match="nonsense"):
        network_of("nonsense")
