"""kill -9 after every step of a job, then the same command again."""

import json
import secrets
from datetime import timedelta

import pytest
from django.utils.timezone import now
from procrastinate.contrib.django.models import ProcrastinateWorker

from console.jobs.actions import begin_job
from identity_platform import task_queue
from tenants.consistency import repairs
from tenants.errors import UnknownTenant
from tenants.lifecycle import provisioning, warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.lifecycle.queries import tenant_named
from tenants.models import Tenant, TenantDatabase, WarmDatabase
from tests.jobs import run_waiting_jobs
from tests.tenants.conftest import AnotherProcess, databases_on, run_command, throw_away
from tests.world import Api, sign_in_admin
from userflow.accounts.models import AdminUser, Client

MAKING = ["mapped", "copied", "limited", "verified", "activated"]
DELETING = ["deleting", "dropped"]


def wrong_with(*subjects: str) -> list[str]:
    """Return the findings about these tenants and databases, and all orphans."""
    found = repairs.find_problems()
    return [f"{f.kind} {f.subject}" for f in found if f.subject in subjects or f.kind is repairs.Kind.ORPHAN]


@pytest.mark.parametrize("step", MAKING[:-1])
def test_killed_provisioning_is_finished_by_same_command(
    step: str, no_spares: None, another_process: AnotherProcess
) -> None:
    slug, admin = f"killed-{secrets.token_hex(4)}", f"admin-{secrets.token_hex(4)}"
    command = ["create_tenant", "Killed", "--slug", slug, "--json"]
    command += ["--admin-username", admin, "--admin-email", f"{admin}@example.com"]
    assert another_process.run(*command, kill_after=step).code == 9
    assert TenantDatabase.objects.get(tenant__slug=slug).status == "provisioning"
    made = json.loads(run_command(*command))
    assert made["database"]["status"] == "active"
    assert sign_in_admin(admin, made["admin"]["password"])["user"]["username"] == admin
    assert Tenant.objects.filter(slug=slug).count() == Client.objects.filter(tenant__slug=slug).count() == 1
    assert wrong_with(slug) == []
    throw_away(tenant_named(slug))


def test_provisioning_killed_after_last_step_is_complete(no_spares: None, another_process: AnotherProcess) -> None:
    slug = f"killed-{secrets.token_hex(4)}"
    assert another_process.run("create_tenant", "Killed", "--slug", slug, kill_after="activated").code == 9
    assert another_process.run("create_tenant", "Killed", "--slug", slug).code != 0
    assert Client.objects.filter(tenant__slug=slug, is_default=True).count() == 1
    assert wrong_with(slug) == []
    throw_away(tenant_named(slug))


def test_repair_finishes_killed_provisioning(no_spares: None, another_process: AnotherProcess) -> None:
    slug = f"killed-{secrets.token_hex(4)}"
    another_process.run("create_tenant", "Killed", "--slug", slug, kill_after="copied")
    assert wrong_with(slug) == [f"interrupted provisioning {slug}"]
    [finding] = [finding for finding in repairs.find_problems() if finding.subject == slug]
    assert repairs.repair(finding) == ""
    assert wrong_with(slug) == []
    assert Client.objects.filter(tenant__slug=slug, is_default=True).count() == 1
    throw_away(tenant_named(slug))


def test_killed_provisioning_can_be_deleted(no_spares: None, another_process: AnotherProcess) -> None:
    slug = f"killed-{secrets.token_hex(4)}"
    another_process.run("create_tenant", "Killed", "--slug", slug, kill_after="copied")
    database = TenantDatabase.objects.get(tenant__slug=slug).name
    run_command("delete_tenant", slug, yes=True)
    assert database not in databases_on(main_server())


@pytest.mark.parametrize("step", DELETING)
def test_killed_deletion_is_finished_by_same_command(step: str, another_process: AnotherProcess) -> None:
    slug = f"killed-{secrets.token_hex(4)}"
    tenant = provisioning.create_tenant(name="Killed", slug=slug)
    assert another_process.run("delete_tenant", slug, "--yes", kill_after=step).code == 9
    assert wrong_with(slug) == [f"interrupted deletion {slug}"]
    run_command("delete_tenant", slug, yes=True)
    assert TenantDatabase.objects.get(pk=tenant.pk).status == "deleted"
    assert tenant.database.name not in databases_on(main_server())
    assert wrong_with(slug) == []
    with pytest.raises(UnknownTenant):
        tenant_named(slug)


def test_killed_deletion_can_be_finished_over_http(operator: Api, another_process: AnotherProcess) -> None:
    slug = f"killed-{secrets.token_hex(4)}"
    tenant = provisioning.create_tenant(name="Killed", slug=slug)
    another_process.run("delete_tenant", slug, "--yes", kill_after="dropped")
    assert operator.delete(f"/uflow/admin/tenants/{tenant.pk}", {"confirm": slug}).status_code == 200
    assert operator.get(f"/uflow/admin/tenants/{tenant.pk}").status_code == 404


WORKER = ["tenant_worker", "--size", "0", "--every", "0.1", "--seal-every", "0", "--figures-every", "0"]


@pytest.mark.parametrize("step", ["copied", "limited", "verified"])
def test_next_worker_finishes_killed_console_job(
    step: str, no_spares: None, operator_name: str, another_process: AnotherProcess
) -> None:
    mark = secrets.token_hex(4)
    params = {"name": "Killed", "slug": f"killed-{mark}", "server": "", "username": f"ann-{mark}"}
    operator = AdminUser.objects.get(username=operator_name)
    job = begin_job(kind="provision", by=operator, params=params | {"email": f"ann-{mark}@example.com"})
    assert job.read_status() == "waiting"
    assert another_process.run(*WORKER, kill_after=step).code == 9
    ProcrastinateWorker._base_manager.update(last_heartbeat=now() - timedelta(minutes=1))
    job.refresh_from_db()
    assert (job.state, job.read_status()) == ("running", "interrupted")
    task_queue.recover_abandoned_tasks()
    run_waiting_jobs()
    job.refresh_from_db()
    assert (job.read_status(), job.reason, job.begun_by) == ("done", "", operator)
    tenant = tenant_named(params["slug"])
    assert (tenant.pk, tenant.database.status) == (job.tenant_id, "active")
    throw_away(tenant)


@pytest.mark.parametrize("step", ["reserved", "copied", "limited"])
def test_next_refill_finishes_killed_refill(step: str, no_spares: None, another_process: AnotherProcess) -> None:
    assert another_process.run("tenant_worker", "--once", "--size", "1", kill_after=step).code == 9
    [spare] = WarmDatabase.objects.all()
    assert wrong_with(spare.name) == [f"unfinished spare {spare.name}"]
    warm_pool.refill(main_server(), 1)
    assert WarmDatabase.objects.get().name == spare.name
    assert wrong_with(spare.name) == []
    tenant = provisioning.create_tenant(name="Claims", slug=f"claims-{secrets.token_hex(4)}")
    assert tenant.database.name == spare.name
    throw_away(tenant)
