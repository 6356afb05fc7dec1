"""What happens to one tenant, or to the connections to many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from drill.cluster import NotThere
from drill.world import World


def tenant_is_moved(world: World) -> None:
    second = world.second_server().name
    slug = world.slug(world.about[0])
    world.manage("move_tenant", slug, second)
    world.manage("move_tenant", slug, "main")


def tenant_is_restored(world: World) -> None:
    slug = world.slug(world.about[0])
    file = world.home.folder / f"{slug}.backup"
    writers = world.writers_of(world.about[0])
    for writer in writers:
        writer.begin_backup()
    world.manage("backup_tenant", slug, str(file))
    for writer in writers:
        writer.end_backup()
    time.sleep(2)
    for writer in writers:
        writer.begin_restore()
    world.manage("restore_tenant", slug, str(file), "--yes")
    for writer in writers:
        writer.end_restore()


# Longer than statements may take (TENANT_STATEMENT_TIMEOUT_MS), several times.
SLOW_SECONDS = 12.0


def tenant_database_is_slow(world: World) -> None:
    with world.tenant_database(world.about[0]) as raw:
        raw.execute("LOCK TABLE userflow_enduser IN ACCESS EXCLUSIVE MODE")
        time.sleep(SLOW_SECONDS)


@contextmanager
def on_second_server(world: World) -> Iterator[None]:
    """One tenant is on the second server for the time of the drill."""
    slug = world.slug(world.about[0])
    world.manage("move_tenant", slug, world.second_server().name)
    yield
    world.manage("move_tenant", slug, "main")


@contextmanager
def all_on_second_server(world: World) -> Iterator[None]:
    """All tenants are on the second server for the time of the drill."""
    slugs = [world.slug(tenant.tenant_id) for tenant in world.tenants]
    second = world.second_server().name
    for slug in slugs:
        world.manage("move_tenant", slug, second)
    yield
    for slug in slugs:
        world.manage("move_tenant", slug, "main")


def connections_are_exhausted(world: World) -> None:
    server = world.second_server()
    with ExitStack() as stack, psycopg.connect(**server.address(), autocommit=True) as superuser:
        deadline = time.monotonic() + 10
        taken = 0
        while time.monotonic() < deadline:
            # Again and again: the platform opens new connections meanwhile.
            superuser.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE usename = 'identity' AND application_name <> 'drill'"
            )
            try:
                while True:
                    address = f"{server.url}postgres?application_name=drill"
                    stack.enter_context(psycopg.connect(address, connect_timeout=2))
                    taken += 1
            except psycopg.OperationalError:
                time.sleep(0.5)
        if not taken:
            raise NotThere("The server had no free connection.")
