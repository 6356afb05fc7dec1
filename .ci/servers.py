"""Run a command on servers as Debian packages them: `.ci/servers.py COMMAND ...`.

PostgreSQL with PgBouncer in transaction mode in front, and Redis, on loopback ports of their own. The role that the command
receives may log in and create databases and is no superuser. Everything is removed at the end; the logs are shown after a
failure.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from identity_platform.serving.embedded.temporary import folder_for_databases

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "only-for-this-run"
START_SECONDS = 20.0
# Neither PostgreSQL nor PgBouncer runs as root.
AS_POSTGRES = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nothing listens on."""
    with contextlib.ExitStack() as taken:
        return [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


@contextlib.contextmanager
def server(
    log: Path, command: Sequence[str], *, ready: Sequence[str], stop: signal.Signals = signal.SIGKILL
) -> Iterator[None]:
    """Run a server until the block ends; enter the block once the command `ready` succeeds."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd="/", start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(ready, capture_output=True, cwd="/").returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, stop)
        process.wait()


def postgres(scratch: Path, port: int) -> contextlib.AbstractContextManager[None]:
    """Initialize and run PostgreSQL with the role and the database `identity`."""
    data = scratch / "postgres"
    data.mkdir(mode=0o700)
    if AS_POSTGRES:
        shutil.chown(data, "postgres", "postgres")
    initdb = [str(programs() / "initdb"), "-D", str(data), "-U", "postgres", "--auth-local=trust"]
    initdb += ["--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
    subprocess.run([*AS_POSTGRES, *initdb], check=True, stdout=subprocess.DEVNULL, cwd="/")
    settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(data), "max_connections": "200"}
    settings |= {"fsync": "off", "full_page_writes": "off"}
    # When it visits one of hundreds of databases is luck: it writes while tests count writes, and keeps what they drop in use.
    settings["autovacuum"] = "off"
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return server(
        scratch / "postgres.log",
        [*AS_POSTGRES, str(programs() / "postgres"), "-D", str(data), "-p", str(port), *options],
        ready=[*AS_POSTGRES, str(programs() / "pg_isready"), "-q", "-h", str(data), "-p", str(port)],
        stop=signal.SIGINT,  # a fast shutdown
    )


def create_role(scratch: Path, port: int) -> None:
    """Create what the platform needs in production: a role that may log in and create databases, and a database."""
    psql = [str(programs() / "psql"), "-q", "-h", str(scratch / "postgres"), "-p", str(port), "-U", "postgres"]
    psql += ["-c", f"CREATE ROLE identity LOGIN CREATEDB PASSWORD '{PASSWORD}'"]
    psql += ["-c", "CREATE DATABASE identity OWNER identity"]
    subprocess.run([*AS_POSTGRES, *psql], check=True, cwd="/")


def redis(scratch: Path, port: int) -> contextlib.AbstractContextManager[None]:
    """Run Redis without persistence."""
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    log = scratch / "redis.log"
    return server(log, [*command, "--dir", str(scratch)], ready=["redis-cli", "-p", str(port), "ping"])


def pgbouncer(scratch: Path, port: int, database: int) -> contextlib.AbstractContextManager[None]:
    """Run PgBouncer with the settings of `deploy/`, but for ports and the list of users."""
    users = scratch / "userlist.txt"
    users.write_text(f'"identity" "{PASSWORD}"\n')
    lines = []
    for line in (ROOT / "deploy" / "pgbouncer.ini").read_text().splitlines():
        if line.startswith("listen_port ="):
            line = f"listen_port = {port}"
        elif line.startswith("auth_file ="):
            line = f"auth_file = {users}"
        lines.append(line.replace("port=5432", f"port={database}"))
    config = scratch / "pgbouncer.ini"
    config.write_text("\n".join(lines) + "\n")
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") or "pgbouncer"
    url = f"postgresql://identity:{PASSWORD}@127.0.0.1:{port}/identity"
    return server(
        scratch / "pgbouncer.log",
        [*AS_POSTGRES, program, str(config)],
        ready=[str(programs() / "psql"), "-q", "-c", "SELECT", url],
    )


def programs() -> Path:
    """Return the folder of the newest PostgreSQL's programs."""
    found = glob.glob("/usr/lib/postgresql/*/bin")
    return max(map(Path, found), key=lambda path: int(path.parent.name))


def main(command: Sequence[str]) -> int:
    """Run the command with the servers' URLs in its environment; return its exit code."""
    database, pooler, cache = free_ports(3)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(dir=folder_for_databases())))
        scratch.chmod(0o755)
        running.enter_context(postgres(scratch, database))
        create_role(scratch, database)
        running.enter_context(redis(scratch, cache))
        running.enter_context(pgbouncer(scratch, pooler, database))
        url = f"postgresql://identity:{PASSWORD}@127.0.0.1:{{port}}/identity"
        urls = {"DATABASE_URL": url.format(port=pooler), "DATABASE_ADMIN_URL": url.format(port=database)}
        urls |= {"PGBOUNCER": "1", "REDIS_URL": f"redis://127.0.0.1:{cache}/0"}
        # The databases go with their server: the tests need not drop them one by one.
        urls |= {"IDENTITY_TEST_SERVERS": "temporary"}
        code = subprocess.run(command, env=os.environ | urls).returncode
        if code:
            for log in sorted(scratch.glob("*.log")):
                last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                print(f"-- {log.name}\n{last}", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
