"""The drills: what is done, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from drill.faults import connections, disks, installations, messages, networks, nodes, platform, tenants
from drill.network import missing_for_networks
from drill.world import World


@dataclass(frozen=True)
class Drill:
    """A fault, and what must hold besides that nothing acknowledged is lost.

    `failures`: whether requests may fail. `gap`: the longest that a writer may go without an acknowledged write, in seconds.
    `others`: the fault is about one tenant; the longest gap of all others, of whose requests none may fail.
    `slowest`: the longest that a response may take, in seconds.
    `instances`: the load goes to so many instances behind nginx. `around`: what is there before and after the load.
    `lacks`: what this machine lacks for the drill, if anything. `apart`: each run has servers of its own.
    `machines`: each node has a machine of its own, which can be cut off.
    `users_only`: all clients are end users, and their tenants are on another server than the global database.
    `seconds`: how long the fault lasts, unless bin/drill is told otherwise; 0 if that cannot be chosen. `what` names it.
    """

    name: str
    what: str
    act: Callable[[World], None]
    failures: bool
    gap: float
    others: float | None = None
    slowest: float | None = None
    instances: int = 0
    around: Callable[[World], AbstractContextManager[None]] | None = None
    lacks: Callable[[], str] = str
    apart: bool = False
    machines: bool = False
    users_only: bool = False
    seconds: float = 0.0

    def described(self, seconds: float = 0.0) -> str:
        """Return what is done, for so many seconds if they were chosen."""
        return self.what.format(seconds=seconds or self.seconds)

    @property
    def wanted(self) -> str:
        """What the table says of it."""
        parts = [f"≤ {self.gap:g} s"]
        if self.slowest is not None:
            parts.append(f"every response ≤ {self.slowest:g} s")
        if self.others is not None:
            parts.append(f"other tenants ≤ {self.others:g} s, none of theirs failed")
        if not self.failures:
            parts.append("none failed")
        return ", ".join(parts)


DRILLS = (
    Drill("primary_crashes", "PostgreSQL of the primary is killed", nodes.primary_crashes, failures=True, gap=15),
    Drill(
        "primary_is_lost",
        "all processes of the primary's machine are killed",
        nodes.primary_is_lost,
        failures=True,
        gap=15,
    ),
    Drill(
        "primary_is_frozen",
        "all processes of the primary's machine stop for 40 s, its connections stay open",
        nodes.primary_is_frozen,
        failures=True,
        gap=15,
    ),
    Drill("switchover", "an operator makes a standby the primary", nodes.switchover, failures=True, gap=15),
    Drill(
        "global_database_is_lost",
        "all servers of the global database are killed for {seconds:g} s, while end users use tenants on another server",
        nodes.global_database_is_lost,
        failures=False,
        gap=3,
        slowest=3,
        around=tenants.all_on_second_server,
        users_only=True,
        seconds=60,
    ),
    Drill(
        "global_database_is_lost_at_a_restart",
        "the same, and two instances behind nginx are restarted one after the other meanwhile",
        nodes.global_database_is_lost,
        failures=False,
        gap=3,
        instances=2,
        around=tenants.all_on_second_server,
        users_only=True,
        seconds=60,
    ),
    Drill(
        "standby_is_lost", "the synchronous standby is killed for 10 s", nodes.standby_is_lost, failures=True, gap=15
    ),
    Drill(
        "etcd_member_is_lost",
        "one of three members of etcd is killed for 10 s",
        nodes.etcd_member_is_lost,
        failures=False,
        gap=3,
    ),
    Drill("valkey_is_killed", "Valkey is killed for 5 s", platform.valkey_is_killed, failures=False, gap=5),
    Drill(
        "worker_is_killed",
        "a worker process of the platform is killed",
        platform.worker_is_killed,
        failures=True,
        gap=5,
    ),
    Drill(
        "tenants_are_backed_up",
        "`backup_tenants`, with two test restores",
        platform.tenants_are_backed_up,
        failures=False,
        gap=3,
    ),
    Drill(
        "instances_are_restarted",
        "two instances behind nginx are restarted one after the other",
        platform.instances_are_restarted,
        failures=False,
        gap=3,
        instances=2,
    ),
    Drill(
        "tenant_is_moved",
        "`move_tenant` to another server and back",
        tenants.tenant_is_moved,
        failures=True,
        gap=15,
        others=3,
    ),
    Drill(
        "tenant_is_restored",
        "`restore_tenant`; what was acknowledged in that tenant after the backup is lost by definition",
        tenants.tenant_is_restored,
        failures=True,
        gap=15,
        others=3,
    ),
    Drill(
        "keys_are_rotated",
        "the key ring is rotated, with two rolling restarts, then all signing keys",
        platform.keys_are_rotated,
        failures=False,
        gap=3,
        instances=2,
    ),
    Drill(
        "host_is_lost",
        "all processes of one of two instances behind nginx are killed for 10 s",
        platform.host_is_lost,
        failures=True,
        gap=5,
        instances=2,
    ),
    Drill(
        "tenant_database_is_slow",
        "a table of one tenant is locked for 12 s",
        tenants.tenant_database_is_slow,
        failures=True,
        gap=15,
        others=3,
        slowest=3,
    ),
    Drill(
        "connections_are_exhausted",
        "the server of one tenant has no free connection for 10 s",
        tenants.connections_are_exhausted,
        failures=True,
        gap=15,
        others=3,
        slowest=3,
        around=tenants.on_second_server,
    ),
    Drill(
        "deliverer_is_killed",
        "two deliverers of webhooks are killed one after the other; every acknowledged change arrives in order",
        messages.deliverer_is_killed,
        failures=False,
        gap=3,
        around=messages.delivering,
    ),
    Drill(
        "mail_server_is_away",
        "the mail server is away for {seconds:g} s: it is stopped, refuses, and hangs; an instance and the deliverer are "
        "killed meanwhile; every mail arrives, in its order",
        messages.mail_server_is_away,
        failures=False,
        gap=3,
        instances=2,
        around=messages.mailing,
        seconds=60,
    ),
    Drill(
        "disk_is_full",
        "the disk of the primary is full",
        disks.disk_is_full,
        failures=True,
        gap=30,
        around=disks.on_a_small_disk,
        lacks=disks.not_root,
    ),
    Drill(
        "disk_is_slow",
        "each flush to the primary's disk takes 200 ms more, for 15 s",
        disks.disk_is_slow,
        failures=False,
        gap=3,
        lacks=disks.no_strace,
    ),
    Drill(
        "primary_is_cut_off",
        "the primary's machine is cut off from the network for 45 s, and is written to from inside",
        networks.primary_is_cut_off,
        failures=True,
        gap=30,
        lacks=missing_for_networks,
        apart=True,
        machines=True,
    ),
    Drill(
        "primary_is_cut_off_from_nodes",
        "the primary's machine is cut off from the other nodes for 45 s, but not from the platform",
        networks.primary_is_cut_off_from_nodes,
        failures=True,
        gap=30,
        lacks=missing_for_networks,
        apart=True,
        machines=True,
    ),
    Drill(
        "clock_is_90_s_off",
        "the clock of one of two instances is set 90 s ahead, then 90 s behind",
        platform.clock_is_90_s_off,
        failures=False,
        gap=3,
        instances=2,
        lacks=platform.no_faketime,
    ),
    Drill(
        "clock_is_20_min_ahead",
        "the clock of one of two instances is set 20 min ahead",
        platform.clock_is_20_min_ahead,
        failures=True,
        gap=3,
        instances=2,
        lacks=platform.no_faketime,
    ),
    Drill(
        "release_is_upgraded",
        "all tenants are migrated for a newer release, then two instances are replaced one after the other",
        platform.release_is_upgraded,
        failures=False,
        gap=5,
        instances=2,
        apart=True,
    ),
    Drill(
        "valkey_fails_over",
        "the primary of a Valkey with a replica and three Sentinels is killed",
        platform.valkey_fails_over,
        failures=False,
        gap=5,
        instances=2,
        around=platform.with_sentinels,
    ),
    Drill(
        "database_is_stuck",
        "the database of one tenant accepts no connection for {seconds:g} s, while its users try again and again",
        connections.database_is_stuck,
        failures=True,
        gap=180,
        others=3,
        seconds=120,
    ),
    Drill(
        "all_tenants_are_swept",
        "a `tenant_worker` visits all of 24 tenants without a pause, beside requests of random tenants",
        connections.all_tenants_are_swept,
        failures=False,
        gap=3,
        around=connections.sweeping,
        seconds=60,
    ),
    Drill(
        "installation_is_copied",
        "a copy of the global database runs beside production and is fenced, then it is adopted, then production again",
        installations.installation_is_copied,
        failures=True,
        gap=60,
        instances=2,
        around=installations.with_waiting_messages,
    ),
)
