"""Roles and groups of one end user: in the record, as filters of their lists, and in access tokens."""

import secrets
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import jwt
import pytest

from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, TestTenant, User, capture_statements

GROUPS, ROLES = "/authmgr/groups", "/authmgr/roles"


def bind(tenant: TestTenant, person: User, *permissions: str) -> str:
    """Bind a new role to the user and return its name."""
    role = tenant.api.post(ROLES, {"name": f"role-{secrets.token_hex(4)}", "permissions": list(permissions)}).json()
    tenant.api.post(f"{ROLES}/{role['id']}/bindings", {"user_ids": [str(person.id)]})
    return str(role["name"])


def join(tenant: TestTenant, person: User, *roles: str, name: str | None = None) -> str:
    """Add the user to a new group and return its name."""
    group = tenant.api.post(GROUPS, {"name": name or f"group-{secrets.token_hex(4)}", "roles": list(roles)}).json()
    tenant.api.post(f"{GROUPS}/{group['id']}/users", {"user_ids": [str(person.id)]})
    return str(group["name"])


def claims(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def names(response: Any, kind: str) -> set[str]:
    assert response.status_code == 200, response.content
    assert response.json()["total"] == len(response.json()[kind])
    return {row["name"] for row in response.json()[kind]}


@pytest.fixture
def belonging(tenant: TestTenant) -> tuple[User, str, str, str]:
    """Return a user, the user's role and group, and a role of the group."""
    person, other_user = tenant.register(), tenant.register()
    role, carried = bind(tenant, person), bind(tenant, other_user)
    join(tenant, other_user)
    return person, role, join(tenant, person, carried), carried


def test_record_names_roles_and_groups(tenant: TestTenant, belonging: tuple[User, str, str, str]) -> None:
    person, role, group, carried = belonging
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    record = tenant.api.get(path).json()
    assert (record["roles"], record["groups"]) == (sorted([role, carried, "user"]), [group])
    api = tenant.as_user(person)
    assert api.get(path).json() == {**record, "last_login": api.get(path).json()["last_login"]}
    for known in (api.get("/authmgr/validate").json(), api.get("/authmgr/profile").json()):
        assert (sorted(known["roles"]), known["groups"]) == (record["roles"], record["groups"])


def test_roles_are_filtered_by_user(tenant: TestTenant, belonging: tuple[User, str, str, str]) -> None:
    person, role, _, carried = belonging
    assert names(tenant.api.get(ROLES, {"user_id": str(person.id)}), "roles") == {role, carried, "user"}
    assert names(tenant.api.get(ROLES, {"user_id": str(person.id), "name": role}), "roles") == {role}
    # A role that the user has directly and by a group is listed once.
    join(tenant, person, role)
    assert names(tenant.api.get(ROLES, {"user_id": str(person.id)}), "roles") == {role, carried, "user"}


def test_groups_are_filtered_by_user(tenant: TestTenant, belonging: tuple[User, str, str, str]) -> None:
    person, _, group, _ = belonging
    assert names(tenant.api.get(GROUPS, {"user_id": str(person.id)}), "groups") == {group}
    assert names(tenant.api.get(GROUPS, {"user_id": str(person.id), "name": "no such"}), "groups") == set()
    with capture_statements() as seen:
        tenant.api.get(GROUPS, {"user_id": str(person.id)})
    assert seen.counts == (1, 3)


def test_user_filter_finds_nothing_of_another_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    theirs = other_tenant.register()
    bind(other_tenant, theirs)
    join(other_tenant, theirs)
    for user_id in (theirs.id, uuid4()):
        assert names(tenant.api.get(ROLES, {"user_id": str(user_id)}), "roles") == set()
        assert names(tenant.api.get(GROUPS, {"user_id": str(user_id)}), "groups") == set()
    foreign = {"user_id": str(theirs.id), "tenant_id": str(other_tenant.id)}
    assert tenant.api.get(ROLES, foreign).status_code == tenant.api.get(GROUPS, foreign).status_code == 403
    assert (
        tenant.api.get(ROLES, {"user_id": "x"}).status_code
        == tenant.api.get(GROUPS, {"user_id": "x"}).status_code
        == 400
    )


def test_access_tokens_name_the_groups(tenant: TestTenant, belonging: tuple[User, str, str, str]) -> None:
    person, _, group, _ = belonging
    signed_in = tenant.sign_in(person)
    assert claims(signed_in["access_token"])["groups"] == [group]
    assert "groups" not in claims(str(tenant.api.token))
    later = join(tenant, person)
    grant = form(grant_type="refresh_token", refresh_token=signed_in["refresh_token"])
    refreshed = Api().post("/authmgr/token", **grant).json()["access_token"]
    assert claims(refreshed)["groups"] == sorted([group, later])
    assert claims(tenant.sign_in(tenant.register())["access_token"])["groups"] == []


def test_introspection_names_current_groups(tenant: TestTenant, belonging: tuple[User, str, str, str]) -> None:
    person, _, group, _ = belonging
    token = tenant.sign_in(person)["access_token"]
    later = join(tenant, person)
    response = Api().post("/authmgr/token/introspect", **form(token=token), headers=basic(make_client(tenant)))
    assert response.json()["groups"] == sorted([group, later])


def test_token_length_is_limited_with_many_groups(tenant: TestTenant) -> None:
    person = tenant.register()
    within = [join(tenant, person, name=f"{number}-{secrets.token_hex(4)}-{'g' * 230}") for number in range(12)]
    assert claims(tenant.sign_in(person)["access_token"])["groups"] == sorted(within)
    over = [
        *within,
        join(tenant, person, name=secrets.token_hex(127)),
        join(tenant, person, name=secrets.token_hex(127)),
    ]
    token = tenant.sign_in(person)["access_token"]
    assert (claims(token).get("groups"), claims(token)["hasgroups"], len(token) < 2000) == (None, True, True)
    assert Api(token=token).get("/authmgr/validate").json()["groups"] == sorted(over)


def test_groups_need_no_extra_statement(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    join(tenant, person)
    tenant.sign_in(person)
    with capture_statements() as login:
        first = tenant.sign_in(person)
    with capture_statements() as refresh:
        Api().post("/authmgr/token", **form(grant_type="refresh_token", refresh_token=first["refresh_token"]))
    with capture_statements() as record:
        tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{person.id}")
    assert (login.counts, refresh.counts, record.counts) == ((0, 3), (0, 4), (1, 1))
