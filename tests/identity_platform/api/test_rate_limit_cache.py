"""The counters of django-ratelimit: exact while Valkey responds, and available when it does not."""

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import REGISTRY

from identity_platform.api.cache import MOST_LOCAL_KEYS, RateLimitCache
from tests.identity_platform.api.private_valkey import Valkey


def counter_at(url: str) -> RateLimitCache:
    return RateLimitCache(url, {"KEY_PREFIX": "test"})


def count(cache: RateLimitCache, key: str = "key", ttl: int = 60) -> int:
    """Count one use as django-ratelimit does."""
    return 1 if cache.add(key, 1, ttl) else cache.incr(key)


def peek(cache: RateLimitCache, key: str = "key") -> int:
    """Read the total as django-ratelimit does."""
    total: int = 0 if cache.add(key, 0, 60) else cache.get(key, 0)
    return total


def fallbacks() -> float:
    return REGISTRY.get_sample_value("identity_ratelimit_fallback_total") or 0.0


def test_count_increments_and_peek_does_not(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)

    assert [peek(cache), count(cache), count(cache), peek(cache), peek(cache), count(cache)] == [0, 1, 2, 2, 2, 3]
    assert count(cache, "other") == 1


def test_count_takes_one_round_trip(valkey: Valkey) -> None:
    def reads() -> int:
        return int(observer.info("stats")["total_reads_processed"])

    observer, cache = valkey.client(), counter_at(valkey.url)
    count(cache)
    before = reads()

    for _ in range(10):
        count(cache)
        peek(cache)

    # Reading the statistics is one of them.
    assert reads() - before == 10 + 10 + 1


def test_count_expires(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)
    assert count(cache, ttl=1) == 1
    # The second does not lengthen it.
    count(cache, ttl=1)

    time.sleep(1.05)

    assert count(cache, ttl=1) == 1


def test_eight_threads_count_exactly(valkey: Valkey) -> None:
    def hundred(_: int) -> list[int]:
        cache = counter_at(valkey.url)
        return [count(cache) for _ in range(100)]

    with ThreadPoolExecutor(8) as threads:
        totals = [total for part in threads.map(hundred, range(8)) for total in part]

    assert sorted(totals) == list(range(1, 801))


def _count_in_child(url: str, responses: "multiprocessing.Queue[list[int]]") -> None:
    cache = counter_at(url)
    responses.put([count(cache) for _ in range(50)])


def test_forked_processes_count_exactly(valkey: Valkey) -> None:
    parent = counter_at(valkey.url)
    totals = [count(parent)]  # a connection is open when the fork happens
    processes = multiprocessing.get_context("fork")
    responses: multiprocessing.Queue[list[int]] = processes.Queue()
    children = [processes.Process(target=_count_in_child, args=(valkey.url, responses)) for _ in range(4)]

    for child in children:
        child.start()
    totals += [count(parent) for _ in range(50)]
    for child in children:
        totals += responses.get(timeout=20)
        child.join(20)

    assert sorted(totals) == list(range(1, 252))


def test_flush_restarts_the_count(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)
    assert [count(cache), count(cache)] == [1, 2]

    valkey.client().flushall()
    valkey.client().script_flush()

    assert [count(cache), count(cache)] == [1, 2]
    assert not cache.degraded


def test_server_killed_under_load_fails_no_request(valkey: Valkey) -> None:
    def hundreds(thread: int) -> list[int]:
        cache = counter_at(valkey.url)
        totals = []
        for number in range(300):
            if (thread, number) == (0, 100):
                valkey.kill()
            totals.append(count(cache))
        return totals

    with ThreadPoolExecutor(8) as threads:
        totals = [total for part in threads.map(hundreds, range(8)) for total in part]

    # Each total occurs at most twice: on the server, and in this process, which starts at 1 again.
    assert len(totals) == 2400
    assert max(totals.count(total) for total in set(totals)) <= 2
    assert counter_at(valkey.url).degraded


def test_process_counts_while_the_server_is_away(absent_valkey: Valkey) -> None:
    cache = counter_at(absent_valkey.url)
    before = fallbacks()

    assert [peek(cache), count(cache), count(cache), peek(cache), count(cache, "other")] == [0, 1, 2, 2, 1]
    assert fallbacks() - before == 5
    assert cache.degraded
    assert REGISTRY.get_sample_value("identity_ratelimit_degraded") == 1


def test_process_counts_in_windows_too(absent_valkey: Valkey) -> None:
    cache = counter_at(absent_valkey.url)
    assert count(cache, ttl=1) == 1
    count(cache, ttl=1)

    time.sleep(1.05)

    assert [peek(cache), count(cache, ttl=1)] == [0, 1]


def test_eight_threads_share_the_process_count(absent_valkey: Valkey) -> None:
    def hundred(_: int) -> list[int]:
        cache = counter_at(absent_valkey.url)
        return [count(cache) for _ in range(100)]

    with ThreadPoolExecutor(8) as threads:
        totals = [total for part in threads.map(hundred, range(8)) for total in part]

    assert sorted(totals) == list(range(1, 801))


@pytest.mark.quiet_machine
def test_returned_server_is_used_again_after_a_second(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)
    for number in range(5):  # again if the machine was busy
        began = time.monotonic()
        valkey.vanish()
        assert count(cache, f"key-{number}") == 1
        valkey.come_back()
        again = count(cache, f"key-{number}")
        if time.monotonic() - began < 1:
            break

    assert again == 2, "the server must not be asked for a second"
    time.sleep(1.05)

    assert count(cache, f"key-{number}") == 1
    assert not cache.degraded
    assert REGISTRY.get_sample_value("identity_ratelimit_degraded") == 0


def test_restarted_server_causes_no_error(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)
    assert count(cache) == 1
    valkey.kill()
    valkey.start()

    assert [count(cache), count(cache)] == [1, 2]
    assert not cache.degraded, "the pool must notice by itself that its connection is dead"


@pytest.mark.quiet_machine
def test_hung_server_costs_its_timeout_once_a_second(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)
    assert [count(cache), count(cache)] == [1, 2]
    valkey.hang()

    for number in range(5):  # again if the machine was busy
        began = time.monotonic()
        assert count(cache, f"key-{number}") == 1
        first = time.monotonic() - began
        assert [count(cache, f"key-{number}") for _ in range(100)] == list(range(2, 102))
        rest = time.monotonic() - began - first
        assert first > 0.2
        if first < 0.6 and rest < 0.2:
            break
        time.sleep(1.05)
    valkey.resume()

    assert (first < 0.6, rest < 0.2) == (True, True), (first, rest)
    assert cache.degraded


def test_late_reply_is_not_read_as_the_next(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)
    assert [count(cache, "a"), count(cache, "a")] == [1, 2]
    valkey.hang()
    count(cache, "a")
    valkey.resume()
    time.sleep(1.05)

    # The count that timed out was received nevertheless.
    assert count(cache, "b") == 1
    assert count(cache, "a") == 4


@pytest.mark.quiet_machine
def test_one_request_at_a_time_tries_a_hung_server(valkey: Valkey) -> None:
    count(counter_at(valkey.url))
    valkey.hang()
    count(counter_at(valkey.url))

    def timed(_: int) -> float:
        began = time.monotonic()
        count(counter_at(valkey.url))
        return time.monotonic() - began

    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):  # again if the machine was busy
            time.sleep(1.05)
            times = sorted(threads.map(timed, range(8)))
            if times[-2] < 0.2:
                break
    valkey.resume()

    assert times[-1] > 0.2
    assert times[-2] < 0.2


def test_read_only_server_fails_no_request(valkey: Valkey) -> None:
    valkey.client().config_set("maxmemory", "1")
    cache = counter_at(valkey.url)

    assert [count(cache), count(cache)] == [1, 2]
    assert cache.degraded


def test_process_count_is_bounded_and_drops_the_oldest(absent_valkey: Valkey) -> None:
    cache = counter_at(absent_valkey.url)

    for number in range(MOST_LOCAL_KEYS + 1):
        count(cache, f"key-{number}")

    assert count(cache, f"key-{MOST_LOCAL_KEYS}") == 2
    assert count(cache, "key-1") == 2
    assert count(cache, "key-0") == 1


def test_cache_rejects_general_use(valkey: Valkey) -> None:
    cache = counter_at(valkey.url)

    for value in (2, "1", True, None):
        with pytest.raises(ValueError, match="one by one"):
            cache.add("key", value, 60)
    with pytest.raises(ValueError, match="add"):
        cache.incr("key")
    assert cache.get("key", "default") == "default"
    count(cache)
    assert cache.get("key") == 1
