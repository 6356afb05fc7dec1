"""What happens to the disk of the primary."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from drill.cluster import Node, NotThere
from drill.faults.nodes import PROMOTED_SECONDS, another_primary, switch_to
from drill.world import World
from identity_platform.serving.embedded.postgres import identity_of_postgres

# Room for more WAL than a drill writes until the disk is filled.
SPARE_MEGABYTES = 512


@contextmanager
def on_a_small_disk(world: World) -> Iterator[None]:
    """The primary's data is on a file system of its own, which a standby gets first. The node is copied twice."""
    node = world.cluster.node("sync_standby")
    used = sum(file.stat().st_blocks * 512 for file in node.data.rglob("*") if file.is_file()) >> 20
    _empty(node)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={used + SPARE_MEGABYTES}m", "tmpfs", node.disk], check=True)
    try:
        shutil.chown(node.disk, *identity_of_postgres())
        node.start()
        world.cluster.wait_until_healthy()
        switch_to(world.cluster, node)
        world.cluster.wait_until_healthy()
        yield
    finally:
        try:
            _empty(node)
        finally:
            subprocess.run(["umount", "--lazy", node.disk], check=True)
        node.start()
        world.cluster.wait_until_healthy()


def _empty(node: Node) -> None:
    """Stop a node and remove its data, so that it is copied when it starts again."""
    try:
        node.stop()
    finally:
        node.signal(signal.SIGKILL)
    shutil.rmtree(node.data, ignore_errors=True)


def not_root() -> str:
    return "" if os.getuid() == 0 else "needs root"


def disk_is_full(world: World) -> None:
    primary = world.cluster.node("leader")
    ballast = primary.disk / "ballast"
    try:
        with ballast.open("wb") as file, suppress(OSError):
            while file.write(bytes(1 << 20)):
                file.flush()
        # PostgreSQL does not notice before it needs another file.
        for _ in range(int(PROMOTED_SECONDS)):
            if any(role == "leader" and name != primary.name for name, role in world.cluster.roles().items()):
                break
            with suppress(psycopg.Error), psycopg.connect(**primary.address(), autocommit=True) as raw:
                raw.execute("SET statement_timeout = '2s'")
                raw.execute("SELECT pg_switch_wal()")
            time.sleep(1)
        another_primary(world.cluster, primary.name)
        time.sleep(5)
    finally:
        ballast.unlink(missing_ok=True)


SLOW_DISK_SECONDS = 15.0
SLOW_FSYNC_SECONDS = 0.2


def no_strace() -> str:
    if not_root():
        return not_root()
    return "" if shutil.which("strace") else "needs strace (Debian: apt install strace)"


def disk_is_slow(world: World) -> None:
    """Each flush to the primary's disk takes 200 ms more. To slow a real disk down takes a block device of its own."""
    delayed = f"inject=fsync,fdatasync:delay_enter={int(SLOW_FSYNC_SECONDS * 1e6)}"
    command = ["strace", "--follow-forks", "--quiet=all", "--output=/dev/null", "-e", "trace=fsync,fdatasync"]
    attached = [f"--attach={process.pid}" for process in world.cluster.node("leader").servers()]
    with subprocess.Popen([*command, "-e", delayed, *attached]) as tracer:
        try:
            time.sleep(SLOW_DISK_SECONDS)
            if tracer.poll() is not None:
                raise NotThere("strace cannot trace PostgreSQL here.")
        finally:
            # It detaches from all.
            tracer.send_signal(signal.SIGINT)
