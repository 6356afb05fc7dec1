"""A tenant's database accepts no connection: its requests take few connections of the server, the others are served."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connections
from psycopg.errors import ConnectionTimeout

from tenants.backend.pool import TenantConnectionPool
from tenants.backend.raw import TenantConnection
from tenants.backend.stuck import MOST_OPENING, Key
from tenants.database_servers import servers
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS, current_target
from tenants.errors import TenantConnectionsExhausted
from tenants.models import DatabaseServer
from tests.machine.conftest import within
from tests.tenants.conftest import connect_to, throw_away
from tests.world import TestTenant, build_tenant

Connect = Callable[[], TenantConnection]
# Backends that wait for a lock before they are ready.
STARTING = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"


@pytest.fixture
def pair(second: DatabaseServer) -> Iterator[tuple[TestTenant, TestTenant]]:
    """Two tenants on one server."""
    tenants = build_tenant("stuck"), build_tenant("beside")
    yield tenants
    for tenant in tenants:
        throw_away(tenant.row)


def way_to(tenant: TestTenant) -> tuple[Key, Connect]:
    """Return the key of the tenant in a pool, and what opens a connection to its database."""
    with in_tenant(tenant.id):
        target = current_target()
    wrapper = connections[TENANT_ALIAS]
    return target.key, lambda: wrapper._open(target)


@contextmanager
def stuck(tenant: TestTenant) -> Iterator[None]:
    """Lock a catalog that each new connection reads."""
    with connect_to(tenant.row) as raw, raw.transaction():
        raw.execute("LOCK TABLE pg_catalog.pg_class, pg_catalog.pg_attribute IN ACCESS EXCLUSIVE MODE")
        yield


def test_stuck_database_takes_few_connections(pair: tuple[TestTenant, TestTenant], second: DatabaseServer) -> None:
    pool = TenantConnectionPool(budget=50, base=50, wait=10)
    (key, connect), (other_key, connect_beside) = way_to(pair[0]), way_to(pair[1])

    def attempt(_: int) -> tuple[type[Exception] | None, float]:
        began = time.monotonic()
        try:
            pool.give_back(key, pool.take(key, connect))
        except (psycopg.OperationalError, TenantConnectionsExhausted) as problem:
            return type(problem), time.monotonic() - began
        return None, time.monotonic() - began

    def served_beside() -> None:
        pool.give_back(other_key, pool.take(other_key, connect_beside))

    with stuck(pair[0]):
        with ThreadPoolExecutor(12) as threads:
            attempts = [threads.submit(attempt, number) for number in range(12)]
            while not all(running.done() for running in attempts):
                served_beside()
                time.sleep(0.05)
        assert {running.result()[0] for running in attempts} == {ConnectionTimeout}
        # Those that were left on the server, and that of the other tenant.
        assert pool.open == MOST_OPENING + 1
        with servers.maintenance(second) as raw:
            assert raw.execute(STARTING).fetchone() == (MOST_OPENING,)
        rejected, seconds = attempt(0)
        assert rejected is ConnectionTimeout
        assert seconds < 1
    assert within(30, lambda: attempt(0)[0] is None)
    assert pool.open == 2
    pool.close_idle()


def test_pauses_grow_only_while_other_databases_of_the_server_respond(pair: tuple[TestTenant, TestTenant]) -> None:
    pool = TenantConnectionPool(budget=50, base=50, wait=10)
    key, connect = way_to(pair[0])
    with stuck(pair[0]):
        for _ in range(3):
            assert within(10, lambda: _times_out(pool, key, connect, least=1.0))
    # A server that is silent as a whole is tried again every second.
    assert within(3, lambda: not _times_out(pool, key, connect))
    pool.close_idle()


def _times_out(pool: TenantConnectionPool, key: Key, connect: Connect, *, least: float = 0.0) -> bool:
    began = time.monotonic()
    try:
        pool.give_back(key, pool.take(key, connect))
    except ConnectionTimeout:
        return time.monotonic() - began >= least
    return False
