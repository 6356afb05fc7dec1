"""What is done to the platform and its servers in each drill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from bench.home import ROOT, Home
from bench.servers import Server
from drill.cluster import Cluster, wait_until

# Longer than the ttl of deploy/patroni/patroni.yml, so that a frozen primary is replaced before it returns.
FROZEN_SECONDS = 40.0
PROMOTED_SECONDS = 60.0


@dataclass(frozen=True)
class World:
    """What a drill acts on."""

    home: Home
    cluster: Cluster
    server: Server

    def manage(self, *words: str) -> None:
        """Run a management command. Raises CalledProcessError."""
        command = [sys.executable, "-P", str(ROOT / "manage.py"), *words]
        environment = self.home.environment | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def _another_primary(cluster: Cluster, before: str) -> None:
    wait_until(
        PROMOTED_SECONDS,
        lambda: any(role == "leader" and name != before for name, role in cluster.roles().items()),
        "No other node was promoted",
    )


def primary_crashes(world: World) -> None:
    primary = world.cluster.node("leader")
    for process in primary.servers():
        process.send_signal(signal.SIGKILL)
    _another_primary(world.cluster, primary.name)


def primary_is_lost(world: World) -> None:
    primary = world.cluster.node("leader")
    primary.signal(signal.SIGKILL)
    try:
        _another_primary(world.cluster, primary.name)
    finally:
        primary.start()


def primary_is_frozen(world: World) -> None:
    primary = world.cluster.node("leader")
    primary.signal(signal.SIGSTOP)
    time.sleep(FROZEN_SECONDS)
    primary.signal(signal.SIGCONT)
    _another_primary(world.cluster, primary.name)


def switchover(world: World) -> None:
    primary = world.cluster.node("leader")
    request = urllib.request.Request(
        f"http://127.0.0.1:{primary.api}/switchover",
        data=f'{{"leader": "{primary.name}"}}'.encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PROMOTED_SECONDS):
        _another_primary(world.cluster, primary.name)


def standby_is_lost(world: World) -> None:
    standby = world.cluster.node("sync_standby")
    standby.signal(signal.SIGKILL)
    time.sleep(10)
    standby.start()


def etcd_member_is_lost(world: World) -> None:
    member = world.cluster.members[0]
    member.signal(signal.SIGKILL)
    time.sleep(10)
    member.start()


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


@dataclass(frozen=True)
class Drill:
    """A fault, and what must hold besides that nothing acknowledged is lost.

    `failures`: whether requests may fail. `gap`: the longest that a writer may go without an acknowledged write, in seconds.
    """

    name: str
    what: str
    act: Callable[[World], None]
    failures: bool
    gap: float


DRILLS = (
    Drill("primary_crashes", "PostgreSQL of the primary is killed", primary_crashes, failures=True, gap=15),
    Drill(
        "primary_is_lost", "all processes of the primary's machine are killed", primary_is_lost, failures=True, gap=15
    ),
    Drill(
        "primary_is_frozen",
        "all processes of the primary's machine stop for 40 s, its connections stay open",
        primary_is_frozen,
        failures=True,
        gap=15,
    ),
    Drill("switchover", "an operator makes a standby the primary", switchover, failures=True, gap=15),
    Drill("standby_is_lost", "the synchronous standby is killed for 10 s", standby_is_lost, failures=True, gap=15),
    Drill(
        "etcd_member_is_lost",
        "one of three members of etcd is killed for 10 s",
        etcd_member_is_lost,
        failures=False,
        gap=3,
    ),
    Drill("valkey_is_killed", "Valkey is killed for 5 s", valkey_is_killed, failures=False, gap=5),
    Drill("worker_is_killed", "a worker process of the platform is killed", worker_is_killed, failures=True, gap=5),
    Drill(
        "tenants_are_backed_up",
        "`backup_tenants`, with two test restores",
        tenants_are_backed_up,
        failures=False,
        gap=3,
    ),
)
