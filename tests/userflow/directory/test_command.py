"""`sync_directory`, as an operator and a scheduler call it."""

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
def _nobody_elses() -> None:
    """What other tests left would be read too, out in the world."""
    DirectoryConfig.objects.update(enabled=False)


@pytest.fixture
def directory(entra: Entra, tenant: TestTenant, configured: Callable[..., Directory]) -> Iterator[Directory]:
    made = configured(tenant, **entra.members(name=f"Cloud {secrets.token_hex(4)}"))
    for number in range(3):
        entra.add(made.mail(f"person{number}"))
    yield made
    tenant.api.delete(made.path)


def run(*words: str) -> tuple[int, str]:
    """Exit code and what was printed."""
    out = StringIO()
    try:
        call_command("sync_directory", *words, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    except CommandError as refused:
        return refused.returncode, str(refused)
    raise AssertionError("the command says how it ended")


def test_a_tenants_directory_is_synchronised_by_name(directory: Directory) -> None:
    slug, name = directory.tenant.slug, directory.made["name"]
    code, said = run(slug, "--config", name.upper())
    assert (code, "3 created" in said, "1 of 1 directories synchronised." in said) == (0, True, True)
    assert len(directory.users(email=directory.mark)) == 3


def test_a_dry_run_lists_people_and_changes_nothing(directory: Directory) -> None:
    code, said = run(directory.tenant.slug, "--config", directory.made["id"], "--dry-run")
    assert (code, "dry run: nothing was changed" in said) == (0, True)
    assert f"create\t{directory.mail('person0')}\tperson0" in said
    assert directory.users(email=directory.mark) == []


def test_programs_get_one_object_a_line(directory: Directory) -> None:
    code, said = run(directory.tenant.slug, "--config", directory.made["id"], "--json")
    (line,) = said.splitlines()
    told = json.loads(line)
    assert (code, told["state"], told["users_created"], told["errors"]) == (0, "succeeded", 3, [])


def test_a_failure_is_exit_code_one_and_stops_no_other(
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
def test_a_fault_in_one_directory_and_one_that_never_answers_stop_no_other(
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
        # A row as no version of ours has written it.
        DirectoryConfig.objects.filter(pk=broken.made["id"]).update(mapping={})
        code, said = run(tenant.slug)
    assert (code, "1 of 3 directories synchronised." in said) == (1, True)
    assert ("fault of the platform (KeyError)" in said, "did not respond in time" in said) == (True, True)
    assert len(good.users()) == 1


def test_the_due_are_those_whose_time_has_come(directory: Directory, entra: Entra) -> None:
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


def test_a_suspended_tenant_is_passed_over(
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
def test_nothing_is_tried_where_nothing_is_named(words: tuple[str, ...]) -> None:
    assert run(*words)[0] == 2


def test_a_tenant_without_directories_is_told_so(new_tenant: Callable[[], TestTenant]) -> None:
    slug = new_tenant().slug
    assert run(slug) == (2, "The tenant has no enabled directory.")
    assert run(slug, "--config", "any")[0] == 2
