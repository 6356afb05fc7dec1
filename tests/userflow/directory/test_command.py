"""`sync_directory`, called by an operator and by a scheduler."""

import json
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils.timezone import now

from tests.userflow.directory.conftest import Directory
from tests.userflow.directory.entra import Entra
from tests.userflow.directory.hostile import hostile
from tests.world import TestTenant
from userflow.directory.models import DirectoryConfig


@pytest.fixture(autouse=True)
def _only_own_directories() -> None:
    """Remove directories of other tests: they would be read too."""
    DirectoryConfig.objects.update(enabled=False)


@pytest.fixture
def directory(entra: Entra, tenant: TestTenant, configured: Callable[..., Directory]) -> Iterator[Directory]:
    made = configured(tenant, **entra.members(name=f"Cloud {secrets.token_hex(4)}"))
    for number in range(3):
        entra.add(made.mail(f"person{number}"))
    yield made
    tenant.api.delete(made.path)


def run(*words: str) -> tuple[int, str]:
    """Return the exit code and the output."""
    out = StringIO()
    try:
        call_command("sync_directory", *words, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    except CommandError as refused:
        return refused.returncode, str(refused)
    raise AssertionError("the command says how it ended")


def test_sync_command_by_directory_name(directory: Directory) -> None:
    slug, name = directory.tenant.slug, directory.made["name"]
    code, said = run(slug, "--config", name.upper())
    assert (code, "3 created" in said, "1 of 1 directories synchronised." in said) == (0, True, True)
    assert len(directory.users(email=directory.mark)) == 3


def test_sync_command_dry_run_lists_users(directory: Directory) -> None:
    code, said = run(directory.tenant.slug, "--config", directory.made["id"], "--dry-run")
    assert (code, "dry run: nothing was changed" in said) == (0, True)
    assert f"create\t{directory.mail('person0')}\tperson0" in said
    assert directory.users(email=directory.mark) == []


def test_sync_command_json_prints_one_object_per_line(directory: Directory) -> None:
    code, said = run(directory.tenant.slug, "--config", directory.made["id"], "--json")
    (line,) = said.splitlines()
    told = json.loads(line)
    assert (code, told["state"], told["users_created"], told["errors"]) == (0, "succeeded", 3, [])


def test_failed_directory_exits_1_and_stops_no_other(
    directory: Directory, entra: Entra, new_tenant: Callable[[], TestTenant], configured: Callable[..., Directory]
) -> None:
    tenant = new_tenant()
    broken = configured(tenant, **entra.members(name="Broken", secret="wrong"))
    good = configured(tenant, **entra.members(name="Good"))
    code, said = run(tenant.slug)
    assert (code, "1 of 2 directories synchronised." in said, "issues no token" in said) == (1, True, True)
    assert len(good.users()) == 3
    broken.change(enabled=False)
    assert run(tenant.slug)[0] == 0


@pytest.mark.needs("python-ldap")
def test_broken_or_silent_directory_stops_no_other(
    entra: Entra,
    new_tenant: Callable[[], TestTenant],
    configured: Callable[..., Directory],
    settings: Any,
    tmp_path: Path,
) -> None:
    tenant = new_tenant()
    with hostile(tmp_path, lambda connection: connection.recv(65_536) and connection.recv(1)) as members:
        settings.DIRECTORY_COMMAND_SECONDS = 3
        broken, _late = configured(tenant, **entra.members(name="Broken")), configured(tenant, **members)
        good = configured(tenant, **entra.members(name="Good"))
        entra.add(good.mail("person"))
        # A row that no release has written.
        DirectoryConfig.objects.filter(pk=broken.made["id"]).update(mapping={})
        code, said = run(tenant.slug)
    assert (code, "1 of 3 directories synchronised." in said) == (1, True)
    assert ("fault of the platform (KeyError)" in said, "did not respond in time" in said) == (True, True)
    assert len(good.users()) == 1


def test_all_due_selects_due_directories_only(directory: Directory, entra: Entra) -> None:
    mine = DirectoryConfig.objects.filter(pk=directory.made["id"])
    name = f"{directory.tenant.slug}/{directory.made['name']}"
    assert f"{name}: succeeded" in run("--all-due")[1]
    assert name not in run("--all-due")[1]
    mine.update(next_run_at=now() - timedelta(seconds=1))
    assert f"{name}: succeeded" in run("--all-due")[1]
    assert mine.get().next_run_at > now() + timedelta(minutes=59)
    assert name in run("--all")[1]
    mine.update(next_run_at=now() - timedelta(seconds=1), enabled=False)
    assert name not in run("--all-due")[1] + run("--all")[1]


def test_sync_command_skips_suspended_tenant(
    entra: Entra, new_tenant: Callable[[], TestTenant], configured: Callable[..., Directory]
) -> None:
    tenant = new_tenant()
    configured(tenant, **entra.members())
    call_command("suspend_tenant", tenant.slug, stdout=StringIO())
    assert tenant.slug not in run("--all-due")[1]
    assert run(tenant.slug)[0] == 1


@pytest.mark.parametrize(
    "words",
    [("no-such-tenant",), ("no-such-tenant", "--config", "x"), ("--all", "--config", "x")],
    ids=["tenant", "tenant-and-config", "config-of-all"],
)
def test_sync_command_without_match_exits_2(words: tuple[str, ...]) -> None:
    assert run(*words)[0] == 2


def test_sync_command_reports_tenant_without_directories(new_tenant: Callable[[], TestTenant]) -> None:
    slug = new_tenant().slug
    assert run(slug) == (2, "The tenant has no enabled directory.")
    assert run(slug, "--config", "any")[0] == 2
