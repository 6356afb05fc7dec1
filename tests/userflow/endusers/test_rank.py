"""A caller changes no user who holds a permission of the platform that the caller lacks."""

import secrets
from typing import Any

import pytest

from tests.world import PASSWORD, Api, House, Person, sign_in_admin

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
    }


@pytest.mark.parametrize("call", ["status", "active", "delete", "soft delete", "erase"])
def test_weaker_admin_cannot_deactivate_or_erase(case: Case, call: str) -> None:
    house, strong, _, manager = case
    assert calls(house, strong, manager)[call]().status_code == 403
    assert house.api.get(f"/uflow/user/enduser/{house.id}/{strong.id}").json()["active"] is True


@pytest.mark.parametrize("call", ["status", "active", "delete", "soft delete", "erase"])
def test_weaker_admin_manages_plain_users(case: Case, call: str) -> None:
    house, _, plain, manager = case
    who = plain if call != "erase" else house.register()
    assert calls(house, who, manager)[call]().status_code == 200


def test_stronger_admin_deactivates_and_activates(case: Case) -> None:
    house, strong, _, _ = case
    path = f"/uflow/user/enduser/{house.id}/{strong.id}/status"
    assert house.api.put(path, {"active": False}).json()["active"] is False
    assert house.api.put(path, {"active": True}).json()["active"] is True
