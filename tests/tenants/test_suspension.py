"""A suspended tenant is shut from the next request on, for everybody but operators; its data stays."""

from collections.abc import Callable

import pytest
from django.core.management import CommandError

from tests.tenants.conftest import said_by
from tests.world import Api, Person, TestTenant


@pytest.fixture(scope="module")
def shut(django_db_setup: None, django_db_blocker: object) -> TestTenant:
    """A tenant of this module's own; each test opens it again."""
    from tests.world import build_tenant

    with django_db_blocker.unblock():  # type: ignore[attr-defined]  # pytest-django's blocker is untyped
        return build_tenant("shut")


def suspend(tenant: TestTenant, operator: Api) -> None:
    answer = operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "suspended"})
    assert (answer.status_code, answer.json()["status"]) == (200, "suspended")


def resume(tenant: TestTenant, operator: Api) -> None:
    answer = operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "active"})
    assert (answer.status_code, answer.json()["status"]) == (200, "active")


def login(tenant: TestTenant, person: Person) -> int:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    return int(Api().post("/uflow/auth/enduser/login", body).status_code)


def test_tokens_and_logins_stop_at_the_next_request_and_work_again_after_it(shut: TestTenant, operator: Api) -> None:
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


def test_nobody_registers_meanwhile(shut: TestTenant, operator: Api) -> None:
    suspend(shut, operator)
    body = {
        "tenant_id": str(shut.id),
        "client_id": str(shut.client_id),
        "email": "late@example.com",
        "password": shut.admin.password,
        "name": "Late Comer",
    }
    refused = Api().post("/uflow/user/clients/register", body)
    resume(shut, operator)
    assert refused.status_code == 403
    people = shut.api.get("/uflow/user/enduser/list", {"tenant_id": str(shut.id), "email": "late@example.com"})
    assert people.json()["total"] == 0


def test_another_tenant_is_not_touched(shut: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    suspend(shut, operator)
    answer = other_tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)})
    resume(shut, operator)
    assert answer.status_code == 200


def test_an_operator_still_looks_at_it(shut: TestTenant, operator: Api) -> None:
    person = shut.register()
    suspend(shut, operator)
    listed = operator.get("/uflow/user/enduser/list", {"tenant_id": str(shut.id), "email": person.email})
    tenant = operator.get(f"/uflow/admin/tenants/{shut.id}")
    mapping = operator.get("/uflow/user/enduser/databases", {"tenant_id": str(shut.id)})
    resume(shut, operator)
    assert (listed.status_code, listed.json()["total"]) == (200, 1)
    assert (tenant.status_code, tenant.json()["database"]["status"]) == (200, "suspended")
    assert (mapping.status_code, mapping.json()["status"]) == (200, "suspended")


def test_the_commands_do_the_same(shut: TestTenant) -> None:
    slug = shut.slug
    assert said_by("suspend_tenant", slug) == f"{slug} is suspended.\n"
    assert shut.api.get("/uflow/admin/users/me").status_code == 403
    assert said_by("resume_tenant", slug) == f"{slug} is active again.\n"
    assert shut.api.get("/uflow/admin/users/me").status_code == 200


@pytest.mark.parametrize("command", ["suspend_tenant", "resume_tenant", "delete_tenant"])
def test_a_slug_that_nobody_has_is_refused(command: str) -> None:
    with pytest.raises(CommandError, match="No tenant has the slug nobody") as error:
        said_by(command, "nobody")
    assert error.value.returncode == 2


def test_only_a_suspended_tenant_is_resumed(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    said_by("suspend_tenant", tenant.slug)
    said_by("delete_tenant", tenant.slug, yes=True)
    with pytest.raises(CommandError, match="No tenant"):
        said_by("resume_tenant", tenant.slug)
