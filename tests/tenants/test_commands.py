"""Management commands, on a terminal and from a scheduler."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import OutputWrapper
from django.utils.timezone import now

from console.jobs.models import Job
from tenants.entering.schema import schema_version
from tenants.lifecycle.capacity import main_server
from tenants.management import terminal
from tenants.models import Tenant, TenantDatabase, WarmDatabase
from tests.environment import DATABASE
from tests.tenants.conftest import ROOT, AnotherProcess, databases_on, run_command

COMMANDS = [path.stem for path in (ROOT / "tenants/management/commands").glob("[a-z]*.py")]
WORKER = """
import sys, django
django.setup()
from django.conf import settings
from django.core.management import call_command
from django.db import connection
settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = sys.argv[1]
call_command("tenant_worker", "--size", "2", "--every", "0.1", "--purge-every", "0.5",
  "--index-every", "0", "--figures-every", "0", "--tenants-per-second", "0")
"""


def status_of(tenant: Tenant) -> str:
    return TenantDatabase.objects.get(pk=tenant.pk).status


@contextmanager
def typing(words: str, monkeypatch: Any) -> Iterator[None]:
    """Type this answer on a terminal."""
    keyboard, screen = pty.openpty()
    os.write(keyboard, f"{words}\n".encode())
    with os.fdopen(screen, "r") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield
    os.close(keyboard)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help_has_example(name: str) -> None:
    parser = load_command_class("tenants", name).create_parser("manage", name)
    assert f"Example: {name}" in parser.description or f"| {name}" in parser.description


def test_list_tenants_as_table_and_json(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    run_command("suspend_tenant", tenant.slug)
    [listed] = [row for row in json.loads(run_command("list_tenants", "--json")) if row["slug"] == tenant.slug]
    assert listed == {
        "slug": tenant.slug,
        "tenant_id": str(tenant.pk),
        "name": "Short-lived",
        "status": "suspended",
        "server": "main",
        "database": tenant.database.name,
        "schema_version": tenant.database.schema_version,
        "current": True,
        "reason": "",
    }
    assert f"{tenant.slug}\t{tenant.pk}\tsuspended\tmain" in run_command("list_tenants")
    assert tenant.slug not in run_command("list_tenants", "--status", "active")


def test_delete_asks_for_slug(new_bare_tenant: Callable[[], Tenant], monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = new_bare_tenant()
    with typing("yes", monkeypatch), pytest.raises(CommandError, match="nothing was changed") as error:
        run_command("delete_tenant", tenant.slug)
    assert (error.value.returncode, status_of(tenant)) == (2, "active")
    with typing(tenant.slug, monkeypatch):
        run_command("delete_tenant", tenant.slug)
    assert status_of(tenant) == "deleted"


def test_delete_without_terminal_needs_yes(
    new_bare_tenant: Callable[[], Tenant], another_process: AnotherProcess
) -> None:
    tenant = new_bare_tenant()
    assert another_process.run("delete_tenant", tenant.slug).code == 2
    assert status_of(tenant) == "active"
    assert another_process.run("delete_tenant", tenant.slug, "--yes").code == 0
    assert status_of(tenant) == "deleted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_refills_pool_and_stops_on_signal(number: int, no_spares: None) -> None:
    old = Job.objects.create(kind="provision")
    Job.objects.filter(pk=old.pk).update(created_at=now() - timedelta(days=91), seen_at=now() - timedelta(days=91))
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER, DATABASE],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 150
    try:
        first = spares_within(90, 2)
        call_command("create_tenant", "Claims", "--slug", f"claims-{worker.pid}-{number}", stdout=StringIO())
        second = spares_within(60, 2)
        while Job.objects.filter(pk=old.pk).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        worker.send_signal(number)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        _, complained = worker.communicate()
    assert "expired_rows_stay" not in complained
    assert len(first & second) == 1
    assert second <= databases_on(main_server())
    run_command("delete_tenant", f"claims-{worker.pid}-{number}", yes=True)


def spares_within(seconds: float, wanted: int) -> set[str]:
    """Wait until there are this many spares; return their names."""
    deadline = time.monotonic() + seconds
    while len(names := set(WarmDatabase.objects.filter(ready=True).values_list("name", flat=True))) < wanted:
        assert time.monotonic() < deadline, f"{len(names)} spares after {seconds} s"
        time.sleep(0.05)
    return names


def test_two_workers_do_not_overfill_pool(no_spares: None, another_process: AnotherProcess) -> None:
    from tenants.copies import databases
    from tenants.lifecycle import warm_pool

    with databases.job_lock(main_server(), databases.WARM_POOL_JOB):
        assert another_process.run("tenant_worker", "--once", "--size", "1").said == "0 made.\n"
    assert another_process.run("tenant_worker", "--once", "--size", "1").said == "1 made.\n"
    assert warm_pool.refill(main_server(), 1) == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([""], "name: This field may not be empty"),
        (["n" * 256], "name: .*255"),
        (["A", "--slug", "No Slug"], "slug: Use 1 to 50 characters: a-z"),
        (["A", "--server", "nowhere"], "No database server has the name 'nowhere'"),
        (["A", "--admin-username", "ann", "--admin-email", "ann"], "--admin-email: .*e-mail"),
    ],
)
def test_create_rejects_invalid_values(words: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as rejected:
        run_command("create_tenant", *words)
    assert rejected.value.returncode == 2


def test_list_rejects_unknown_state() -> None:
    with pytest.raises(CommandError, match="invalid choice: 'asleep'"):
        run_command("list_tenants", "--status", "asleep")


@pytest.mark.parametrize("command", ["backup_tenant", "export_users", "import_users"])
def test_commands_reject_pipes_as_files(command: str, new_bare_tenant: Callable[[], Tenant], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(CommandError, match="no regular file") as rejected:
        run_command(command, new_bare_tenant().slug, str(pipe))
    assert rejected.value.returncode == 2
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_table_too_wide_for_terminal_prints_blocks(monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    terminal.table(OutputWrapper(screen), ("slug", "tenant_id"), [("acme", "6ef0e931-6aa1-47de-a094-76ddb1c05edb" * 2)])
    assert screen.getvalue().split() == ["slug", "acme", "tenant_id", "6ef0e931-6aa1-47de-a094-76ddb1c05edb" * 2]


class Screen(StringIO):
    """A terminal that stores its output."""

    def isatty(self) -> bool:
        return True


def test_embedded_start_migrates_tenants(new_bare_tenant: Callable[[], Tenant], settings: Any) -> None:
    settings.EMBEDDED = True
    mapping = TenantDatabase.objects.filter(pk=new_bare_tenant().pk)
    mapping.update(schema_version="0-000000000000")
    call_command("prepare", no_demo=True, stdout=StringIO())
    assert mapping.get().schema_version == schema_version()
