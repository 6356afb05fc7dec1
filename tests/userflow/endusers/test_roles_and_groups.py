"""Roles and groups of one end user: in the record, as filters of their lists, and in access tokens."""

import secrets
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import jwt
import pytest

from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, House, Person, statements

GROUPS, ROLES = "/authmgr/groups", "/authmgr/roles"


def bind(house: House, person: Person, *permissions: str) -> str:
    """The name of a new role that the user has."""
    role = house.api.post(ROLES, {"name": f"role-{secrets.token_hex(4)}", "permissions": list(permissions)}).json()
    house.api.post(f"{ROLES}/{role['id']}/bindings", {"user_ids": [str(person.id)]})
    return str(role["name"])


def join(house: House, person: Person, *roles: str, name: str | None = None) -> str:
    """The name of a new group that the user is in."""
    group = house.api.post(GROUPS, {"name": name or f"group-{secrets.token_hex(4)}", "roles": list(roles)}).json()
    house.api.post(f"{GROUPS}/{group['id']}/users", {"user_ids": [str(person.id)]})
    return str(group["name"])


def claims(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def names(answer: Any, kind: str) -> set[str]:
    assert answer.status_code == 200, answer.content
    assert answer.json()["total"] == len(answer.json()[kind])
    return {row["name"] for row in answer.json()[kind]}


@pytest.fixture
def belonging(house: House) -> tuple[Person, str, str, str]:
    """A user, a role of their own, a group of theirs, and a role that the group carries."""
    person, neighbour = house.register(), house.register()
    role, carried = bind(house, person), bind(house, neighbour)
    join(house, neighbour)
    return person, role, join(house, person, carried), carried


def test_record_names_roles_and_groups(house: House, belonging: tuple[Person, str, str, str]) -> None:
    person, role, group, carried = belonging
    path = f"/uflow/user/enduser/{house.id}/{person.id}"
    record = house.api.get(path).json()
    assert (record["roles"], record["groups"]) == (sorted([role, carried, "user"]), [group])
    door = house.as_user(person)
    assert door.get(path).json() == {**record, "last_login": door.get(path).json()["last_login"]}
    for known in (door.get("/authmgr/validate").json(), door.get("/authmgr/profile").json()):
        assert (sorted(known["roles"]), known["groups"]) == (record["roles"], record["groups"])


def test_roles_are_filtered_by_user(house: House, belonging: tuple[Person, str, str, str]) -> None:
    person, role, _, carried = belonging
    assert names(house.api.get(ROLES, {"user_id": str(person.id)}), "roles") == {role, carried, "user"}
    assert names(house.api.get(ROLES, {"user_id": str(person.id), "name": role}), "roles") == {role}
    # A role that the user has in both ways is listed once.
    join(house, person, role)
    assert names(house.api.get(ROLES, {"user_id": str(person.id)}), "roles") == {role, carried, "user"}


def test_groups_are_filtered_by_user(house: House, belonging: tuple[Person, str, str, str]) -> None:
    person, _, group, _ = belonging
    assert names(house.api.get(GROUPS, {"user_id": str(person.id)}), "groups") == {group}
    assert names(house.api.get(GROUPS, {"user_id": str(person.id), "name": "no such"}), "groups") == set()
    with statements() as seen:
        house.api.get(GROUPS, {"user_id": str(person.id)})
    assert seen.counts == (1, 3)


def test_user_filter_finds_nothing_of_another_tenant(house: House, other_house: House) -> None:
    theirs = other_house.register()
    bind(other_house, theirs)
    join(other_house, theirs)
    for user_id in (theirs.id, uuid4()):
        assert names(house.api.get(ROLES, {"user_id": str(user_id)}), "roles") == set()
        assert names(house.api.get(GROUPS, {"user_id": str(user_id)}), "groups") == set()
    foreign = {"user_id": str(theirs.id), "tenant_id": str(other_house.id)}
    assert house.api.get(ROLES, foreign).status_code == house.api.get(GROUPS, foreign).status_code == 403
    assert (
        house.api.get(ROLES, {"user_id": "x"}).status_code == house.api.get(GROUPS, {"user_id": "x"}).status_code == 400
    )


def test_access_tokens_name_the_groups(house: House, belonging: tuple[Person, str, str, str]) -> None:
    person, _, group, _ = belonging
    signed_in = house.sign_in(person)
    assert claims(signed_in["access_token"])["groups"] == [group]
    assert "groups" not in claims(str(house.api.token))
    later = join(house, person)
    grant = form(grant_type="refresh_token", refresh_token=signed_in["refresh_token"])
    refreshed = Api().post("/authmgr/token", **grant).json()["access_token"]
    assert claims(refreshed)["groups"] == sorted([group, later])
    assert claims(house.sign_in(house.register())["access_token"])["groups"] == []


def test_introspection_names_the_groups_of_now(house: House, belonging: tuple[Person, str, str, str]) -> None:
    person, _, group, _ = belonging
    token = house.sign_in(person)["access_token"]
    later = join(house, person)
    answer = Api().post("/authmgr/token/introspect", **form(token=token), headers=basic(make_client(house)))
    assert answer.json()["groups"] == sorted([group, later])


def test_many_groups_do_not_make_a_token_too_long(house: House) -> None:
    person = house.register()
    within = [join(house, person, name=f"{number}-{secrets.token_hex(4)}-{'g' * 230}") for number in range(12)]
    assert claims(house.sign_in(person)["access_token"])["groups"] == sorted(within)
    over = [*within, join(house, person, name=secrets.token_hex(127)), join(house, person, name=secrets.token_hex(127))]
    token = house.sign_in(person)["access_token"]
    assert (claims(token).get("groups"), claims(token)["hasgroups"], len(token) < 2000) == (None, True, True)
    assert Api(token=token).get("/authmgr/validate").json()["groups"] == sorted(over)


def test_groups_cost_no_statement_of_their_own(new_house: Callable[[], House]) -> None:
    house = new_house()
    person = house.register()
    join(house, person)
    house.sign_in(person)
    with statements() as login:
        first = house.sign_in(person)
    with statements() as refresh:
        Api().post("/authmgr/token", **form(grant_type="refresh_token", refresh_token=first["refresh_token"]))
    with statements() as record:
        house.api.get(f"/uflow/user/enduser/{house.id}/{person.id}")
    assert (login.counts, refresh.counts, record.counts) == ((1, 2), (3, 7), (1, 1))
