"""What happens to the network of the primary's machine."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from drill.cluster import Node, postgres_programs
from drill.faults.nodes import another_primary
from drill.world import World
from identity_platform.serving.embedded.postgres import identity_of_postgres

CUT_OFF_SECONDS = 45.0
TABLE = "drill_inside"


class Insider(threading.Thread):
    """Writes to a node from its own machine, and keeps what was acknowledged."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.node, self.ended = node, threading.Event()
        self.acknowledged: list[int] = []

    def run(self) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            if self._insert(number):
                self.acknowledged.append(number)
            self.ended.wait(0.1)

    def _insert(self, number: int) -> bool:
        place = (
            f"host={self.node.machine.address} port={self.node.port} user=postgres dbname=postgres connect_timeout=2"
        )
        statement = ["-c", f"INSERT INTO {TABLE} VALUES ({number})"]
        command = [str(postgres_programs() / "psql"), "-X", "-q", place, *statement]
        environment = {"PGPASSWORD": self.node.superuser, "LC_ALL": "C.UTF-8"}
        inside = self.node.machine.inside(command, *identity_of_postgres())
        try:
            return subprocess.run(inside, env=environment, cwd="/", capture_output=True, timeout=3).returncode == 0
        except subprocess.TimeoutExpired:
            return False


@contextmanager
def _from_inside(world: World, node: Node) -> Iterator[None]:
    """Write to a node from its own machine during the block; afterwards all that was acknowledged must be there."""
    with psycopg.connect(**node.address(), autocommit=True) as raw:
        raw.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (number bigint)")
        raw.execute(f"TRUNCATE {TABLE}")
    insider = Insider(node)
    insider.start()
    try:
        yield
    finally:
        insider.ended.set()
        insider.join()
    world.cluster.wait_until_healthy()
    with psycopg.connect(**world.cluster.node("leader").address()) as raw:
        there = {number for (number,) in raw.execute(f"SELECT number FROM {TABLE}").fetchall()}
    world.lost += len(set(insider.acknowledged) - there)


def primary_is_cut_off(world: World) -> None:
    assert world.network is not None
    primary = world.cluster.node("leader")
    name = primary.name[-1]
    with _from_inside(world, primary):
        world.network.cut_off(name)
        try:
            time.sleep(CUT_OFF_SECONDS)
            another_primary(world.cluster, primary.name)
        finally:
            world.network.heal(name)
        time.sleep(5)


def primary_is_cut_off_from_nodes(world: World) -> None:
    assert world.network is not None
    primary = world.cluster.node("leader")
    name = primary.name[-1]
    with _from_inside(world, primary):
        world.network.cut_off_from(name, [other for other in world.network.machines if other != name])
        try:
            time.sleep(CUT_OFF_SECONDS)
            another_primary(world.cluster, primary.name)
        finally:
            world.network.heal(name)
        time.sleep(5)
