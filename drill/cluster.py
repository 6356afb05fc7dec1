"""Three PostgreSQL servers under Patroni with three members of etcd, on ports of this machine, as deploy/patroni has them."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg

from bench.home import ROOT
from bench.servers import free_port
from drill.network import Machine
from identity_platform.serving.embedded.folders import let_through
from identity_platform.serving.embedded.postgres import identity_of_postgres

ETCD = "/usr/bin/etcd"
LOOPBACK = Machine()
CONFIGURATION = "patroni.yml"
HEALTHY_SECONDS = 240.0
STOP_SECONDS = 60.0
# Of a server for a few tenants: what the checks of the platform's start ask for.
SERVER_CONNECTIONS = 100


class NotThere(Exception):
    """A program is missing, or a part did not become healthy."""


def wait_until(seconds: float, holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Raises NotThere."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise NotThere(f"{what}: not within {seconds:g} s.")
        time.sleep(0.1)


class Process:
    """A program of the cluster, which can be killed, frozen and started again."""

    def __init__(
        self, name: str, command: list[str], log: Path, machine: Machine = LOOPBACK, **environment: str
    ) -> None:
        self.name, self.command, self.log, self.machine = name, command, log, machine
        self.environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environment}
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        uid, gid = identity_of_postgres()
        apart = bool(self.machine.namespace)
        # In a namespace the user is changed only there.
        other = os.getuid() == 0 and not apart
        output: IO[bytes]
        with self.log.open("ab") as output:
            self.running = subprocess.Popen(
                self.machine.inside(self.command, uid, gid) if apart else self.command,
                env=self.environment,
                stdout=output,
                stderr=output,
                cwd="/",
                user=uid if other else None,
                group=gid if other else None,
                extra_groups=[] if other else None,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """Return the process and its children."""
        assert self.running is not None
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.running.pid)
            return [first, *first.children(recursive=True)]
        return []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of them at once; after SIGKILL wait until they are gone."""
        found = self.processes()
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if number == signal.SIGKILL:
            if self.running is not None:
                self.running.wait()
            psutil.wait_procs(found, timeout=10)

    def stop(self) -> None:
        """End it in order: Patroni alone gets the signal, and stops PostgreSQL."""
        assert self.running is not None
        self.running.terminate()
        self.running.wait(STOP_SECONDS)

    def end(self) -> None:
        """Kill it if it was started."""
        if self.running is not None:
            self.signal(signal.SIGKILL)


class Node(Process):
    """A PostgreSQL server with its Patroni."""

    def __init__(self, name: str, home: Path, etcd: str, passwords: tuple[str, str], machine: Machine) -> None:
        self.port, self.api = free_port(), free_port()
        # A folder that can be a file system of its own.
        self.disk = home / f"{name}-disk"
        self.data = self.disk / "data"
        self.superuser = passwords[0]
        postgres, patroni = f"{machine.address}:{self.port}", f"{machine.address}:{self.api}"
        super().__init__(
            name,
            [sys.executable, "-P", "-m", "patroni", str(home / CONFIGURATION)],
            home / f"{name}.log",
            machine,
            PATRONI_NAME=name,
            PATRONI_RESTAPI_LISTEN=patroni,
            PATRONI_RESTAPI_CONNECT_ADDRESS=patroni,
            PATRONI_POSTGRESQL_LISTEN=postgres,
            PATRONI_POSTGRESQL_CONNECT_ADDRESS=postgres,
            PATRONI_POSTGRESQL_DATA_DIR=str(self.data),
            PATRONI_POSTGRESQL_BIN_DIR=str(postgres_programs()),
            PATRONI_POSTGRESQL_PGPASS=str(home / f"{name}.pgpass"),
            PATRONI_ETCD3_HOSTS=etcd,
            PATRONI_SUPERUSER_USERNAME="postgres",
            PATRONI_SUPERUSER_PASSWORD=passwords[0],
            PATRONI_REPLICATION_USERNAME="replicator",
            PATRONI_REPLICATION_PASSWORD=passwords[1],
        )

    def processes(self) -> list[psutil.Process]:
        """Return Patroni, PostgreSQL, which is no child of Patroni, and their children."""
        return [*super().processes(), *self.servers()]

    def servers(self) -> list[psutil.Process]:
        """Return PostgreSQL and its children."""
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            first = psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n", 1)[0]))
            return [first, *first.children(recursive=True)]
        return []

    def state(self) -> dict[str, Any]:
        """Return what Patroni says of the cluster; nothing if it does not answer."""
        with suppress(OSError, ValueError):
            url = f"http://{self.machine.address}:{self.api}/cluster"
            with urllib.request.urlopen(url, timeout=2) as response:
                return dict(json.load(response))
        return {}

    def address(self, database: str = "postgres") -> dict[str, Any]:
        return {
            "host": self.machine.address, "port": self.port, "user": "postgres", "password": self.superuser,
            "dbname": database, "connect_timeout": 2,
        }  # fmt: skip


class SingleServer(Process):
    """A PostgreSQL server without standbys."""

    def __init__(self, name: str, home: Path) -> None:
        self.port = free_port()
        self.data = home / f"{name}-data"
        self.password = secrets.token_urlsafe(16)
        programs = postgres_programs()
        command = [str(programs / "postgres"), "-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""]
        super().__init__(name, [*command, "-c", f"max_connections={SERVER_CONNECTIONS}"], home / f"{name}.log")
        self.creation = [str(programs / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust", "-N"]

    def create(self) -> None:
        """Create and start it, with a role for the platform. Raises NotThere."""
        creation = Process(f"{self.name}-initdb", self.creation, self.log)
        creation.start()
        assert creation.running is not None
        if creation.running.wait(60) != 0:
            raise NotThere(f"{self.name} was not created: {self.log.read_text()[-2000:]}")
        self.start()
        wait_until(30, self._answers, f"{self.name} does not answer")
        with psycopg.connect(**self.address(), autocommit=True) as raw:
            raw.execute(f"CREATE ROLE identity LOGIN CREATEDB PASSWORD '{self.password}'")

    def address(self, database: str = "postgres") -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": database, "connect_timeout": 2}

    @property
    def url(self) -> str:
        return f"postgresql://identity:{self.password}@127.0.0.1:{self.port}/"

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(**self.address()):
            return True
        return False


class Cluster:
    """The nodes and the members of etcd, one of each on each of three machines, by default all on this one."""

    def __init__(self, home: Path, machines: Mapping[str, Machine] = dict.fromkeys("abc", LOOPBACK)) -> None:
        if not Path(ETCD).exists():
            raise NotThere(f"{ETCD} is missing (Debian: apt install etcd-server).")
        if importlib.util.find_spec("patroni") is None:
            raise NotThere("Patroni is missing (requirements/ci.txt).")
        self.home = home
        uid, gid = identity_of_postgres()
        home.mkdir(parents=True)
        os.chown(home, uid, gid)
        interpreter = Path(sys.executable)
        for path in (home, interpreter, interpreter.resolve()):
            let_through(path.parents, uid, gid)
        # The server's user need not be able to read this tree.
        (home / CONFIGURATION).write_bytes((ROOT / "deploy" / "patroni" / CONFIGURATION).read_bytes())
        self.members = _etcd(home, machines)
        hosts = ",".join(
            member.environment["ETCD_ADVERTISE_CLIENT_URLS"].removeprefix("http://") for member in self.members
        )
        passwords = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.password = secrets.token_urlsafe(16)
        self.nodes = [Node(f"node{name}", home, hosts, passwords, machine) for name, machine in machines.items()]
        for node in self.nodes:
            node.disk.mkdir()
            os.chown(node.disk, uid, gid)
        try:
            for process in self.processes:
                process.start()
            self.wait_until_healthy()
            self._create_database()
        except BaseException:
            self.end()
            raise

    @property
    def processes(self) -> list[Process]:
        return [*self.members, *self.nodes]

    @property
    def url(self) -> str:
        """The URL of the platform's global database, with all nodes."""
        hosts = ",".join(f"{node.machine.address}:{node.port}" for node in self.nodes)
        return f"postgresql://identity:{self.password}@{hosts}/identity"

    def roles(self) -> dict[str, str]:
        """Return the role of each node that runs, such as leader and sync_standby; nothing if no node answers."""
        for node in self.nodes:
            if members := node.state().get("members"):
                return {member["name"]: member["role"] for member in members if member.get("state") in RUNNING}
        return {}

    def node(self, role: str) -> Node:
        """Return the node with this role. Raises NotThere."""
        name = next((name for name, found in self.roles().items() if found == role), None)
        if name is None:
            raise NotThere(f"No node is {role}.")
        return next(node for node in self.nodes if node.name == name)

    def is_healthy(self) -> bool:
        """Whether all nodes run, one as the primary and one as its synchronous standby."""
        roles = list(self.roles().values())
        return len(roles) == len(self.nodes) and "leader" in roles and "sync_standby" in roles

    def wait_until_healthy(self) -> None:
        """Raises NotThere."""
        wait_until(HEALTHY_SECONDS, self.is_healthy, "The cluster is not healthy")

    def end(self) -> None:
        for process in reversed(self.processes):
            process.end()

    def _create_database(self) -> None:
        with psycopg.connect(**self.node("leader").address(), autocommit=True) as raw:
            raw.execute(f"CREATE ROLE identity LOGIN CREATEDB PASSWORD '{self.password}'")
            raw.execute("CREATE DATABASE identity OWNER identity TEMPLATE template0 ENCODING 'UTF8'")


# Newer versions of Patroni call a standby that replicates "streaming".
RUNNING = {"running", "streaming"}


def _etcd(home: Path, machines: Mapping[str, Machine]) -> list[Process]:
    places = {
        f"etcd{name}": (machine, f"http://{machine.address}:{free_port()}", f"http://{machine.address}:{free_port()}")
        for name, machine in machines.items()
    }
    together = ",".join(f"{name}={peer}" for name, (_, _, peer) in places.items())
    return [
        Process(
            name,
            [ETCD],
            home / f"{name}.log",
            machine,
            ETCD_NAME=name,
            ETCD_DATA_DIR=str(home / f"{name}-data"),
            ETCD_LISTEN_CLIENT_URLS=client,
            ETCD_ADVERTISE_CLIENT_URLS=client,
            ETCD_LISTEN_PEER_URLS=peer,
            ETCD_INITIAL_ADVERTISE_PEER_URLS=peer,
            ETCD_INITIAL_CLUSTER=together,
            ETCD_INITIAL_CLUSTER_STATE="new",
        )
        for name, (machine, client, peer) in places.items()
    ]


def postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        raise NotThere("No PostgreSQL of the system is installed (Debian: apt install postgresql).")
    return found[-1]
