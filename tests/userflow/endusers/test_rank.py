"""A caller cannot change a user who holds a permission that the caller lacks, a tenant's own permissions included."""

import secrets
from typing import Any

import pytest

from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, User, assert_created, sign_in_admin
from userflow.accounts.models import AdminRole, AdminUser

Case = tuple[TestTenant, User, User, Api]


@pytest.fixture(scope="module")
def case(tenant: TestTenant, django_db_blocker: Any) -> Case:
    """A tenant, a user who can read credentials, one who cannot, and an admin who manages users only."""
    with django_db_blocker.unblock():
        strong, plain = tenant.register(), tenant.register()
        role = {"name": secrets.token_hex(8), "permissions": ["services:credentials"]}
        role_id = tenant.api.post("/authmgr/roles", role).json()["id"]
        bound = tenant.api.post(f"/authmgr/roles/{role_id}/bindings", {"user_ids": [str(strong.id)]})
        assert bound.status_code in (200, 201), bound.content
        name = f"weak-{secrets.token_hex(4)}"
        names = {"username": name, "email": f"{name}@example.com", "first_name": "W", "last_name": "K"}
        made = tenant.api.post("/uflow/admin/users", {**names, "password": PASSWORD, "roles": ["user-manager"]})
        assert made.status_code == 201, made.content
        return tenant, strong, plain, Api(token=sign_in_admin(name)["access_token"])


def calls(tenant: TestTenant, who: User, api: Api) -> dict[str, Any]:
    body = {"tenant_id": str(tenant.id), "user_id": str(who.id)}
    path = f"/uflow/user/enduser/{tenant.id}/{who.id}"
    return {
        "status": lambda: api.put(f"{path}/status", {"active": False}),
        "active": lambda: api.post("/uflow/admin/enduser/active", {**body, "active": False}),
        "delete": lambda: api.delete(path),
        "soft delete": lambda: api.post("/uflow/user/enduser/delete", body),
        "erase": lambda: api.post("/uflow/user/enduser/delete_all", body),
        "address": lambda: api.put(path, {"email": f"{secrets.token_hex(8)}@example.com"}),
        "name": lambda: api.put(path, {"name": "Another"}),
        "sessions": lambda: api.delete("/authmgr/sessions", query={"user_id": str(who.id)}),
    }


CALLS = ["status", "active", "delete", "soft delete", "erase", "address", "name", "sessions"]


def bind(tenant: TestTenant, *permissions: str) -> User:
    """Return a user of the tenant with a role of these permissions."""
    user = tenant.register()
    role = assert_created(tenant.api.post("/authmgr/roles", {"name": secrets.token_hex(8), "permissions": permissions}))
    bound = tenant.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [str(user.id)]})
    assert bound.status_code == 200, bound.content
    return user


def admin_with(tenant: TestTenant, *permissions: str) -> Api:
    """Return an admin of the tenant with these permissions only."""
    name = f"clerk-{secrets.token_hex(5)}"
    names = {"username": name, "email": f"{name}@example.com", "first_name": "C", "last_name": "K"}
    made = assert_created(tenant.api.post("/uflow/admin/users", {**names, "password": PASSWORD}))
    role = AdminRole.objects.create(name=name, permissions=list(permissions))
    AdminUser.objects.get(pk=made["id"]).roles.set([role])
    return Api(token=sign_in_admin(name)["access_token"])


MANAGING = ("endusers:read", "endusers:write", "endusers:delete", "sessions:write")


@pytest.mark.parametrize("call", CALLS)
def test_weaker_admin_changes_no_stronger_user(case: Case, call: str) -> None:
    tenant, strong, _, manager = case
    assert calls(tenant, strong, manager)[call]().status_code == 403
    assert tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{strong.id}").json()["active"] is True


@pytest.mark.parametrize("call", CALLS)
def test_weaker_admin_manages_plain_users(case: Case, call: str) -> None:
    tenant, _, plain, manager = case
    who = plain if call != "erase" else tenant.register()
    assert calls(tenant, who, manager)[call]().status_code == 200


def test_stronger_admin_deactivates_and_activates(case: Case) -> None:
    tenant, strong, _, _ = case
    path = f"/uflow/user/enduser/{tenant.id}/{strong.id}/status"
    assert tenant.api.put(path, {"active": False}).json()["active"] is False
    assert tenant.api.put(path, {"active": True}).json()["active"] is True


@pytest.mark.parametrize("call", CALLS)
def test_client_without_a_tenants_permission_changes_no_holder(tenant: TestTenant, call: str) -> None:
    holder = bind(tenant, "orders:approve")
    weak = Api(token=own_token(make_client(tenant, scopes=[*MANAGING, "roles:write"])))
    assert calls(tenant, holder, weak)[call]().status_code == 403
    assert tenant.sign_in(holder)["access_token"]


@pytest.mark.parametrize("call", CALLS)
def test_client_with_a_tenants_permission_changes_holders(tenant: TestTenant, call: str) -> None:
    holder = bind(tenant, "orders:approve")
    strong = Api(token=own_token(make_client(tenant, scopes=[*MANAGING, "orders:approve"])))
    assert calls(tenant, holder, strong)[call]().status_code == 200


@pytest.mark.parametrize("call", CALLS)
def test_admin_changes_holders_only_with_the_right_to_grant(tenant: TestTenant, call: str) -> None:
    holder = bind(tenant, "orders:approve")
    assert calls(tenant, holder, admin_with(tenant, *MANAGING))[call]().status_code == 403
    assert calls(tenant, holder, admin_with(tenant, *MANAGING, "roles:write"))[call]().status_code == 200


@pytest.mark.parametrize("call", CALLS)
def test_client_changes_users_of_the_default_role(tenant: TestTenant, call: str) -> None:
    api = Api(token=own_token(make_client(tenant, scopes=list(MANAGING))))
    assert calls(tenant, tenant.register(), api)[call]().status_code == 200


@pytest.mark.parametrize("call", CALLS)
def test_rank_in_one_tenant_counts_in_no_other(tenant: TestTenant, other_tenant: TestTenant, call: str) -> None:
    holder = bind(tenant, "orders:approve")
    bind(other_tenant, "orders:approve")
    strong = Api(token=own_token(make_client(other_tenant, scopes=[*MANAGING, "orders:approve"])))
    for api in (strong, other_tenant.api):
        assert calls(tenant, holder, api)[call]().status_code in (403, 404)
    assert tenant.sign_in(holder)["access_token"]


def test_operator_changes_holders_in_every_tenant(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    for place in (tenant, other_tenant):
        assert calls(place, bind(place, "orders:approve"), operator)["status"]().status_code == 200


def test_client_grants_no_permission_of_the_tenant_that_it_lacks(tenant: TestTenant) -> None:
    role = assert_created(
        tenant.api.post("/authmgr/roles", {"name": secrets.token_hex(8), "permissions": ["orders:approve"]})
    )
    body = {"user_ids": [str(tenant.register().id)]}
    scopes = ["roles:write", "groups:write"]
    weak, strong = (Api(token=own_token(make_client(tenant, scopes=s))) for s in (scopes, [*scopes, "orders:approve"]))
    assert weak.post("/authmgr/roles", {"name": secrets.token_hex(8), "permissions": ["tea:pour"]}).status_code == 403
    for api, expected in ((weak, 403), (strong, 200), (weak, 403)):
        assert api.post(f"/authmgr/roles/{role['id']}/bindings", body).status_code == expected
    assert weak.delete(f"/authmgr/roles/{role['id']}/bindings", body).status_code == 403
    assert weak.put(f"/authmgr/roles/{role['id']}", {"permissions": []}).status_code == 403
    assert weak.delete(f"/authmgr/roles/{role['id']}").status_code == 403
    assert strong.delete(f"/authmgr/roles/{role['id']}").status_code == 200


def test_import_changes_no_stronger_user(case: Case) -> None:
    tenant, strong, _, manager = case
    plain = tenant.register()
    tenant.sign_in(strong), tenant.sign_in(plain)
    rows = [{"email": who.email, "name": "Renamed", "metadata": {"by": "import"}} for who in (strong, plain)]
    body = {"tenant_id": str(tenant.id), "rows": rows, "on_conflict": "update"}
    response = manager.post("/uflow/admin/enduser/import", body).json()
    assert (response["updated"], response["failed"]) == (1, 1)
    assert response["report"] == [
        {"line": 1, "field": "email", "reason": "The user with this address holds permissions that you do not hold."}
    ]
    assert tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{strong.id}").json()["metadata"] == {}
    assert tenant.api.post("/uflow/admin/enduser/import", body).json()["updated"] == 2


@pytest.mark.parametrize("call", CALLS)
def test_permission_held_through_a_group_protects_its_members(case: Case, call: str) -> None:
    tenant, _strong, _plain, weak = case
    member, former = tenant.register(), tenant.register()
    body = {"name": secrets.token_hex(8), "permissions": ["services:credentials"]}
    role = assert_created(tenant.api.post("/authmgr/roles", body))
    group = assert_created(tenant.api.post("/authmgr/groups", {"name": secrets.token_hex(8), "roles": [role["name"]]}))
    members = f"/authmgr/groups/{group['id']}/users"
    for user in (member, former):
        assert tenant.api.post(members, {"user_ids": [str(user.id)]}).status_code == 200
    rejected = calls(tenant, member, weak)[call]()
    assert rejected.status_code == 403, rejected.content
    assert rejected.json()["code"] == "grant_exceeds_permissions"
    # The group alone carries it: who has left it is not protected any more.
    assert tenant.api.delete(members, {"user_ids": [str(former.id)]}).status_code == 200
    allowed = calls(tenant, former, weak)[call]()
    assert allowed.status_code == 200, allowed.content
