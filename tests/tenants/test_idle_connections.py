"""Which connections a process closes while none needs them: in the background all, else those beyond one of a tenant."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import connections

from tenants.backend.pool import Key, TenantConnectionPool, opening_at_once
from tenants.backend.raw import TenantConnection
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS, current_target
from tenants.errors import TenantConnectionsExhausted
from tests.machine.conftest import within
from tests.world import TestTenant


@pytest.fixture
def pool() -> Iterator[TenantConnectionPool]:
    background = TenantConnectionPool(budget=20, base=20, wait=30)
    background.yield_to_requests(most=2, wait=0.1, keep_seconds=0, open_per_second=math.inf)
    yield background
    background.close_idle()


@contextmanager
def entered(tenant: TestTenant) -> Iterator[tuple[Key, Callable[[], TenantConnection]]]:
    """Enter the tenant; yield its key in a pool and what opens a connection to its database."""
    with in_tenant(tenant.id):
        target = current_target()
        yield target.key, lambda: connections[TENANT_ALIAS]._open(target)


def test_given_back_connection_is_closed(pool: TenantConnectionPool, tenant: TestTenant) -> None:
    with entered(tenant) as (key, connect):
        raw = pool.take(key, connect)
        pool.give_back(key, raw)
    assert (raw.closed, pool.open) == (True, 0)


def test_connections_to_one_server_are_few(
    pool: TenantConnectionPool, tenant: TestTenant, other_tenant: TestTenant
) -> None:
    with entered(tenant) as (key, connect):
        first = pool.take(key, connect)
    with entered(other_tenant) as (other_key, connect):
        second = pool.take(other_key, connect)
        with pytest.raises(TenantConnectionsExhausted):
            pool.take(other_key, connect)
        pool.give_back(key, first)
        third = pool.take(other_key, connect)
    for raw in (second, third):
        pool.give_back(other_key, raw)
    assert pool.open == 0


def test_idle_connection_is_kept_for_as_long_as_the_process_says(
    pool: TenantConnectionPool, tenant: TestTenant
) -> None:
    pool.yield_to_requests(most=2, wait=0.1, keep_seconds=600, open_per_second=math.inf)
    with entered(tenant) as (key, connect):
        raw = pool.take(key, connect)
        pool.give_back(key, raw)
        assert pool.take(key, connect) is raw
        pool.give_back(key, raw)
    pool.close_unused(key[0], keep=sys.maxsize, idle_for=600)
    assert not raw.closed
    pool.close_unused(key[0], keep=sys.maxsize, idle_for=0)
    assert (raw.closed, pool.open) == (True, 0)


def test_idle_connection_makes_room_for_another_tenant(
    pool: TenantConnectionPool, tenant: TestTenant, other_tenant: TestTenant
) -> None:
    pool.yield_to_requests(most=1, wait=0.1, keep_seconds=600, open_per_second=math.inf)
    with entered(tenant) as (key, connect):
        idle = pool.take(key, connect)
        pool.give_back(key, idle)
    with entered(other_tenant) as (key, connect):
        raw = pool.take(key, connect)
        assert (idle.closed, pool.open) == (True, 1)
        pool.give_back(key, raw)


def test_one_idle_connection_of_a_tenant_is_kept(tenant: TestTenant, other_tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=1)
    for person in (tenant, other_tenant):
        with entered(person) as (key, connect):
            taken = [pool.take(key, connect) for _ in range(3)]
            for raw in taken:
                pool.give_back(key, raw)
    pool.close_surplus(key[0], idle_for=600)
    assert pool.open == 6
    pool.close_surplus(key[0], idle_for=0)
    assert pool.open == 2
    with entered(other_tenant) as (key, connect):
        # The one that was used last.
        assert pool.take(key, connect) is taken[-1]
    taken[-1].close()
    pool.close_idle()


def test_request_uses_the_connection_that_another_gives_back(tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=1, share=30)
    with entered(tenant) as (key, connect), ThreadPoolExecutor(1) as thread:
        used = pool.take(key, connect)
        waiting = thread.submit(pool.take, key, connect)
        pool.give_back(key, used)
        assert waiting.result(10) is used
        assert pool.open == 1
        pool.give_back(key, used)
    pool.close_idle()


def test_request_opens_another_where_none_is_given_back(tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=30, share=0.01)
    with entered(tenant) as (key, connect):
        taken = [pool.take(key, connect) for _ in range(2)]
        assert pool.open == 2
        for raw in taken:
            pool.give_back(key, raw)
    pool.close_idle()


def test_background_opens_few_connections_in_a_second(tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=30)
    pool.yield_to_requests(most=2, wait=0.1, keep_seconds=0, open_per_second=20)
    began = time.monotonic()
    with entered(tenant) as (key, connect):
        for _ in range(5):
            pool.give_back(key, pool.take(key, connect))
    # The first at once, the others each 50 ms after the one before.
    assert time.monotonic() - began >= 0.2


def test_background_opens_the_later_the_longer_it_takes(tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=30)
    pool.yield_to_requests(most=2, wait=0.1, keep_seconds=0, open_per_second=1000)
    with entered(tenant) as (key, connect):

        def connect_slowly() -> TenantConnection:
            time.sleep(0.03)
            return connect()

        began = time.monotonic()
        pool.give_back(key, pool.take(key, connect_slowly))
        pool.give_back(key, pool.take(key, connect))
    # Ten times as long as the first took.
    assert time.monotonic() - began >= 0.33


def test_connection_that_waits_for_its_turn_is_not_open(tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=30, share=0)
    pool.yield_to_requests(most=2, wait=0.1, keep_seconds=600, open_per_second=0.001)
    with entered(tenant) as (key, connect), ThreadPoolExecutor(1) as thread:
        used = pool.take(key, connect)
        waiting = thread.submit(pool.take, key, connect)
        assert not within(0.3, lambda: pool.open > 1)
        assert not waiting.done()
        # What is given back meanwhile is used instead.
        pool.give_back(key, used)
        assert waiting.result(10) is used
        pool.give_back(key, used)
    pool.close_idle()


def test_what_an_operator_waits_for_is_not_held_up(tenant: TestTenant) -> None:
    pool = TenantConnectionPool(budget=20, base=20, wait=30, share=0)
    pool.yield_to_requests(most=2, wait=0.1, keep_seconds=0, open_per_second=0.001)
    with entered(tenant) as (key, connect), opening_at_once():
        for _ in range(3):
            pool.give_back(key, pool.take(key, connect))
    assert pool.open == 0
