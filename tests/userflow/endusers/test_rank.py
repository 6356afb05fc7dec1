"""A caller changes no user who holds a permission that the caller lacks, the permissions of tenants included."""

import secrets
from typing import Any

import pytest

from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, House, Person, created, sign_in_admin
from userflow.accounts.models import AdminRole, AdminUser

Case = tuple[House, Person, Person, Api]


@pytest.fixture(scope="module")
def case(house: House, django_db_blocker: Any) -> Case:
    """A tenant, a user who may read credentials there, one who may not, and an admin who manages users only."""
    with django_db_blocker.unblock():
        strong, plain = house.register(), house.register()
        role = {"name": secrets.token_hex(8), "permissions": ["services:credentials"]}
        role_id = house.api.post("/authmgr/roles", role).json()["id"]
        bound = house.api.post(f"/authmgr/roles/{role_id}/bindings", {"user_ids": [str(strong.id)]})
        assert bound.status_code in (200, 201), bound.content
        name = f"weak-{secrets.token_hex(4)}"
        names = {"username": name, "email": f"{name}@example.com", "first_name": "W", "last_name": "K"}
        made = house.api.post("/uflow/admin/users", {**names, "password": PASSWORD, "roles": ["user-manager"]})
        assert made.status_code == 201, made.content
        return house, strong, plain, Api(token=sign_in_admin(name)["access_token"])


def calls(house: House, who: Person, door: Api) -> dict[str, Any]:
    body = {"tenant_id": str(house.id), "user_id": str(who.id)}
    path = f"/uflow/user/enduser/{house.id}/{who.id}"
    return {
        "status": lambda: door.put(f"{path}/status", {"active": False}),
        "active": lambda: door.post("/uflow/admin/enduser/active", {**body, "active": False}),
        "delete": lambda: door.delete(path),
        "soft delete": lambda: door.post("/uflow/user/enduser/delete", body),
        "erase": lambda: door.post("/uflow/user/enduser/delete_all", body),
        "address": lambda: door.put(path, {"email": f"{secrets.token_hex(8)}@example.com"}),
        "name": lambda: door.put(path, {"name": "Another"}),
        "sessions": lambda: door.delete("/authmgr/sessions", query={"user_id": str(who.id)}),
    }


CALLS = ["status", "active", "delete", "soft delete", "erase", "address", "name", "sessions"]


def bind(house: House, *permissions: str) -> Person:
    """A user of the tenant with a role of these permissions."""
    user = house.register()
    role = created(house.api.post("/authmgr/roles", {"name": secrets.token_hex(8), "permissions": permissions}))
    bound = house.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [str(user.id)]})
    assert bound.status_code == 200, bound.content
    return user


def admin_with(house: House, *permissions: str) -> Api:
    """An admin of the tenant who holds these permissions only."""
    name = f"clerk-{secrets.token_hex(5)}"
    names = {"username": name, "email": f"{name}@example.com", "first_name": "C", "last_name": "K"}
    made = created(house.api.post("/uflow/admin/users", {**names, "password": PASSWORD}))
    role = AdminRole.objects.create(name=name, permissions=list(permissions))
    AdminUser.objects.get(pk=made["id"]).roles.set([role])
    return Api(token=sign_in_admin(name)["access_token"])


MANAGING = ("endusers:read", "endusers:write", "endusers:delete", "sessions:write")


@pytest.mark.parametrize("call", CALLS)
def test_weaker_admin_changes_no_stronger_user(case: Case, call: str) -> None:
    house, strong, _, manager = case
    assert calls(house, strong, manager)[call]().status_code == 403
    assert house.api.get(f"/uflow/user/enduser/{house.id}/{strong.id}").json()["active"] is True


@pytest.mark.parametrize("call", CALLS)
def test_weaker_admin_manages_plain_users(case: Case, call: str) -> None:
    house, _, plain, manager = case
    who = plain if call != "erase" else house.register()
    assert calls(house, who, manager)[call]().status_code == 200


def test_stronger_admin_deactivates_and_activates(case: Case) -> None:
    house, strong, _, _ = case
    path = f"/uflow/user/enduser/{house.id}/{strong.id}/status"
    assert house.api.put(path, {"active": False}).json()["active"] is False
    assert house.api.put(path, {"active": True}).json()["active"] is True


@pytest.mark.parametrize("call", CALLS)
def test_client_without_a_tenants_permission_changes_no_holder(house: House, call: str) -> None:
    holder = bind(house, "orders:approve")
    weak = Api(token=own_token(make_client(house, scopes=[*MANAGING, "roles:write"])))
    assert calls(house, holder, weak)[call]().status_code == 403
    assert house.sign_in(holder)["access_token"]


@pytest.mark.parametrize("call", CALLS)
def test_client_with_a_tenants_permission_changes_holders(house: House, call: str) -> None:
    holder = bind(house, "orders:approve")
    strong = Api(token=own_token(make_client(house, scopes=[*MANAGING, "orders:approve"])))
    assert calls(house, holder, strong)[call]().status_code == 200


@pytest.mark.parametrize("call", CALLS)
def test_admin_changes_holders_only_with_the_right_to_grant(house: House, call: str) -> None:
    holder = bind(house, "orders:approve")
    assert calls(house, holder, admin_with(house, *MANAGING))[call]().status_code == 403
    assert calls(house, holder, admin_with(house, *MANAGING, "roles:write"))[call]().status_code == 200


@pytest.mark.parametrize("call", CALLS)
def test_client_changes_users_of_the_default_role(house: House, call: str) -> None:
    door = Api(token=own_token(make_client(house, scopes=list(MANAGING))))
    assert calls(house, house.register(), door)[call]().status_code == 200


@pytest.mark.parametrize("call", CALLS)
def test_rank_in_one_tenant_counts_in_no_other(house: House, other_house: House, call: str) -> None:
    holder = bind(house, "orders:approve")
    bind(other_house, "orders:approve")
    strong = Api(token=own_token(make_client(other_house, scopes=[*MANAGING, "orders:approve"])))
    for door in (strong, other_house.api):
        assert calls(house, holder, door)[call]().status_code in (403, 404)
    assert house.sign_in(holder)["access_token"]


def test_operator_changes_holders_in_every_tenant(house: House, other_house: House, operator: Api) -> None:
    for place in (house, other_house):
        assert calls(place, bind(place, "orders:approve"), operator)["status"]().status_code == 200


def test_client_grants_no_permission_of_the_tenant_that_it_lacks(house: House) -> None:
    role = created(house.api.post("/authmgr/roles", {"name": secrets.token_hex(8), "permissions": ["orders:approve"]}))
    body = {"user_ids": [str(house.register().id)]}
    scopes = ["roles:write", "groups:write"]
    weak, strong = (Api(token=own_token(make_client(house, scopes=s))) for s in (scopes, [*scopes, "orders:approve"]))
    assert weak.post("/authmgr/roles", {"name": secrets.token_hex(8), "permissions": ["tea:pour"]}).status_code == 403
    for door, expected in ((weak, 403), (strong, 200), (weak, 403)):
        assert door.post(f"/authmgr/roles/{role['id']}/bindings", body).status_code == expected
    assert weak.delete(f"/authmgr/roles/{role['id']}/bindings", body).status_code == 403
    assert weak.put(f"/authmgr/roles/{role['id']}", {"permissions": []}).status_code == 403
    assert weak.delete(f"/authmgr/roles/{role['id']}").status_code == 403
    assert strong.delete(f"/authmgr/roles/{role['id']}").status_code == 200


def test_import_changes_no_stronger_user(case: Case) -> None:
    house, strong, _, manager = case
    plain = house.register()
    house.sign_in(strong), house.sign_in(plain)
    rows = [{"email": who.email, "name": "Renamed", "metadata": {"by": "import"}} for who in (strong, plain)]
    body = {"tenant_id": str(house.id), "rows": rows, "on_conflict": "update"}
    answer = manager.post("/uflow/admin/enduser/import", body).json()
    assert (answer["updated"], answer["failed"]) == (1, 1)
    assert answer["report"] == [
        {"line": 1, "field": "email", "reason": "The user with this address holds permissions that you do not hold."}
    ]
    assert house.api.get(f"/uflow/user/enduser/{house.id}/{strong.id}").json()["metadata"] == {}
    assert house.api.post("/uflow/admin/enduser/import", body).json()["updated"] == 2
