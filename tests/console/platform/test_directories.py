"""Directories of the chosen tenant in the console, read from a fake Entra ID."""

import json
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.console.platform.conftest import send
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.userflow.directory.conftest import Directory
from tests.userflow.directory.conftest import configured as configured
from tests.userflow.directory.conftest import entra as entra
from tests.userflow.directory.entra import Entra
from tests.world import TestTenant, capture_statements
from userflow.directory.configs import open_secret
from userflow.directory.models import DirectoryConfig, DirectoryRun

LIST = "/admin/platform/directories/"


@pytest.fixture
def directory(entra: Entra, home: TestTenant, configured: Callable[..., Directory]) -> Directory:
    return configured(home, **entra.members())


def at(directory: Directory, page: str = "") -> str:
    return f"{LIST}{directory.made['id']}/{page}"


def test_dry_run_previews_what_a_run_does(head: Staff, home: TestTenant, directory: Directory, entra: Entra) -> None:
    entra.add(directory.mail("ann"))
    planned = send(head, home, at(directory, "dry-run/"))
    assert (directory.mail("ann") in planned.text, directory.total()) == (True, 0)
    assert "no-store" in planned.headers["Cache-Control"]
    assert "succeeded" in send(head, home, at(directory, "sync/")).text
    assert directory.total() == 1
    runs = DirectoryRun.objects.filter(config_id=directory.made["id"])
    assert [(run.dry_run, run.users_created) for run in runs.order_by("started_at")] == [(True, 1), (False, 1)]
    kept = head.get(at(directory, f"runs/{runs.get(dry_run=True).pk}/")).text
    assert directory.mail("ann") not in kept


def test_a_directory_is_shown_without_its_secret(head: Staff, directory: Directory, entra: Entra) -> None:
    assert directory.made["name"] in head.get(LIST).text
    page = head.get(at(directory)).text
    assert (entra.members()["application_id"] in page, entra.members()["secret"] in page) == (True, False)
    assert "Begin with a dry run" in page


def test_directory_is_tested(head: Staff, home: TestTenant, directory: Directory, entra: Entra) -> None:
    entra.add(directory.mail("bea"))
    assert directory.mail("bea") in send(head, home, at(directory, "try/")).text
    entra.end()
    page = send(head, home, at(directory, "try/"))
    assert (page.status_code, bool(page.context["warning"])) == (200, True)


def test_failed_run_shows_reason(head: Staff, home: TestTenant, directory: Directory, entra: Entra) -> None:
    entra.end()
    response = send(head, home, at(directory, "dry-run/"))
    assert (response.status_code, bool(response.context["form"].non_field_errors())) == (400, True)
    assert "failed" in head.get(at(directory)).text
    run = DirectoryRun.objects.get(config_id=directory.made["id"])
    # Nothing was compared, so the page must not say that nothing would change.
    assert "the tenant matches the directory" not in head.get(at(directory, f"runs/{run.pk}/")).text


def test_directory_is_edited_and_deleted(head: Staff, home: TestTenant, directory: Directory) -> None:
    body = {"name": directory.made["name"], "sync_every_minutes": "", "max_deactivation_percent": "5"}
    assert send(head, home, at(directory, "change/"), **body).status_code == 302
    row = DirectoryConfig.objects.get(pk=directory.made["id"])
    assert (row.enabled, row.sync_every_minutes, row.max_deactivation_percent) == (False, None, 5)
    wrong = send(head, home, at(directory, "change/"), **{**body, "sync_every_minutes": "1"})
    assert (wrong.status_code, bool(wrong.context["form"].errors["sync_every_minutes"])) == (400, True)
    assert send(head, home, at(directory, "delete/")).headers["Location"] == LIST


def test_directory_is_added_and_its_connection_edited(
    head: Staff, home: TestTenant, entra: Entra, configured: Callable[..., Directory]
) -> None:
    target = {"directory_tenant_id": "contoso.example", "application_id": "app", "cloud": "standin"}
    form = {"name": "Office", "secret": "first s3cret", "max_deactivation_percent": "20", **target}
    page = head.get(f"{LIST}add/entra-id/").text
    assert ("Secret" in page, f"{LIST}add/active-directory/" in head.get(LIST).text) == (True, True)
    assert send(head, home, f"{LIST}add/entra-id/", **form, groups="[]").status_code == 400
    added = send(head, home, f"{LIST}add/entra-id/", **form)
    row = DirectoryConfig.objects.get(tenant_id=home.id)
    assert (added.headers["Location"], row.sync_every_minutes, row.target) == (f"{LIST}{row.pk}/", None, target)
    path = f"{LIST}{row.pk}/connection/"
    assert "first s3cret" not in head.get(path).text
    kept = {**target, "mapping": json.dumps(row.mapping), "groups": "{}"}
    assert send(head, home, path, **{**kept, "application_id": "other"}).context["form"].errors.keys() == {"secret"}
    assert send(head, home, path, **{**kept, "application_id": "other", "secret": "again"}).status_code == 302
    row.refresh_from_db()
    assert (row.target["application_id"], open_secret(row)) == ("other", "again")


@pytest.mark.needs("python-ldap")
def test_active_directory_is_added_with_its_defaults(head: Staff, home: TestTenant) -> None:
    form = {"name": "HQ", "server": "dc.example.com", "base_dn": "DC=x", "bind_dn": "reader@x", "secret": "s3cret"}
    missing = send(head, home, f"{LIST}add/active-directory/", **{**form, "server": ""})
    assert (missing.status_code, "server" in missing.context["form"].errors) == (400, True)
    sent = {**form, "tls": "ldaps", "max_deactivation_percent": "20", "sync_every_minutes": "60", "enabled": "on"}
    added = send(head, home, f"{LIST}add/active-directory/", **sent)
    assert added.status_code == 302, added.context["form"].errors
    row = DirectoryConfig.objects.get(tenant_id=home.id)
    assert (row.target["port"], row.enabled, row.sync_every_minutes) == (636, True, 60)
    assert send(head, home, f"{LIST}{row.pk}/connection/", **form, tls="ldaps", port="636").status_code == 302


def test_directories_of_other_tenant_are_404(directory: Directory, tenant: TestTenant) -> None:
    run = directory.sync()
    theirs = new_tenant_admin(tenant).sign_in()
    operator = new_operator().sign_in().choose(tenant)
    for person in (theirs, operator):
        assert directory.made["name"] not in person.get(LIST).text
        for page in ("", "dry-run/", "sync/", "try/", "change/", "connection/", "delete/", f"runs/{run['id']}/"):
            found = [person.get(at(directory, page)), send(person, tenant, at(directory, page))]
            assert {response.status_code for response in found} == {404}
    assert DirectoryRun.objects.filter(config_id=directory.made["id"]).count() == 1


def test_read_permission_does_not_allow_runs_or_changes(home: TestTenant, directory: Directory) -> None:
    reader = new_tenant_admin(home, "directory:read").sign_in()
    assert "/sync/" not in reader.get(at(directory)).text
    for page in ("dry-run/", "sync/", "try/", "change/", "connection/", "delete/"):
        assert [reader.get(at(directory, page)).status_code, send(reader, home, at(directory, page)).status_code] == [
            403,
            403,
        ]
    assert reader.get(at(directory, f"runs/{uuid4()}/")).status_code == 404


def test_pages_cost_the_same_with_many_runs(head: Staff, home: TestTenant, directory: Directory) -> None:
    DirectoryRun.objects.bulk_create(
        DirectoryRun(config_id=directory.made["id"], tenant_id=home.id, trigger="request") for _ in range(30)
    )
    # Session, admin user, tenant; then the directories, their runs and their number.
    for path, costs in ((LIST, 6), (at(directory), 8)):
        with capture_statements() as seen:
            assert head.get(path).status_code == 200
        assert seen.counts == (costs, 0), "\n".join(seen.default)


def test_empty_list_says_what_to_do(head: Staff) -> None:
    assert "No directory yet." in head.get(LIST).text
