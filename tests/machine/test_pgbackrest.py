"""deploy/pgbackrest: a whole server is restored to a moment between two changes."""

import glob
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.machine.conftest import ROOT, within

pytestmark = [pytest.mark.needs("pgbackrest"), pytest.mark.timeout(300)]
CONFIGURATION = ROOT / "deploy" / "pgbackrest"
STANZA = "--stanza=identity"


@dataclass
class Server:
    """A PostgreSQL server with pgBackRest, in one folder. It listens on a socket only."""

    folder: Path
    programs: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, *command: str | Path) -> str:
        """Run a program as the owner of the server; return what it says."""
        places = {"REPO1_PATH": "repository", "SPOOL_PATH": "spool", "LOG_PATH": "log", "LOCK_PATH": "lock"}
        options = {name: str(self.folder / place) for name, place in places.items()}
        options |= {"PG1_PATH": str(self.data), "PG1_SOCKET_PATH": str(self.folder), "PG1_USER": "postgres"}
        # As the configuration reads it from conf.d/secret.conf.
        options |= {"REPO1_CIPHER_PASS": "only-for-this-test", "CONFIG": str(self.folder / "pgbackrest.conf")}
        environment = {f"PGBACKREST_{name}": value for name, value in options.items()}
        how: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        # Not a pipe: the server that pg_ctl starts would keep it open.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [str(word) for word in command],
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                timeout=100,
                **how,
            )
            said.seek(0)
            text = said.read()
        assert done.returncode == 0, text
        return text

    def start(self) -> None:
        # Without fsync: a busy disk would make this a test of the disk.
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        self.run(
            self.programs / "pg_ctl", "-D", self.data, "-w", "-l", self.folder / "server.log", "-o", options, "start"
        )

    def stop(self) -> None:
        self.run(self.programs / "pg_ctl", "-D", self.data, "-m", "immediate", "stop")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as raw:
            found = raw.execute(statement)
            return found.fetchall() if found.description else []


@pytest.fixture
def server() -> Iterator[Server]:
    # pgBackRest knows the versions of PostgreSQL up to its own age: the one that Debian packages beside it.
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    assert programs, "Debian: apt-get install postgresql"
    folder = Path(tempfile.mkdtemp(prefix="identity-pgbackrest-", dir="/tmp"))
    made = Server(folder, Path(programs[-1]).parent)
    for name in ("repository", "spool", "log", "lock"):
        (folder / name).mkdir()
    for name in ("pgbackrest.conf", "postgresql.conf"):
        shutil.copy(CONFIGURATION / name, folder)
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    made.run(made.programs / "initdb", "-D", made.data, "-U", "postgres", "--auth=trust", "--no-sync")
    with (made.data / "postgresql.conf").open("a") as out:
        out.write(f"include = '{folder}/postgresql.conf'\n")
    made.start()
    yield made
    if made.data.exists():
        made.stop()
    # Its archiver, which outlives it for a moment, may still write.
    assert within(20, lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists())


def test_server_is_restored_to_a_moment(server: Server) -> None:
    server.run("pgbackrest", STANZA, "stanza-create")
    server.run("pgbackrest", STANZA, "--type=full", "backup")
    # The backup has its end in whole seconds, and the moment must be after it.
    (stanza,) = json.loads(server.run("pgbackrest", STANZA, "--output=json", "info"))
    ended = stanza["backup"][0]["timestamp"]["stop"]
    assert within(10, lambda: time.time() > ended + 1)
    server.sql("CREATE TABLE change (name text)")
    server.sql("INSERT INTO change VALUES ('before')")
    ((moment,),) = server.sql("SELECT clock_timestamp()::text")
    server.sql("INSERT INTO change VALUES ('after')")
    # Until the last WAL is in the repository.
    server.run("pgbackrest", STANZA, "check")
    assert "status: ok" in server.run("pgbackrest", STANZA, "info")
    server.stop()
    shutil.rmtree(server.data)
    restore = ["restore", "--type=time", f"--target={moment}", "--target-action=promote"]
    server.run("pgbackrest", STANZA, *restore)
    server.start()
    assert within(30, lambda: server.sql("SELECT pg_is_in_recovery()") == [(False,)])
    assert server.sql("SELECT name FROM change") == [("before",)]
    # The repository is encrypted.
    files = [path for path in (server.folder / "repository").rglob("*") if path.is_file()]
    assert all(path.read_bytes().startswith(b"Salted__") for path in files if path.stat().st_size)
