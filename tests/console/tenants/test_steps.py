"""Changes of a tenant in the console: the same actions as the commands, confirmed, audited and rejected by the same rules."""

import re
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils.timezone import now
from psycopg.conninfo import make_conninfo

from console.jobs.actions import begin_job, run_job_again
from console.jobs.models import Job
from identity_platform.audit.models import PlatformEvent
from tenants import keys
from tenants.copies.database_names import new_database_name
from tenants.database_servers import servers
from tenants.entering.context import in_tenant
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant, TenantDatabase
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.console.tenants.test_pages import LIST, page
from tests.copies import change_mapping
from tests.jobs import run_waiting_jobs
from tests.tenants.conftest import run_command
from tests.userflow.mailbox import mails_to
from tests.world import Api, TestTenant, User, sign_in_admin
from userflow.accounts.models import AdminUser, EndUser

STEPS = ["settings", "suspend", "resume", "finish", "migrate", "backup", "move", "restore", "delete"]


def until_over(job: Job) -> Job:
    """The job, once a worker has run it."""
    run_waiting_jobs()
    job.refresh_from_db()
    assert job.read_status() not in Job.LIVING, f"still {job.state}: {job.lines}"
    return job


def job_of(response: Any) -> Job:
    """Return the job to whose page the response redirects."""
    assert response.status_code == 302, response.content.decode()
    return until_over(Job.objects.get(pk=response.headers["Location"].split("/")[-3]))


def state(tenant: TestTenant) -> str:
    return TenantDatabase.objects.get(pk=tenant.id).status


def events(tenant: TestTenant, action: str, by: Staff) -> int:
    return PlatformEvent.objects.filter(tenant_id=tenant.id, action=action, actor_id=str(by.id)).count()


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


def provision_form(**other: str) -> dict[str, str]:
    mark = secrets.token_hex(4)
    form = {"name": f"New {mark}", "slug": f"new-{mark}", "server": "", "username": f"ann-{mark}"}
    return {**form, "email": f"ann-{mark}@example.com", **other}


def test_provision_tenant_mails_link_to_admin(operator: Staff) -> None:
    asked = provision_form()
    job = job_of(operator.post(f"{LIST}provision/", asked))
    assert (job.read_status(), job.reason) == ("done", "")
    tenant = Tenant.objects.select_related("database").get(slug=asked["slug"])
    assert (tenant.database.status, job.tenant_id) == ("active", tenant.pk)
    assert PlatformEvent.objects.filter(
        action="tenant.created", tenant_id=tenant.pk, actor_id=str(operator.id)
    ).exists()
    assert mails_to(asked["email"])
    shown = operator.get(f"/admin/console/job/{job.pk}/state/").content.decode()
    assert "The tenant is active." in shown
    assert "hx-get" not in shown


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"slug": "Not A Slug"}, "not starting or ending with a dash"),
        ({"name": ""}, "required"),
        ({"email": "no-address"}, "such as name@example.com"),
    ],
)
def test_provisioning_shows_validation_errors(operator: Staff, wrong: dict[str, str], says: str) -> None:
    response = operator.post(f"{LIST}provision/", provision_form(**wrong))
    assert response.status_code == 400
    assert says in response.content.decode()


def test_provisioning_proposes_a_free_slug(operator: Staff) -> None:
    name = f"Größe & Söhne {secrets.token_hex(4)}"
    slugs = [
        job_of(operator.post(f"{LIST}provision/", provision_form(name=name, slug=""))).params["slug"] for _ in range(2)
    ]
    wanted = name.lower().replace("größe & söhne ", "groesse-soehne-")
    assert (slugs[0], slugs[1].startswith(f"{wanted}-"), len(slugs[1])) == (wanted, True, len(wanted) + 5)


def test_provisioning_rejects_taken_names(operator: Staff, tenant: TestTenant) -> None:
    response = operator.post(f"{LIST}provision/", provision_form(slug=tenant.slug, username=tenant.admin.username))
    for says in ("Another tenant has this slug", "Another admin user has this username"):
        assert says in response.content.decode()


def test_a_tenant_is_suspended_and_resumed(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    assert operator.get(page(tenant, "suspend")).status_code == 200
    assert state(tenant) == "active"
    assert operator.post(page(tenant, "suspend")).status_code == 400
    assert operator.post(page(tenant, "suspend"), {"reason": "Contract ended"}).headers["Location"] == page(tenant)
    assert (state(tenant), events(tenant, "tenant.suspended", operator)) == ("suspended", 1)
    assert "Reason: Contract ended" in operator.get(page(tenant)).text
    operator.post(page(tenant, "resume"))
    assert (state(tenant), events(tenant, "tenant.resumed", operator)) == ("active", 1)


def test_change_rejected_by_tenant_state_is_shown(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    response = operator.post(page(tenant, "resume"))
    assert response.status_code == 400 or state(tenant) == "active"
    change_mapping(tenant.id, status="migrating")
    response = operator.post(page(tenant, "suspend"), {"reason": "Contract ended"})
    change_mapping(tenant.id, status="active")
    assert response.status_code == 400
    assert "cannot become suspended" in response.content.decode()


def test_delete_tenant_requires_typed_slug(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    slug = tenant.slug
    assert operator.post(page(tenant, "delete"), {"typed": "another"}).status_code == 400
    assert state(tenant) == "active"
    job = job_of(operator.post(page(tenant, "delete"), {"typed": slug}))
    assert (job.read_status(), state(tenant), job.params) == ("done", "deleted", {})
    assert events(tenant, "tenant.deleted", operator) == 1
    assert operator.get(page(tenant)).status_code == 404
    assert operator.get(f"/admin/console/job/{job.pk}/change/").status_code == 200


def test_backup_is_written_to_folder(
    operator: Staff, new_tenant: Callable[[], TestTenant], tmp_path: Path, settings: Any
) -> None:
    tenant = new_tenant()
    settings.BACKUP_FOLDER = tmp_path / "backups"
    job = job_of(operator.post(page(tenant, "backup")))
    assert (job.read_status(), job.reason) == ("done", "")
    [file] = settings.BACKUP_FOLDER.glob(f"{tenant.id}-*.backup")
    run_command("restore_tenant", tenant.slug, str(file), yes=True)
    assert str(file) in operator.get(f"/admin/console/job/{job.pk}/change/").content.decode()
    assert events(tenant, "tenant.backed_up", operator) == 1


def test_tenant_is_restored_after_a_dry_run(
    operator: Staff, new_tenant: Callable[[], TestTenant], tmp_path: Path, settings: Any
) -> None:
    tenant, other = new_tenant(), new_tenant()
    settings.BACKUP_FOLDER = tmp_path
    job_of(operator.post(page(tenant, "backup")))
    [file] = tmp_path.iterdir()
    (tmp_path / file.name.replace(str(tenant.id), str(other.id))).write_bytes(file.read_bytes())
    person = tenant.register()
    form = {"file": file.name, "mode": "dry_run", "typed": tenant.slug}
    for wrong in ({"typed": "another"}, {"file": f"../{file.name}"}, {"file": f"{other.slug}-20260101T000000Z.backup"}):
        assert operator.post(page(tenant, "restore"), {**form, **wrong}).status_code == 400
    tried = job_of(operator.post(page(tenant, "restore"), form))
    assert ("Nothing was changed" in str(tried.lines), exists(tenant, person)) == (True, True)
    done = job_of(operator.post(page(tenant, "restore"), {**form, "mode": "for_real"}))
    assert (done.read_status(), done.reason, exists(tenant, person)) == ("done", "", False)
    assert events(tenant, "tenant.restored", operator) == 1
    later = tenant.register()
    again = f"/admin/console/job/{done.pk}/again/"
    Job.objects.filter(pk=done.pk).update(state="failed")
    assert operator.post(again, {"typed": "another"}).status_code == 400
    run_again(done)
    assert exists(tenant, later)
    foreign = {**form, "file": file.name.replace(str(tenant.id), str(other.id)), "typed": other.slug}
    assert "no backup of this tenant" in job_of(operator.post(page(other, "restore"), foreign)).reason


def exists(tenant: TestTenant, person: User) -> bool:
    with in_tenant(tenant.id):
        return EndUser.objects.filter(pk=person.id).exists()


def run_again(job: Job) -> None:
    """Run a job that has done its work as after a kill before its end was recorded."""
    Job.objects.filter(pk=job.pk).update(state="failed")
    run_job_again(job_id=job.pk, by=AdminUser.objects.get(pk=job.begun_by_id))
    assert until_over(job).read_status() == "done"


@pytest.fixture
def another_server() -> Iterator[DatabaseServer]:
    """A second server for the platform, in truth the same one."""
    name = f"another-{secrets.token_hex(3)}"
    url = servers.parameters(main_server().pk, main_server().revision, direct=True)
    sealed = servers.seal_url(name, "url_sealed", make_conninfo(**url))
    server = DatabaseServer.objects.create(name=name, host="there", url_sealed=sealed, accepts_tenants=False)
    yield server
    TenantDatabase.objects.filter(server=server).update(server=main_server())
    server.delete()


def test_tenant_is_moved_after_a_dry_run(
    operator: Staff, new_tenant: Callable[[], TestTenant], another_server: DatabaseServer
) -> None:
    tenant = new_tenant()
    DatabaseServer.objects.filter(pk=another_server.pk).update(accepts_tenants=True)
    person = tenant.register()
    form = {"server": another_server.name, "mode": "dry_run", "typed": tenant.slug}
    for wrong in ({"typed": "another"}, {"server": "main"}, {"server": ""}):
        assert operator.post(page(tenant, "move"), {**form, **wrong}).status_code == 400
    planned = job_of(operator.post(page(tenant, "move"), form))
    assert ("Nothing was changed" in str(planned.lines), place(tenant)) == (True, main_server().pk)
    done = job_of(operator.post(page(tenant, "move"), {**form, "mode": "offline"}))
    assert (done.reason, place(tenant), exists(tenant, person)) == ("", another_server.pk, True)
    assert events(tenant, "tenant.moved", operator) == 1
    run_again(done)


def place(tenant: TestTenant) -> int:
    return TenantDatabase.objects.get(pk=tenant.id).server_id


def test_failed_backup_shows_reason(
    operator: Staff, new_tenant: Callable[[], TestTenant], tmp_path: Path, settings: Any
) -> None:
    tenant = new_tenant()
    (tmp_path / "file").write_text("in the way")
    settings.BACKUP_FOLDER = tmp_path / "file" / "backups"
    job = job_of(operator.post(page(tenant, "backup")))
    assert job.read_status() == "failed"
    assert "Not a directory" in job.reason


def test_outdated_tenant_is_migrated(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    TenantDatabase.objects.filter(pk=tenant.id).update(schema_version="1-000000000000")
    assert page(tenant, "migrate") in operator.get(page(tenant)).content.decode()
    job = job_of(operator.post(page(tenant, "migrate")))
    assert (job.read_status(), job.reason) == ("done", "")
    assert page(tenant, "migrate") not in operator.get(page(tenant)).content.decode()
    assert events(tenant, "tenant.migrated", operator) == 1


def half_made() -> TenantDatabase:
    """A tenant whose provisioning was killed after its first step."""
    slug = f"half-{secrets.token_hex(4)}"
    tenant = Tenant.objects.create(name="Half made", slug=slug)
    keys.create(str(tenant.pk))
    return TenantDatabase.objects.create(tenant=tenant, server=main_server(), name=new_database_name())


def test_interrupted_provisioning_is_finished(operator: Staff) -> None:
    half = half_made()
    assert "Finish provisioning" in operator.get(f"{LIST}{half.pk}/change/").content.decode()
    job_of(operator.post(f"{LIST}{half.pk}/finish/"))
    half.refresh_from_db()
    assert half.status == "active"


def test_interrupted_job_runs_again(operator: Staff) -> None:
    half = half_made()
    job = Job.objects.create(kind="finish", tenant_id=half.pk, state="running", begun_by=operator.row())
    Job.objects.filter(pk=job.pk).update(seen_at=now() - timedelta(minutes=5))
    shown = operator.get(f"/admin/console/job/{job.pk}/change/").content.decode()
    assert "interrupted" in shown
    assert "Run again" in shown
    operator.post(f"/admin/console/job/{job.pk}/again/")
    until_over(job)
    half.refresh_from_db()
    assert (job.read_status(), half.status) == ("done", "active")
    again = operator.post(f"/admin/console/job/{job.pk}/again/")
    assert again.status_code == 400


@pytest.mark.parametrize("moment", ["before", "after"])
def test_job_that_ends_while_its_page_is_written_is_never_called_interrupted(operator: Staff, moment: str) -> None:
    """The page says that the job is done, or goes on asking: what it shows last is never an old state."""
    job = begin_job(kind="finish", by=operator.row())
    Job.objects.filter(pk=job.pk).update(state="running")
    ended = False

    def end_job(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        """End the job before or after the page looks at the queue for the first time."""
        nonlocal ended
        if ended or job.lock not in (params or ()):
            return execute(statement, params, many, context)
        ended = True
        found = execute(statement, params, many, context) if moment == "after" else None
        with connection.cursor() as cursor:
            cursor.execute("UPDATE console_job SET state = 'done' WHERE id = %s", [job.pk])
            cursor.execute("DELETE FROM procrastinate_jobs WHERE lock = %s", [job.lock])
        return found if moment == "after" else execute(statement, params, many, context)

    with connection.execute_wrapper(end_job):
        shown = operator.get(f"/admin/console/job/{job.pk}/state/").content.decode()
    assert ended
    assert "interrupted" not in shown
    assert ("hx-get" in shown, "running" in shown, "done" in shown) == (
        (True, True, False) if moment == "after" else (False, False, True)
    )


def test_waiting_job_without_worker_names_the_command(operator: Staff) -> None:
    answer = operator.post(f"{LIST}provision/", provision_form())
    [number] = re.findall("/job/([0-9a-f-]+)/", answer.headers["Location"])
    shown = operator.get(f"/admin/console/job/{number}/state/").content.decode()
    assert ("waiting" in shown, "Start tenant_worker" in shown, "Run again" in shown) == (True, True, False)
    assert until_over(Job.objects.get(pk=number)).read_status() == "done"
    assert "Start tenant_worker" not in operator.get(f"/admin/console/job/{number}/state/").content.decode()


def test_assurance_table_actions_require_step_up(operator: Staff, tenant: TestTenant) -> None:
    operator.time_passes(minutes=16)
    for step in ("suspend", "settings", "move", "restore", "delete"):
        for response in (
            operator.get(page(tenant, step)),
            operator.post(page(tenant, step), {"typed": tenant.slug}),
        ):
            assert response.headers["Location"].startswith("/admin/reauthenticate/")
    assert state(tenant) == "active"


@pytest.mark.parametrize("step", STEPS)
def test_changes_by_url_require_permission(step: str, tenant: TestTenant) -> None:
    # Admins of a tenant can change its settings only.
    for staff in (new_operator("tenants:read"), new_tenant_admin(tenant, "admins:read", "clients:write")):
        staff.sign_in()
        for response in (staff.get(page(tenant, step)), staff.post(page(tenant, step), {"typed": tenant.slug})):
            assert response.status_code == 403
    assert state(tenant) == "active"


def test_provision_and_run_again_require_permission(tenant: TestTenant, operator: Staff) -> None:
    job = Job.objects.create(kind="finish", tenant_id=tenant.id, state="failed", begun_by=operator.row())
    reader, admin = new_operator("tenants:read").sign_in(), new_tenant_admin(tenant).sign_in()
    for staff in (reader, admin):
        assert staff.post(f"{LIST}provision/", provision_form()).status_code == 403
        assert staff.post(f"/admin/console/job/{job.pk}/again/").status_code == 403
    assert admin.get(f"/admin/console/job/{job.pk}/change/").status_code == 403
    assert reader.get(f"/admin/console/job/{job.pk}/change/").status_code == 200
    assert Job.objects.get(pk=job.pk).state == "failed"


def test_deleted_tenants_are_404(operator: Staff) -> None:
    unknown_id = "8d2f7c52-8f9c-4c1c-9d8c-7f2d9b1a0c11"
    for step in STEPS:
        assert operator.post(f"{LIST}{unknown_id}/{step}/").status_code == 404
    assert operator.get(f"/admin/console/job/{unknown_id}/change/").status_code == 404


def test_first_admin_sets_password_with_mailed_link(operator: Staff) -> None:
    asked = provision_form()
    job_of(operator.post(f"{LIST}provision/", asked))
    [mail] = mails_to(asked["email"])
    [token] = re.findall(r"#token=([A-Za-z0-9_-]+)", mail.body)
    body = {"token": token, "password": "another horse 8 battery"}
    assert Api().post("/uflow/auth/admin/password/reset", body).status_code == 200
    assert sign_in_admin(asked["username"], "another horse 8 battery")["user"]["username"] == asked["username"]
