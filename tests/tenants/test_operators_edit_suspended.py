"""Operators edit and erase the users of a suspended tenant; the tenant's own users cannot sign in."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenants.lifecycle.provisioning import resume_tenant, suspend_tenant
from tenants.models import TenantDatabase
from tests.mfa.people import new_user
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant, User, build_tenant

Change = Callable[[Api, TestTenant, User], Any]


@pytest.fixture(scope="module")
def closed(django_db_setup: None, django_db_blocker: Any) -> Iterator[TestTenant]:
    """A suspended tenant. Each test gets users who registered before."""
    with django_db_blocker.unblock():
        yield build_tenant("closed")


@pytest.fixture
def user(closed: TestTenant) -> Iterator[User]:
    """A user of the tenant, which is suspended until the end of the test; another active user remains."""
    closed.register()
    person = closed.register()
    suspend_tenant(tenant_id=closed.id)
    yield person
    resume_tenant(tenant_id=closed.id)


def named(tenant: TestTenant, person: User) -> dict[str, str]:
    return {"tenant_id": str(tenant.id), "user_id": str(person.id)}


def record(tenant: TestTenant, person: User) -> str:
    return f"/uflow/user/enduser/{tenant.id}/{person.id}"


CHANGES: dict[str, Change] = {
    "profile": lambda api, tenant, user: api.put(record(tenant, user), {"name": "New Name", "metadata": {"a": 1}}),
    "status": lambda api, tenant, user: api.put(f"{record(tenant, user)}/status", {"active": False}),
    "active": lambda api, tenant, user: api.post(
        "/uflow/admin/enduser/active", {**named(tenant, user), "active": False}
    ),
    "soft delete": lambda api, tenant, user: api.delete(record(tenant, user)),
    "soft delete by body": lambda api, tenant, user: api.post("/uflow/user/enduser/delete", named(tenant, user)),
    "hard delete": lambda api, tenant, user: api.post("/uflow/user/enduser/delete_all", named(tenant, user)),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_operator_changes_users_of_suspended_tenant(
    change: str, closed: TestTenant, user: User, other_tenant: TestTenant, operator: Api
) -> None:
    other_user = other_tenant.register()
    assert CHANGES[change](closed.api, closed, user).status_code == 403
    assert CHANGES[change](other_tenant.api, closed, user).status_code == 403
    assert CHANGES[change](operator, closed, other_user).status_code == 404
    response = CHANGES[change](operator, closed, user)
    assert response.status_code == 200, response.content
    found = operator.get(record(closed, user))
    assert found.status_code == (404 if change == "hard delete" else 200)
    assert change in ("hard delete", "profile") or found.json()["active"] is False
    assert change != "profile" or found.json()["name"] == "New Name"


@pytest.mark.parametrize("state", ["migrating", "moving", "failed"])
def test_operators_change_no_users_in_other_states(state: str, closed: TestTenant, operator: Api) -> None:
    person = closed.register()
    row = TenantDatabase.objects.filter(pk=closed.id)
    row.update(status=state)
    responses = [change(operator, closed, person).status_code for change in CHANGES.values()]
    row.update(status="active")
    assert responses == [503] * len(CHANGES)


def test_operator_ends_sessions_of_suspended_tenant(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    person, other = tenant.register(), tenant.register()
    for someone in (person, person, other):
        tenant.sign_in(someone)
    suspend_tenant(tenant_id=tenant.id)
    found = operator.get("/authmgr/sessions", named(tenant, person)).json()["sessions"]
    assert len(found) == 2
    place = {"tenant_id": str(tenant.id)}
    assert operator.call("DELETE", f"/authmgr/sessions/{found[0]['id']}", query=place).status_code == 200
    assert [row["id"] for row in operator.get("/authmgr/sessions", named(tenant, person)).json()["sessions"]] == [
        found[1]["id"]
    ]
    assert len(operator.get("/authmgr/sessions", named(tenant, other)).json()["sessions"]) == 1
    assert tenant.api.get("/authmgr/sessions", named(tenant, other)).status_code == 403


def test_operator_resets_factors_in_suspended_tenant(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    person, other = new_user(tenant).enrol_totp(), new_user(tenant).enrol_totp()
    suspend_tenant(tenant_id=tenant.id)
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id), "reason": "lost phone"}
    assert tenant.api.post("/webauthn/factors/reset", body).status_code == 403
    response = operator.post("/webauthn/factors/reset", body)
    assert (response.status_code, response.json()["removed"]["totp"]) == (200, 1), response.content
    assert mails_to(person.email)
    resume_tenant(tenant_id=tenant.id)
    assert (person.row().mfa_methods, other.row().mfa_methods) == ([], ["totp", "backup_code"])


def test_operator_edits_admins_of_suspended_tenant(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    body = {"username": f"second-{tenant.id.hex[:8]}", "email": f"second-{tenant.id.hex[:8]}@example.com"}
    names = {"password": PASSWORD, "first_name": "S", "last_name": "T"}
    second = tenant.api.post("/uflow/admin/users", {**body, **names}).json()["id"]
    suspend_tenant(tenant_id=tenant.id)
    assert operator.put(f"/uflow/admin/users/{second}", {"first_name": "New"}).json()["first_name"] == "New"
    assert operator.post("/uflow/admin/users/active", {"user_id": second, "active": False}).status_code == 200
    assert operator.delete(f"/uflow/admin/users/{tenant.admin.id}").status_code == 403  # the last admin
    assert tenant.api.put(f"/uflow/admin/users/{second}", {"first_name": "Own"}).status_code == 403


def test_operator_changes_in_suspended_tenant_are_audited(closed: TestTenant, user: User, operator: Api) -> None:
    CHANGES["soft delete"](operator, closed, user)
    query = {"tenant_id": str(closed.id), "target": str(user.id)}
    events = operator.get("/uflow/admin/audit", query).json()["events"]
    assert events[0]["action"] == "end_user.deactivated"
