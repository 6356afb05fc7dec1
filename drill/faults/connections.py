"""What takes connections from requests: a tenant's database that accepts none, and a worker that sweeps all tenants."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from bench.home import ROOT
from drill.cluster import NotThere, wait_until
from drill.connections import OF_PLATFORM, OF_PROGRAM, counted_connections
from drill.instances import Program
from drill.load import Client, load
from drill.world import World

if TYPE_CHECKING:
    from bench.world import BenchTenant

# Longer than the longest pause between two attempts at a database that accepted no connection (docs/operating-tenants.md).
SERVED_AGAIN_SECONDS = 60.0
# So many callers of the stuck tenant try again and again. Without pauses they would take all connections within a minute.
CALLERS, CALLERS_PAUSE_SECONDS = 16, 0.5
SWEPT_TENANTS, READERS, READERS_PAUSE_SECONDS = 24, 8, 0.05
SWEEPER = "drill_sweeper"
# The tasks that visit all tenants, each again as soon as it has ended.
SWEEPS = ("figures", "seal", "purge", "index", "directories", "domains")


class Reader(Client):
    """Reads the records of random users of some tenants."""

    def __init__(self, port: int, tenants: list[BenchTenant], pause: float) -> None:
        super().__init__(port, tenants[0].tenant_id)
        self.tenants, self.pause = tenants, pause

    def take_turn(self, turn: int) -> None:
        tenant = random.choice(self.tenants)
        user = random.choice(tenant.users)
        status, body = self.call("GET", f"/uflow/user/enduser/{tenant.tenant_id}/{user}", token=tenant.token)
        self.heard.wrong += status == 200 and body.get("id") != str(user)


def database_is_stuck(world: World) -> None:
    """Lock catalogs that each new connection reads, and end the open connections, as a DROP DATABASE that hangs does."""
    tenant = world.tenants[0]
    callers = [Reader(world.port, [tenant], CALLERS_PAUSE_SECONDS) for _ in range(CALLERS)]
    with counted_connections(world, OF_PLATFORM, limit=_allowed()), load(callers):
        with world.tenant_database(tenant.tenant_id) as raw:
            raw.execute("LOCK TABLE pg_catalog.pg_class, pg_catalog.pg_attribute IN ACCESS EXCLUSIVE MODE")
            raw.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            time.sleep(world.seconds)
        wait_until(SERVED_AGAIN_SECONDS, lambda: _is_served(world, tenant.tenant_id), "The tenant is not served")


def _allowed() -> int:
    """Return how many connections the processes of the platform may lease on the server."""
    from django.db import connections

    from tenants.backend.leases import uses
    from tenants.database_servers.servers import MAIN

    # The primary may have changed since this process connected.
    connections.close_all()
    limit = next((use.limit for use in uses().values() if use.server == MAIN), None)
    if limit is None:
        raise NotThere("No process has leased connections.")
    return limit


def _is_served(world: World, tenant: UUID) -> bool:
    """Whether each writer of the tenant has had a change acknowledged within the last second."""
    return all(time.monotonic() - writer.last_change < 1.0 for writer in world.writers_of(tenant))


@contextmanager
def sweeping(world: World) -> Iterator[None]:
    """More tenants, and a worker whose tasks begin again at once; `act` starts it."""
    from django.db import connections

    from bench.world import tenants_with_users
    from tenants.backend.pool import POOL

    world.more_tenants = tenants_with_users(SWEPT_TENANTS, 2, lambda _: None)
    connections.close_all()
    POOL.close_idle()
    often = [word for task in SWEEPS for word in (f"--{task}-every", "1")]
    url = f"{world.home.environment['DATABASE_URL']}?application_name={SWEEPER}"
    command = [str(ROOT / "manage.py"), "tenant_worker", *often]
    sweeper = Program(world.home, "sweeping-worker", command, DATABASE_URL=url)
    world.programs = [sweeper]
    try:
        yield
    finally:
        sweeper.kill()


def all_tenants_are_swept(world: World) -> None:
    from tenants.database_servers.servers import BACKGROUND_CONNECTIONS

    (sweeper,) = world.programs
    readers = [Reader(world.port, world.more_tenants, READERS_PAUSE_SECONDS) for _ in range(READERS)]
    rounds, since = 0, _moment()
    sweeper.start()
    with counted_connections(world, OF_PROGRAM, SWEEPER, limit=BACKGROUND_CONNECTIONS), load(readers):
        deadline = time.monotonic() + world.seconds
        while time.monotonic() < deadline:
            time.sleep(0.5)
            if _oldest_visit() > since:
                rounds, since = rounds + 1, _moment()
    world.clients += readers
    if rounds < 2 or not world.connections:
        raise NotThere(f"The worker has collected the figures of all tenants {rounds} times, not at least twice.")
    sweeper.stop()


def _moment() -> datetime:
    from django.utils.timezone import now

    return now()


def _oldest_visit() -> datetime:
    """Return when the figures of the tenant that waits longest were collected."""
    from django.db.models import Min

    from console.metrics.models import TenantFigures
    from tenants.models import TenantDatabase
    from tenants.states import State

    visited = TenantFigures.objects.filter(tenant__database__status=State.ACTIVE, checked_at__isnull=False)
    if visited.count() < TenantDatabase.objects.filter(status=State.ACTIVE).count():
        return datetime.min.replace(tzinfo=_moment().tzinfo)
    oldest: datetime = visited.aggregate(oldest=Min("checked_at"))["oldest"]
    return oldest
