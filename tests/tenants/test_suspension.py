"""A suspended tenant rejects everyone but operators from the next request on; its data is kept."""

from collections.abc import Callable

import pytest
from django.core.management import CommandError

from tests.tenants.conftest import run_command
from tests.world import Api, TestTenant, User


@pytest.fixture(scope="module")
def shut(django_db_setup: None, django_db_blocker: object) -> TestTenant:
    """A tenant for this module. Each test resumes it."""
    from tests.world import build_tenant

    with django_db_blocker.unblock():  # type: ignore[attr-defined]  # pytest-django's blocker is untyped
        return build_tenant("shut")


def suspend(tenant: TestTenant, operator: Api) -> None:
    response = operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "suspended"})
    assert (response.status_code, response.json()["status"]) == (200, "suspended")


def resume(tenant: TestTenant, operator: Api) -> None:
    response = operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "active"})
    assert (response.status_code, response.json()["status"]) == (200, "active")


def login(tenant: TestTenant, person: User) -> int:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    return int(Api().post("/uflow/auth/enduser/login", body).status_code)


def test_suspension_stops_tokens_and_logins_until_resumed(shut: TestTenant, operator: Api) -> None:
    person = shut.register()
    user = shut.as_user(person)
    mine = f"/uflow/user/enduser/{shut.id}/{person.id}"
    people = {"tenant_id": str(shut.id)}
    assert user.get(mine).status_code == 200

    suspend(shut, operator)
    assert user.get(mine).status_code == 403
    assert shut.api.get("/uflow/user/enduser/list", people).status_code == 403
    assert shut.api.get("/uflow/admin/users/me").status_code == 403
    assert login(shut, person) == 403
    body = {"username": shut.admin.username, "password": shut.admin.password}
    assert Api().post("/uflow/admin/auth/login", body).status_code == 401

    resume(shut, operator)
    assert user.get(mine).status_code == 200
    assert shut.api.get("/uflow/user/enduser/list", people).status_code == 200
    assert login(shut, person) == 200


def test_registration_is_rejected_while_suspended(shut: TestTenant, operator: Api) -> None:
    suspend(shut, operator)
    body = {
        "tenant_id": str(shut.id),
        "client_id": str(shut.client_id),
        "email": "late@example.com",
        "password": shut.admin.password,
        "name": "Late Comer",
    }
    rejected = Api().post("/uflow/user/clients/register", body)
    resume(shut, operator)
    assert rejected.status_code == 403
    people = shut.api.get("/uflow/user/enduser/list", {"tenant_id": str(shut.id), "email": "late@example.com"})
    assert people.json()["total"] == 0


def test_suspension_affects_one_tenant_only(shut: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    suspend(shut, operator)
    response = other_tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)})
    resume(shut, operator)
    assert response.status_code == 200


def test_operator_reads_suspended_tenant(shut: TestTenant, operator: Api) -> None:
    person = shut.register()
    suspend(shut, operator)
    listed = operator.get("/uflow/user/enduser/list", {"tenant_id": str(shut.id), "email": person.email})
    tenant = operator.get(f"/uflow/admin/tenants/{shut.id}")
    mapping = operator.get("/uflow/user/enduser/databases", {"tenant_id": str(shut.id)})
    resume(shut, operator)
    assert (listed.status_code, listed.json()["total"]) == (200, 1)
    assert (tenant.status_code, tenant.json()["database"]["status"]) == (200, "suspended")
    assert (mapping.status_code, mapping.json()["status"]) == (200, "suspended")


def test_suspend_and_resume_commands(shut: TestTenant) -> None:
    slug = shut.slug
    assert run_command("suspend_tenant", slug) == f"{slug} is suspended.\n"
    assert shut.api.get("/uflow/admin/users/me").status_code == 403
    assert run_command("resume_tenant", slug) == f"{slug} is active again.\n"
    assert shut.api.get("/uflow/admin/users/me").status_code == 200


@pytest.mark.parametrize("command", ["suspend_tenant", "resume_tenant", "delete_tenant"])
def test_migrate_rejects_unknown_slug(command: str) -> None:
    with pytest.raises(CommandError, match="No tenant has the slug unknown") as error:
        run_command(command, "unknown")
    assert error.value.returncode == 2


def test_deleted_tenant_cannot_be_resumed(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    run_command("suspend_tenant", tenant.slug)
    run_command("delete_tenant", tenant.slug, yes=True)
    with pytest.raises(CommandError, match="No tenant"):
        run_command("resume_tenant", tenant.slug)
