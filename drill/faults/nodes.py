"""What happens to the nodes of the cluster: PostgreSQL with Patroni, and etcd."""

from __future__ import annotations

import json
import signal
import time
import urllib.request

from drill.cluster import Cluster, Node, NotThere, wait_until
from drill.world import World

# Longer than the ttl of deploy/patroni/patroni.yml, so that a frozen primary is replaced before it returns.
FROZEN_SECONDS = 40.0
PROMOTED_SECONDS = 60.0


def another_primary(cluster: Cluster, before: str) -> None:
    wait_until(
        PROMOTED_SECONDS,
        lambda: any(role == "leader" and name != before for name, role in cluster.roles().items()),
        "No other node was promoted",
    )


def primary_crashes(world: World) -> None:
    primary = world.cluster.node("leader")
    for process in primary.servers():
        process.send_signal(signal.SIGKILL)
    another_primary(world.cluster, primary.name)


def primary_is_lost(world: World) -> None:
    primary = world.cluster.node("leader")
    primary.signal(signal.SIGKILL)
    try:
        another_primary(world.cluster, primary.name)
    finally:
        primary.start()


def primary_is_frozen(world: World) -> None:
    primary = world.cluster.node("leader")
    primary.signal(signal.SIGSTOP)
    time.sleep(FROZEN_SECONDS)
    primary.signal(signal.SIGCONT)
    another_primary(world.cluster, primary.name)


def switchover(world: World) -> None:
    primary = world.cluster.node("leader")
    request = urllib.request.Request(
        f"http://127.0.0.1:{primary.api}/switchover",
        data=f'{{"leader": "{primary.name}"}}'.encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PROMOTED_SECONDS):
        another_primary(world.cluster, primary.name)


def global_database_is_lost(world: World) -> None:
    """Kill all nodes of the cluster; restart the instances meanwhile, if there are any behind nginx."""
    end = time.monotonic() + world.seconds
    for node in world.cluster.nodes:
        node.signal(signal.SIGKILL)
    try:
        if world.front is not None:
            time.sleep(world.seconds / 3)
            world.front.replace()
        time.sleep(max(0.0, end - time.monotonic()))
    finally:
        for node in world.cluster.nodes:
            node.start()


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


def switch_to(cluster: Cluster, node: Node) -> None:
    """Make a standby the primary. Only the synchronous one can be it, so the other one is stopped meanwhile."""
    primary = cluster.node("leader")
    [other] = [each for each in cluster.nodes if each not in (primary, node)]
    other.stop()
    try:
        wait_until(PROMOTED_SECONDS, lambda: cluster.roles().get(node.name) == "sync_standby", "No synchronous standby")
        body = json.dumps({"leader": primary.name, "candidate": node.name}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{primary.machine.address}:{primary.api}/switchover", body, headers)
        with urllib.request.urlopen(request, timeout=PROMOTED_SECONDS):
            another_primary(cluster, primary.name)
    except OSError as failure:
        raise NotThere(f"Patroni does not make {node.name} the primary: {failure}") from failure
    finally:
        other.start()
