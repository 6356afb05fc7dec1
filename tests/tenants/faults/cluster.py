"""A primary and its synchronous standby: two PostgreSQL servers on sockets of their own."""

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from identity_platform.serving.embedded.folders import let_through
from identity_platform.serving.embedded.postgres import identity_of_postgres, programs_of_postgres
from identity_platform.serving.embedded.processes import run_quietly
from tests.machine.conftest import within

UID, GID = identity_of_postgres()
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "wal_level": "replica",
    "hot_standby": "on",
    "fsync": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class Node:
    """One server and the directory of its socket."""

    sockets: Path

    @property
    def data(self) -> Path:
        return self.sockets.with_name(f"{self.sockets.name}-data")

    @property
    def address(self) -> dict[str, Any]:
        return {"host": str(self.sockets), "user": "postgres", "dbname": "postgres", "connect_timeout": 2}

    def ask(self, statement: str) -> Any:
        """Return the first column of the first row of a statement on this server."""
        with psycopg.connect(**self.address, autocommit=True) as raw:
            row = raw.execute(statement).fetchone()
        assert row is not None
        return row[0]

    def run(self, program: str, *arguments: str) -> None:
        log = self.data / "server.log"
        run_quietly([str(programs_of_postgres(UID, GID) / program), *arguments], UID, GID, failure=program, log=log)

    def start(self) -> None:
        options = {**SETTINGS, "unix_socket_directories": str(self.sockets)}
        said = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        self.run("pg_ctl", "-D", str(self.data), "-l", str(self.data / "server.log"), "-w", "-s", "-o", said, "start")

    def processes(self) -> list[psutil.Process]:
        """The server's processes, the first one first; none if it does not run."""
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            first = psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n", 1)[0]))
            return [first, *first.children()]
        return []

    def kill(self) -> None:
        """Crash it."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it without closing its connections, as if its machine were gone from the network."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if number == signal.SIGKILL:
            psutil.wait_procs(processes, timeout=10)


class Cluster:
    """Two nodes. What the primary acknowledges, the standby has."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="identity-pair-"))
        os.chown(self.home, UID, GID)
        let_through(self.home.parents, UID, GID)
        self.primary, self.standby = Node(self.home / "a"), Node(self.home / "b")
        for node in (self.primary, self.standby):
            node.sockets.mkdir()
            os.chown(node.sockets, UID, GID)
        self.primary.run(
            "initdb", "-D", str(self.primary.data), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8",
            "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C",
        )  # fmt: skip
        self.primary.start()

    @property
    def url(self) -> str:
        """A URL that names both, always in the same order."""
        return f"postgresql://postgres@/postgres?host={self.home / 'a'},{self.home / 'b'}"

    def heal(self) -> None:
        """Make the node that is not the primary a standby that confirms every commit, however it was lost."""
        if self.standby.processes() and self._is_confirmed():
            return
        self.standby.kill()
        shutil.rmtree(self.standby.data, ignore_errors=True)
        # The copy contains the settings, and a promoted standby has none that confirms.
        self._wait_for_standby(False)
        source = f"host={self.primary.sockets} user=postgres"
        # -R writes the settings and the signal file of a standby.
        self.standby.run("pg_basebackup", "-d", source, "-D", str(self.standby.data), "-R", "-c", "fast", "--no-sync")
        self.standby.start()
        self._wait_for_standby(True)
        assert within(10, self._is_confirmed)

    def _is_confirmed(self) -> bool:
        return bool(self.primary.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"))

    def _wait_for_standby(self, wait: bool) -> None:
        with psycopg.connect(**self.primary.address, autocommit=True) as raw:
            raw.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if wait else ''}'")
            raw.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Make the standby the primary, as a cluster manager does when the primary is lost."""
        assert self.standby.ask("SELECT pg_promote()")
        self.primary, self.standby = self.standby, self.primary

    def end(self) -> None:
        for node in (self.primary, self.standby):
            node.kill()
        shutil.rmtree(self.home, ignore_errors=True)
