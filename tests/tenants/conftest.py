"""Many tenants, and processes that can be killed."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from psycopg.conninfo import make_conninfo

from identity_platform.serving import embedded
from identity_platform.serving.embedded.postgres import identity_of_postgres, programs_of_postgres
from tenants.copies import databases, dumps
from tenants.database_servers import servers
from tenants.lifecycle import provisioning, warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant, TenantDatabase, WarmDatabase
from tests.environment import DATABASE
from tests.machine.conftest import within

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """The exit code and output of a command in another process."""

    code: int
    said: str


class AnotherProcess:
    """Management commands in processes of their own; killed with status 9 after `kill_after`."""

    def __init__(self, settings_module: str, database: str = DATABASE) -> None:
        environment = os.environ | {"DJANGO_SETTINGS_MODULE": settings_module, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.tenants.another_process", database],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, kill_after: str | None = None, **installation: str) -> Ended:
        """Run a command, with `database` and `prefix` in another installation."""
        ended = self._ask({"command": command, "kill_after": kill_after, **installation})
        if kill_after:
            _locks_are_let_go()
        return ended

    def get(self, path: str, **installation: str) -> tuple[int, str]:
        """Return status and body of a GET request that the process sends to itself."""
        ended = self._ask({"path": path, **installation})
        return ended.code // 10 * 100 + ended.code % 10, ended.said

    def _ask(self, asked: dict[str, Any]) -> Ended:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return Ended(**json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.communicate()


HOLDERS = (
    "SELECT pid, backend_start FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
)


def _locks_are_let_go() -> None:
    """Wait for jobs that hold a lock: the server notices a killed process with a delay."""
    for server in DatabaseServer.objects.filter(accepts_tenants=True):
        with suppress(psycopg.Error), servers.maintenance(server) as raw:
            before = set(raw.execute(HOLDERS).fetchall())
            # Jobs of other tests are among them and may take longer.
            within(10, lambda raw=raw, before=before: not before & set(raw.execute(HOLDERS).fetchall()))


@pytest.fixture(scope="session")
def another_process(django_db_setup: None) -> Iterator[AnotherProcess]:
    """This release in another process."""
    process = AnotherProcess("identity_platform.settings")
    yield process
    process.end()


@pytest.fixture(scope="session")
def newer_release(django_db_setup: None) -> Iterator[AnotherProcess]:
    """A release with one more tenant migration, in another process."""
    process = AnotherProcess("tests.tenants.newer_release.settings")
    yield process
    process.end()


def make_tenants(number: int) -> list[Tenant]:
    """Many tenants, created quickly from the warm pool."""
    warm_pool.refill(main_server(), number)
    mark = secrets.token_hex(3)
    return [provisioning.create_tenant(name=f"Many {n}", slug=f"many-{mark}-{n}") for n in range(1, number + 1)]


@pytest.fixture
def no_spares() -> None:
    """An empty warm pool, so that creating a tenant copies the template."""
    WarmDatabase.objects.update(schema_version="0-000000000000")
    warm_pool.refill(main_server(), 0)


@pytest.fixture
def new_bare_tenant() -> Iterator[Callable[[], Tenant]]:
    """Create tenants that are deleted after the test, in any state."""
    made: list[Tenant] = []

    def make() -> Tenant:
        slug = f"short-lived-{secrets.token_hex(4)}"
        made.append(provisioning.create_tenant(name="Short-lived", slug=slug))
        return made[-1]

    yield make
    for tenant in made:
        throw_away(tenant)


def bring_template(url: str) -> None:
    """Copy the template of the main server to another server: migrating one there takes ten times as long."""
    template, main = databases.template_name(), main_server()
    copy = f"{template}_copy"
    with servers.maintenance(main) as raw, tempfile.TemporaryDirectory() as folder:
        databases.copy_template(raw, main, copy)
        dumps.write_out(main, copy, Path(folder) / "template")
        databases.drop(raw, copy)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(f"CREATE DATABASE \"{template}\" TEMPLATE template0 ENCODING 'UTF8'")
            program = programs_of_postgres(*identity_of_postgres()) / "pg_restore"
            into = make_conninfo(url, dbname=template)
            options = [f"--dbname={into}", "--no-owner", "--no-acl", "--exit-on-error"]
            subprocess.run([program, *options, Path(folder) / "template"], check=True)
            other.execute(f'ALTER DATABASE "{template}" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false')


@pytest.fixture(scope="session")
def second_url(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """The URL of a second PostgreSQL server."""
    home = Path(tempfile.mkdtemp(prefix="identity-second-"))
    found = embedded.attach(var=home, valkey=False, unsafe_fast=True)
    assert found.database_url is not None
    with django_db_blocker.unblock():
        bring_template(found.database_url)
    yield found.database_url
    embedded.leave(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def second(second_url: str) -> Iterator[DatabaseServer]:
    """That server, with so much room that new tenants are created there during the test."""
    with added_server("second", second_url) as server:
        yield server


@pytest.fixture(scope="session")
def replicating_url(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """The URL of a PostgreSQL server from which tenants can be moved online."""
    home = Path(tempfile.mkdtemp(prefix="identity-replicating-"))
    embedded.attach(var=home, valkey=False, unsafe_fast=True)
    embedded.leave(home)
    with (home / "postgres" / "postgresql.conf").open("a") as file:
        file.write("wal_level = logical\nmax_wal_senders = 10\nmax_replication_slots = 10\n")
    found = embedded.attach(var=home, valkey=False, unsafe_fast=True)
    assert found.database_url is not None
    with django_db_blocker.unblock():
        bring_template(found.database_url)
    yield found.database_url
    embedded.leave(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def replicating(replicating_url: str) -> Iterator[DatabaseServer]:
    """That server."""
    with added_server("replicating", replicating_url) as server:
        yield server


@contextmanager
def added_server(name: str, url: str) -> Iterator[DatabaseServer]:
    """Add a server with room for all new tenants; at the end remove it with everything on it."""
    name = f"{name}-{secrets.token_hex(3)}"
    run_command("add_database_server", name, url, capacity=100_000)
    server = DatabaseServer.objects.get(name=name)
    yield server
    server.refresh_from_db()
    tenants = list(Tenant.objects.filter(database__server=server))
    for tenant in tenants:
        throw_away(tenant)
    Tenant.objects.filter(pk__in=[tenant.pk for tenant in tenants]).delete()
    with servers.maintenance(server) as raw:
        # The template stays for the next test: migrating it takes longer than the tests.
        for database in databases.names(raw) - {databases.template_name()}:
            databases.drop(raw, database)
    WarmDatabase.objects.filter(server=server).delete()
    server.delete()


def throw_away(tenant: Tenant) -> None:
    """Delete a tenant in any state."""
    if TenantDatabase.objects.filter(pk=tenant.pk).exclude(status="deleted").update(status="suspended"):
        provisioning.delete_tenant(tenant_id=tenant.pk)


def connect_to(tenant: Tenant) -> "psycopg.Connection[Any]":
    """Open a direct connection to a tenant's database."""
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant.pk)
    params = servers.parameters(mapping.server_id, mapping.server.revision, direct=True)
    return psycopg.connect(**params | {"dbname": mapping.name}, autocommit=True)


def invalidate(server: DatabaseServer, database: str) -> None:
    """Make a database invalid, as an interrupted DROP DATABASE does. Needs the superuser of the second server."""
    databases.POOL.close_idle(database)
    with servers.maintenance(server) as raw:
        raw.execute("UPDATE pg_database SET datconnlimit = -2, datistemplate = false WHERE datname = %s", [database])


def databases_on(server: DatabaseServer) -> set[str]:
    """Return the databases of this test run on a server."""
    with servers.maintenance(server) as raw:
        return databases.names(raw)


def run_command(*command: str, **options: Any) -> str:
    """Return the output of a management command."""
    from io import StringIO

    out = StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


def check_tenants(*subjects: str, **options: bool) -> list[str]:
    """Run check_tenants; return its last lines about these tenants, databases and servers.

    The exit code need only agree with those lines and all others: a test of the same process may have left a problem.
    """
    from io import StringIO

    out, code = StringIO(), 0
    try:
        call_command("check_tenants", stdout=out, **options)
    except SystemExit as end:
        code = int(end.code or 0)
    said = out.getvalue()
    assert (code, said.endswith("No problems found.\n")) in {(0, True), (1, False)}, said
    last_table = said.rpartition("problem\tserver\t")[2] if code else ""
    return [line for line in last_table.splitlines() if not set(subjects).isdisjoint(line.split("\t")[1:3])]
