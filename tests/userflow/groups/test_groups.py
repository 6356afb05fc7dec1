"""Groups of end users: they carry roles, and joining and leaving count at once."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tests.world import PASSWORD, Api, House, Person, sign_in_admin, statements

GROUPS = "/authmgr/groups"
NOBODY = "00000000-0000-4000-8000-000000000000"


def role(house: House, *permissions: str) -> str:
    name = f"role-{secrets.token_hex(4)}"
    assert house.api.post("/authmgr/roles", {"name": name, "permissions": list(permissions)}).status_code == 201
    return name


def make(house: House, **members: Any) -> dict[str, Any]:
    answer = house.api.post(GROUPS, {"name": f"group-{secrets.token_hex(4)}", **members})
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def users(group: dict[str, Any]) -> str:
    return f"{GROUPS}/{group['id']}/users"


def ids(*people: Person) -> dict[str, list[str]]:
    return {"user_ids": [str(person.id) for person in people]}


def held(door: Api) -> set[str]:
    return set(door.get("/exsvc/debug/auth").json()["permissions"])


def test_a_group_is_made_read_changed_and_deleted(house: House) -> None:
    first, second = role(house), role(house)
    group = make(house, description="On call", roles=[first.upper()])
    assert (group["roles"], house.api.get(f"{GROUPS}/{group['id']}").json()) == ([first], group)
    changed = house.api.put(f"{GROUPS}/{group['id']}", {"roles": [second]}).json()
    assert (changed["roles"], changed["name"], changed["description"]) == ([second], group["name"], "On call")
    assert house.api.put(f"{GROUPS}/{group['id']}", {"name": "n" * 256}).status_code == 400
    assert house.api.delete(f"{GROUPS}/{group['id']}").json()["id"] == group["id"]
    assert house.api.get(f"{GROUPS}/{group['id']}").status_code == 404


def test_groups_come_in_pages_and_by_a_part_of_the_name(house: House) -> None:
    mark = secrets.token_hex(4)
    names = [make(house, name=f"Team {mark} {number}")["name"] for number in range(3)]
    found = house.api.get(GROUPS, {"name": f"team {mark}", "limit": "2", "page": "2"}).json()
    assert ([group["name"] for group in found["groups"]], found["total"], found["total_pages"]) == (names[:1], 3, 2)


def test_joining_leaving_and_the_groups_roles_count_at_the_very_next_request(house: House) -> None:
    person = house.register()
    door, carried = house.as_user(person), role(house, "lamps:dim")
    group = make(house, roles=[carried])
    assert house.api.post(users(group), ids(person)).json()["changed"] == 1
    assert "lamps:dim" in held(door)
    house.api.put(f"{GROUPS}/{group['id']}", {"roles": []})
    assert "lamps:dim" not in held(door)
    house.api.put(f"{GROUPS}/{group['id']}", {"roles": [carried]})
    assert "lamps:dim" in held(door)
    assert house.api.delete(users(group), ids(person)).json()["changed"] == 1
    assert "lamps:dim" not in held(door)


def test_a_deleted_group_takes_its_roles_along(house: House) -> None:
    person, group = house.register(), make(house, roles=[role(house, "lamps:smash")])
    house.api.post(users(group), ids(person))
    door = house.as_user(person)
    assert "lamps:smash" in held(door)
    house.api.delete(f"{GROUPS}/{group['id']}")
    assert "lamps:smash" not in held(door)


def test_members_are_taken_all_or_none_and_the_unknown_are_named(house: House, other_house: House) -> None:
    group, person, stranger = make(house), house.register(), other_house.register()
    for call in (house.api.post, house.api.delete):
        refused = call(users(group), ids(person, stranger))
        assert refused.status_code == 404
        assert refused.json()["details"] == {"user_ids": [f"No user has the id {stranger.id}."]}
    assert house.api.get(users(group)).json()["total"] == 0
    assert house.api.post(users(group), ids(person)).status_code == 200
    (member,) = house.api.get(users(group)).json()["users"]
    assert (member["id"], member["email"], member["active"]) == (str(person.id), person.email, True)


def test_an_unknown_role_is_named_and_nothing_is_made(house: House) -> None:
    name = f"group-{secrets.token_hex(4)}"
    refused = house.api.post(GROUPS, {"name": name, "roles": ["no such role"]})
    assert (refused.status_code, "no such role" in refused.json()["details"]["roles"][0]) == (400, True)
    assert house.api.get(GROUPS, {"name": name}).json()["total"] == 0


def manager_of(house: House) -> Api:
    """An admin of the house who manages users only."""
    name = f"manager-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "M", "last_name": "G"}
    house.api.post("/uflow/admin/users", {**body, "roles": ["user-manager"]})
    return Api(token=sign_in_admin(name)["access_token"])


def test_nobody_grants_through_a_group_what_they_do_not_hold(house: House) -> None:
    weak, person = manager_of(house), house.register()
    strong = role(house, "services:credentials")
    group, empty = make(house, roles=[strong]), make(house)
    assert weak.post(GROUPS, {"name": f"g{secrets.token_hex(4)}", "roles": [strong]}).status_code == 403
    assert weak.put(f"{GROUPS}/{empty['id']}", {"roles": [strong]}).status_code == 403
    assert weak.post(users(group), ids(person)).status_code == 403
    # A directory maps its groups by name: renamed into the place of a weak group it would be given to that one's people.
    assert weak.put(f"{GROUPS}/{group['id']}", {"name": f"g{secrets.token_hex(4)}"}).status_code == 403
    assert weak.put(f"{GROUPS}/{group['id']}", {"description": "as it was"}).status_code == 200
    assert weak.put(f"{GROUPS}/{empty['id']}", {"name": f"g{secrets.token_hex(4)}"}).status_code == 200
    assert weak.put(f"{GROUPS}/{group['id']}", {"description": "still strong", "roles": [strong]}).status_code == 200


def test_weaker_admin_takes_no_group_with_more_permissions_away(house: House) -> None:
    weak, person = manager_of(house), house.register()
    group = make(house, roles=[role(house, "services:credentials")])
    assert house.api.post(users(group), ids(person)).status_code == 200
    assert weak.delete(users(group), ids(person)).status_code == 403
    assert weak.put(f"{GROUPS}/{group['id']}", {"roles": []}).status_code == 403
    assert weak.delete(f"{GROUPS}/{group['id']}").status_code == 403
    assert house.api.get(users(group)).json()["total"] == 1
    assert house.api.delete(f"{GROUPS}/{group['id']}").status_code == 200


def test_one_name_in_any_case_is_one_group_also_in_a_race(house: House) -> None:
    name = f"Race {secrets.token_hex(4)}"

    def attempt(number: int) -> int:
        try:
            return int(
                Api(token=house.api.token).post(GROUPS, {"name": name.lower() if number % 2 else name}).status_code
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(attempt, range(10))) == [201] + [409] * 9


def test_parallel_joins_of_one_user_make_one_member(house: House) -> None:
    group, person = make(house), house.register()

    def join(_: int) -> int:
        try:
            return int(Api(token=house.api.token).post(users(group), ids(person)).json()["changed"])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(join, range(8))) == 1
    assert house.api.get(users(group)).json()["total"] == 1


def test_another_tenants_group_is_the_404_of_an_unknown_one(house: House, other_house: House) -> None:
    group, person = make(house), other_house.register()
    for method, suffix, body in (
        ("get", "", None),
        ("put", "", {"name": "x"}),
        ("delete", "", None),
        ("get", "/users", None),
        ("post", "/users", ids(person)),
        ("delete", "/users", ids(person)),
    ):
        foreign = other_house.api.call(method, f"{GROUPS}/{group['id']}{suffix}", body)
        unknown = other_house.api.call(method, f"{GROUPS}/{NOBODY}{suffix}", body)
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.json() == unknown.json()
    assert house.api.get(f"{GROUPS}/{group['id']}").json() == group


def test_another_tenants_role_is_unknown_to_a_group(house: House, other_house: House) -> None:
    assert house.api.post(GROUPS, {"name": "x", "roles": [role(other_house)]}).status_code == 400


def test_only_who_may_reads_and_writes_groups(house: House, other_house: House, operator: Api) -> None:
    group, end_user = make(house), house.as_user(house.register())
    assert Api().get(GROUPS).status_code == 401
    assert end_user.get(GROUPS).status_code == end_user.post(GROUPS, {"name": "x"}).status_code == 403
    assert house.api.get(GROUPS, {"tenant_id": str(other_house.id)}).status_code == 403
    assert operator.get(f"{GROUPS}/{group['id']}", {"tenant_id": str(house.id)}).json() == group
    assert operator.get(GROUPS).status_code == 400


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": 5}, "name"),
        ({"name": "x", "roles": "y"}, "roles"),
        ({"name": "x", "roles": [1]}, "roles[0]"),
    ],
)
def test_a_bad_group_names_the_member(house: House, body: dict[str, Any], member: str) -> None:
    answer = house.api.post(GROUPS, body)
    assert answer.status_code == 400
    assert next(iter(answer.json()["details"])).startswith(member.partition("[")[0])


def test_the_number_of_statements_does_not_grow(house: House) -> None:
    group, people = make(house, roles=[role(house), role(house)]), [house.register() for _ in range(4)]
    with statements() as one:
        house.api.post(users(group), ids(people[0]))
    with statements() as more:
        house.api.post(users(group), ids(*people[1:]))
    # The last one is the event's, which no endpoint of this tenant listens to.
    assert [len(one.shared), len(one.own)] == [len(more.shared), len(more.own)] == [1, 7]
    with statements() as listed:
        house.api.get(GROUPS)
    with statements() as members:
        house.api.get(users(group))
    # The caller's state; the page, its roles, the total; of members also whether the group is there.
    assert [len(listed.shared), len(listed.own), len(members.shared), len(members.own)] == [1, 3, 1, 3]


def test_every_change_is_in_the_audit_trail(house: House) -> None:
    group, person = make(house), house.register()
    house.api.post(users(group), ids(person))
    house.api.delete(users(group), ids(person))
    house.api.delete(f"{GROUPS}/{group['id']}")
    told = house.api.get("/uflow/admin/audit", {"target": group["id"]}).json()["events"]
    assert [event["action"] for event in told] == ["group.deleted", "group.created"]
    about = house.api.get("/uflow/admin/audit", {"target": str(person.id), "limit": "2"}).json()["events"]
    assert [event["action"] for event in about] == ["group.left", "group.joined"]
