"""What is done to the platform and its servers in each drill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from bench.home import ROOT
from drill.cluster import Cluster, Node, NotThere, postgres_programs, wait_until
from drill.instances import Program
from drill.load import Writer, load
from drill.mails import MailServer, Registrant, missing_mails, overtaken_mails
from drill.network import missing_for_networks
from drill.sentinels import Sentinels
from drill.webhooks import Receiver, missing, out_of_order, receiving
from drill.world import World
from identity_platform.serving.embedded.postgres import identity_of_postgres

# Longer than the ttl of deploy/patroni/patroni.yml, so that a frozen primary is replaced before it returns.
FROZEN_SECONDS = 40.0
PROMOTED_SECONDS = 60.0


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


def instances_are_restarted(world: World) -> None:
    assert world.front is not None
    world.front.replace()


def host_is_lost(world: World) -> None:
    assert world.front is not None
    instance = world.front.instances[0]
    instance.kill()
    time.sleep(10)
    instance.start()


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


# Longer than statements may take (TENANT_STATEMENT_TIMEOUT_MS), several times.
SLOW_SECONDS = 12.0


def tenant_database_is_slow(world: World) -> None:
    with world.tenant_database(world.about[0]) as raw:
        raw.execute("LOCK TABLE userflow_enduser IN ACCESS EXCLUSIVE MODE")
        time.sleep(SLOW_SECONDS)


@contextmanager
def _on_second_server(world: World) -> Iterator[None]:
    """One tenant is on the second server for the time of the drill."""
    slug = world.slug(world.about[0])
    world.manage("move_tenant", slug, world.second_server().name)
    yield
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


DELIVERED_SECONDS = 120.0


@contextmanager
def _delivering(world: World) -> Iterator[None]:
    """Two deliverers, and an endpoint of each tenant; every acknowledged change must arrive, in order."""
    path = "/uflow/webhooks/endpoints"
    with receiving() as receiver, ExitStack() as stack:
        for tenant in world.tenants:
            endpoint = world.call(tenant, "POST", path, {"url": receiver.url, "events": ["end_user.updated"]})
            stack.callback(world.call, tenant, "DELETE", f"{path}/{endpoint['id']}")
        command = [str(ROOT / "manage.py"), "deliver_events"]
        world.programs = [Program(world.home, f"deliverer-{number}", command) for number in (1, 2)]
        for program in world.programs:
            stack.callback(program.kill)
            program.start()
        yield
        writers = [client for client in world.clients if isinstance(client, Writer)]
        with suppress(NotThere):
            wait_until(DELIVERED_SECONDS, lambda: not any(_undelivered(writers, receiver)), "Webhooks are missing")
        world.lost += sum(_undelivered(writers, receiver))
        world.wrong += sum(out_of_order(writer.names, receiver.names(str(writer.user))) for writer in writers)


def _undelivered(writers: list[Writer], receiver: Receiver) -> list[int]:
    return [missing(writer.names, receiver.names(str(writer.user))) for writer in writers]


def deliverer_is_killed(world: World) -> None:
    for program in world.programs:
        program.kill()
        time.sleep(3)
        program.start()
        time.sleep(5)


MAILS_ARRIVE_SECONDS = 180.0
MAIL_FAULT_SECONDS = 20.0


@contextmanager
def _mailing(world: World) -> Iterator[None]:
    """The instances send mails to a server of the drill, and one deliverer sends what they leave."""
    server = MailServer()
    server.start()
    world.mail_server = server
    world.settings = {"EMAIL_URL": server.url}
    command = [str(ROOT / "manage.py"), "deliver_events"]
    deliverer = Program(world.home, "mail-deliverer", command, **world.settings)
    world.programs = [deliverer]
    try:
        deliverer.start()
        yield
        with suppress(NotThere):
            wait_until(MAILS_ARRIVE_SECONDS, lambda: not missing_mails(world.registrants, server), "Mails are missing")
        world.lost += missing_mails(world.registrants, server)
        world.wrong += overtaken_mails(world.registrants, server)
    finally:
        deliverer.kill()
        server.stop()
        world.registrants = []


def mail_server_is_away(world: World) -> None:
    """The mail server stops, refuses, and hangs, while users register; an instance and the deliverer are killed meanwhile."""
    assert world.front is not None
    server, (deliverer,) = world.mail_server, world.programs
    assert server is not None
    world.registrants = [Registrant(world.port, tenant.tenant_id, tenant.client_id) for tenant in world.tenants]
    for registrant in world.registrants:
        registrant.keeps_connection = False
    with load(world.registrants):
        time.sleep(5)
        server.stop()
        time.sleep(MAIL_FAULT_SECONDS)
        instance = world.front.instances[0]
        world.front.nginx.reload(down=instance.port)
        time.sleep(1)
        instance.kill()
        deliverer.kill()
        deliverer.start()
        instance.start()
        world.front.nginx.reload()
        server.start()
        server.refuses = True
        time.sleep(MAIL_FAULT_SECONDS)
        server.refuses, server.hangs = False, True
        time.sleep(MAIL_FAULT_SECONDS)
        server.hangs = False
        time.sleep(5)


def _switch_to(cluster: Cluster, node: Node) -> None:
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
            _another_primary(cluster, primary.name)
    except OSError as failure:
        raise NotThere(f"Patroni does not make {node.name} the primary: {failure}") from failure
    finally:
        other.start()


# Room for more WAL than a drill writes until the disk is filled.
SPARE_MEGABYTES = 512


@contextmanager
def _on_a_small_disk(world: World) -> Iterator[None]:
    """The primary's data is on a file system of its own, which a standby gets first. The node is copied twice."""
    node = world.cluster.node("sync_standby")
    used = sum(file.stat().st_blocks * 512 for file in node.data.rglob("*") if file.is_file()) >> 20
    _empty(node)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={used + SPARE_MEGABYTES}m", "tmpfs", node.disk], check=True)
    try:
        shutil.chown(node.disk, *identity_of_postgres())
        node.start()
        world.cluster.wait_until_healthy()
        _switch_to(world.cluster, node)
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


def _not_root() -> str:
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
        _another_primary(world.cluster, primary.name)
        time.sleep(5)
    finally:
        ballast.unlink(missing_ok=True)


SLOW_DISK_SECONDS = 15.0
SLOW_FSYNC_SECONDS = 0.2


def _no_strace() -> str:
    if _not_root():
        return _not_root()
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
            _another_primary(world.cluster, primary.name)
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
            _another_primary(world.cluster, primary.name)
        finally:
            world.network.heal(name)
        time.sleep(5)


@contextmanager
def _with_sentinels(world: World) -> Iterator[None]:
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


def _no_faketime() -> str:
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


@dataclass(frozen=True)
class Drill:
    """A fault, and what must hold besides that nothing acknowledged is lost.

    `failures`: whether requests may fail. `gap`: the longest that a writer may go without an acknowledged write, in seconds.
    `others`: the fault is about one tenant; the longest gap of all others, of whose requests none may fail.
    `slowest`: the longest that a response may take, in seconds.
    `instances`: the load goes to so many instances behind nginx. `around`: what is there before and after the load.
    `lacks`: what this machine lacks for the drill, if anything. `apart`: each run has servers of its own.
    `machines`: each node has a machine of its own, which can be cut off.
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
    Drill(
        "instances_are_restarted",
        "two instances behind nginx are restarted one after the other",
        instances_are_restarted,
        failures=False,
        gap=3,
        instances=2,
    ),
    Drill(
        "tenant_is_moved",
        "`move_tenant` to another server and back",
        tenant_is_moved,
        failures=True,
        gap=15,
        others=3,
    ),
    Drill(
        "tenant_is_restored",
        "`restore_tenant`; what was acknowledged in that tenant after the backup is lost by definition",
        tenant_is_restored,
        failures=True,
        gap=15,
        others=3,
    ),
    Drill(
        "keys_are_rotated",
        "the key ring is rotated, with two rolling restarts, then all signing keys",
        keys_are_rotated,
        failures=False,
        gap=3,
        instances=2,
    ),
    Drill(
        "host_is_lost",
        "all processes of one of two instances behind nginx are killed for 10 s",
        host_is_lost,
        failures=True,
        gap=5,
        instances=2,
    ),
    Drill(
        "tenant_database_is_slow",
        "a table of one tenant is locked for 12 s",
        tenant_database_is_slow,
        failures=True,
        gap=15,
        others=3,
        slowest=3,
    ),
    Drill(
        "connections_are_exhausted",
        "the server of one tenant has no free connection for 10 s",
        connections_are_exhausted,
        failures=True,
        gap=15,
        others=3,
        slowest=3,
        around=_on_second_server,
    ),
    Drill(
        "deliverer_is_killed",
        "two deliverers of webhooks are killed one after the other; every acknowledged change arrives in order",
        deliverer_is_killed,
        failures=False,
        gap=3,
        around=_delivering,
    ),
    Drill(
        "mail_server_is_away",
        "the mail server is stopped, refuses, and hangs, 20 s each; an instance and the deliverer are killed meanwhile; every "
        "mail arrives, in its order",
        mail_server_is_away,
        failures=False,
        gap=3,
        instances=2,
        around=_mailing,
    ),
    Drill(
        "disk_is_full",
        "the disk of the primary is full",
        disk_is_full,
        failures=True,
        gap=30,
        around=_on_a_small_disk,
        lacks=_not_root,
    ),
    Drill(
        "disk_is_slow",
        "each flush to the primary's disk takes 200 ms more, for 15 s",
        disk_is_slow,
        failures=False,
        gap=3,
        lacks=_no_strace,
    ),
    Drill(
        "primary_is_cut_off",
        "the primary's machine is cut off from the network for 45 s, and is written to from inside",
        primary_is_cut_off,
        failures=True,
        gap=30,
        lacks=missing_for_networks,
        apart=True,
        machines=True,
    ),
    Drill(
        "primary_is_cut_off_from_nodes",
        "the primary's machine is cut off from the other nodes for 45 s, but not from the platform",
        primary_is_cut_off_from_nodes,
        failures=True,
        gap=30,
        lacks=missing_for_networks,
        apart=True,
        machines=True,
    ),
    Drill(
        "clock_is_90_s_off",
        "the clock of one of two instances is set 90 s ahead, then 90 s behind",
        clock_is_90_s_off,
        failures=False,
        gap=3,
        instances=2,
        lacks=_no_faketime,
    ),
    Drill(
        "clock_is_20_min_ahead",
        "the clock of one of two instances is set 20 min ahead",
        clock_is_20_min_ahead,
        failures=True,
        gap=3,
        instances=2,
        lacks=_no_faketime,
    ),
    Drill(
        "release_is_upgraded",
        "all tenants are migrated for a newer release, then two instances are replaced one after the other",
        release_is_upgraded,
        failures=False,
        gap=5,
        instances=2,
        apart=True,
    ),
    Drill(
        "valkey_fails_over",
        "the primary of a Valkey with a replica and three Sentinels is killed",
        valkey_fails_over,
        failures=False,
        gap=5,
        instances=2,
        around=_with_sentinels,
    ),
)
