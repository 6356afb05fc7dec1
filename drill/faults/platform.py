"""What happens to the processes of the platform, their cache, their keys and their clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from drill.cluster import wait_until
from drill.faults.nodes import PROMOTED_SECONDS
from drill.sentinels import Sentinels
from drill.world import World


def worker_is_killed(world: World) -> None:
    workers = psutil.Process(world.server.process.pid).children()
    workers[0].kill()
    time.sleep(5)


def valkey_is_killed(world: World) -> None:
    for process in psutil.process_iter(["name", "cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if process.info["name"] == "valkey-server" and str(world.home.folder) in words:
            process.kill()
    time.sleep(5)
    _valkey(world)


def _valkey(world: World) -> None:
    from identity_platform.serving import embedded

    embedded.attach(var=world.home.folder, postgres=False)


def tenants_are_backed_up(world: World) -> None:
    world.manage("backup_tenants", str(world.home.folder / "backups"), "--test", "2", "--keep", "1")


def instances_are_restarted(world: World) -> None:
    assert world.front is not None
    world.front.replace()


def host_is_lost(world: World) -> None:
    assert world.front is not None
    instance = world.front.instances[0]
    instance.kill()
    time.sleep(10)
    instance.start()


def keys_are_rotated(world: World) -> None:
    """Follow docs/keeping-credentials.md from step 3: all processes have both keys. The next run rotates back."""
    assert world.front is not None
    old, new = world.home.environment["ENCRYPTION_KEYS"].split(",")
    both = f"{new},{old}"
    world.front.replace(ENCRYPTION_KEYS=both)
    world.manage("rotate_encryption_keys", ENCRYPTION_KEYS=both)
    world.front.replace(ENCRYPTION_KEYS=new)
    world.manage("rotate_encryption_keys", "--check", ENCRYPTION_KEYS=new)
    world.home.environment["ENCRYPTION_KEYS"] = both
    for tenant in world.tenants:
        world.manage("rotate_signing_keys", "--at-once", "--tenant", world.slug(tenant.tenant_id))
    world.manage("rotate_signing_keys", "--at-once")


@contextmanager
def with_sentinels(world: World) -> Iterator[None]:
    """The instances use a Valkey with a replica and three Sentinels."""
    world.sentinels = Sentinels(world.home.folder / "sentinels")
    try:
        world.sentinels.start()
        world.settings = {"REDIS_URL": world.sentinels.url}
        yield
    finally:
        world.sentinels.end()


def valkey_fails_over(world: World) -> None:
    assert world.sentinels is not None
    assert world.front is not None
    instances = world.front.instances
    lost = world.sentinels.fail_over()
    wait_until(
        10, lambda: all(instance.is_whole() for instance in instances), "An instance does not find the new primary"
    )
    lost.start()
    wait_until(PROMOTED_SECONDS, world.sentinels.is_complete, "The Valkey that was lost is no replica")


STEP_LASTS_SECONDS = 20.0


def no_faketime() -> str:
    return "" if _faketime() else "needs libfaketime (Debian: apt install libfaketime)"


def _faketime() -> Path | None:
    return next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


def _step_clock(world: World, *steps: int) -> None:
    """Restart one instance with a clock of its own, then set that by so many seconds, one step after the other."""
    assert world.front is not None
    file = world.home.folder / "clock"
    file.write_text("+0\n", encoding="ascii")
    # Waits and timeouts use the monotonic clock, which does not step on a real machine either.
    settings = {
        "LD_PRELOAD": str(_faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    world.front.restart(world.front.instances[0], **settings)
    for step in steps:
        file.write_text(f"{step:+d}\n", encoding="ascii")
        time.sleep(STEP_LASTS_SECONDS)
    file.write_text("+0\n", encoding="ascii")


def clock_is_90_s_off(world: World) -> None:
    _step_clock(world, 90, -90)


def clock_is_20_min_ahead(world: World) -> None:
    _step_clock(world, 20 * 60)


NEWER = {"DJANGO_SETTINGS_MODULE": "tests.tenants.newer_release.settings"}


def release_is_upgraded(world: World) -> None:
    """Follow "Upgrading" of docs/running-in-production.md with a release that has one migration more."""
    assert world.front is not None
    world.manage("prepare", "--no-demo", **NEWER)
    world.manage("migrate_tenants", "--dry-run", **NEWER)
    world.manage("migrate_tenants", "--jobs", "4", **NEWER)
    world.front.replace(**NEWER)
    world.manage("check_tenants", "--repair", "--yes", **NEWER)
    # What is checked after the drill is the newer release's.
    world.home.environment.update(NEWER)
