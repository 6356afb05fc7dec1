"""Groups of end users: they carry roles, and joining and leaving count at once."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tests.world import PASSWORD, Api, TestTenant, User, capture_statements, sign_in_admin

GROUPS = "/authmgr/groups"
NOBODY = "00000000-0000-4000-8000-000000000000"


def role(tenant: TestTenant, *permissions: str) -> str:
    name = f"role-{secrets.token_hex(4)}"
    assert tenant.api.post("/authmgr/roles", {"name": name, "permissions": list(permissions)}).status_code == 201
    return name


def make(tenant: TestTenant, **members: Any) -> dict[str, Any]:
    response = tenant.api.post(GROUPS, {"name": f"group-{secrets.token_hex(4)}", **members})
    assert response.status_code == 201, response.content
    return dict(response.json())


def users(group: dict[str, Any]) -> str:
    return f"{GROUPS}/{group['id']}/users"


def ids(*people: User) -> dict[str, list[str]]:
    return {"user_ids": [str(person.id) for person in people]}


def held(api: Api) -> set[str]:
    return set(api.get("/exsvc/debug/auth").json()["permissions"])


def test_a_group_is_made_read_changed_and_deleted(tenant: TestTenant) -> None:
    first, second = role(tenant), role(tenant)
    group = make(tenant, description="On call", roles=[first.upper()])
    assert (group["roles"], tenant.api.get(f"{GROUPS}/{group['id']}").json()) == ([first], group)
    changed = tenant.api.put(f"{GROUPS}/{group['id']}", {"roles": [second]}).json()
    assert (changed["roles"], changed["name"], changed["description"]) == ([second], group["name"], "On call")
    assert tenant.api.put(f"{GROUPS}/{group['id']}", {"name": "n" * 256}).status_code == 400
    assert tenant.api.delete(f"{GROUPS}/{group['id']}").json()["id"] == group["id"]
    assert tenant.api.get(f"{GROUPS}/{group['id']}").status_code == 404


def test_groups_come_in_pages_and_by_a_part_of_the_name(tenant: TestTenant) -> None:
    mark = secrets.token_hex(4)
    names = [make(tenant, name=f"Team {mark} {number}")["name"] for number in range(3)]
    found = tenant.api.get(GROUPS, {"name": f"team {mark}", "limit": "2", "page": "2"}).json()
    assert ([group["name"] for group in found["groups"]], found["total"], found["total_pages"]) == (names[:1], 3, 2)


def test_group_changes_apply_at_next_request(tenant: TestTenant) -> None:
    person = tenant.register()
    api, carried = tenant.as_user(person), role(tenant, "lamps:dim")
    group = make(tenant, roles=[carried])
    assert tenant.api.post(users(group), ids(person)).json()["changed"] == 1
    assert "lamps:dim" in held(api)
    tenant.api.put(f"{GROUPS}/{group['id']}", {"roles": []})
    assert "lamps:dim" not in held(api)
    tenant.api.put(f"{GROUPS}/{group['id']}", {"roles": [carried]})
    assert "lamps:dim" in held(api)
    assert tenant.api.delete(users(group), ids(person)).json()["changed"] == 1
    assert "lamps:dim" not in held(api)


def test_a_deleted_group_takes_its_roles_along(tenant: TestTenant) -> None:
    person, group = tenant.register(), make(tenant, roles=[role(tenant, "lamps:smash")])
    tenant.api.post(users(group), ids(person))
    api = tenant.as_user(person)
    assert "lamps:smash" in held(api)
    tenant.api.delete(f"{GROUPS}/{group['id']}")
    assert "lamps:smash" not in held(api)


def test_members_are_taken_all_or_none_and_the_unknown_are_named(tenant: TestTenant, other_tenant: TestTenant) -> None:
    group, person, stranger = make(tenant), tenant.register(), other_tenant.register()
    for call in (tenant.api.post, tenant.api.delete):
        refused = call(users(group), ids(person, stranger))
        assert refused.status_code == 404
        assert refused.json()["details"] == {"user_ids": [f"No user has the id {stranger.id}."]}
    assert tenant.api.get(users(group)).json()["total"] == 0
    assert tenant.api.post(users(group), ids(person)).status_code == 200
    (member,) = tenant.api.get(users(group)).json()["users"]
    assert (member["id"], member["email"], member["active"]) == (str(person.id), person.email, True)


def test_an_unknown_role_is_named_and_nothing_is_made(tenant: TestTenant) -> None:
    name = f"group-{secrets.token_hex(4)}"
    refused = tenant.api.post(GROUPS, {"name": name, "roles": ["no such role"]})
    assert (refused.status_code, "no such role" in refused.json()["details"]["roles"][0]) == (400, True)
    assert tenant.api.get(GROUPS, {"name": name}).json()["total"] == 0


def manager_of(tenant: TestTenant) -> Api:
    """An admin of the tenant who manages users only."""
    name = f"manager-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "M", "last_name": "G"}
    tenant.api.post("/uflow/admin/users", {**body, "roles": ["user-manager"]})
    return Api(token=sign_in_admin(name)["access_token"])


def test_group_grant_beyond_own_permissions_is_rejected(tenant: TestTenant) -> None:
    weak, person = manager_of(tenant), tenant.register()
    strong = role(tenant, "services:credentials")
    group, empty = make(tenant, roles=[strong]), make(tenant)
    assert weak.post(GROUPS, {"name": f"g{secrets.token_hex(4)}", "roles": [strong]}).status_code == 403
    assert weak.put(f"{GROUPS}/{empty['id']}", {"roles": [strong]}).status_code == 403
    assert weak.post(users(group), ids(person)).status_code == 403
    # A directory maps its groups by name: renamed into the place of a weak group it would be given to that one's people.
    assert weak.put(f"{GROUPS}/{group['id']}", {"name": f"g{secrets.token_hex(4)}"}).status_code == 403
    assert weak.put(f"{GROUPS}/{group['id']}", {"description": "as it was"}).status_code == 200
    assert weak.put(f"{GROUPS}/{empty['id']}", {"name": f"g{secrets.token_hex(4)}"}).status_code == 200
    assert weak.put(f"{GROUPS}/{group['id']}", {"description": "still strong", "roles": [strong]}).status_code == 200


def test_weaker_admin_takes_no_group_with_more_permissions_away(tenant: TestTenant) -> None:
    weak, person = manager_of(tenant), tenant.register()
    group = make(tenant, roles=[role(tenant, "services:credentials")])
    assert tenant.api.post(users(group), ids(person)).status_code == 200
    assert weak.delete(users(group), ids(person)).status_code == 403
    assert weak.put(f"{GROUPS}/{group['id']}", {"roles": []}).status_code == 403
    assert weak.delete(f"{GROUPS}/{group['id']}").status_code == 403
    assert tenant.api.get(users(group)).json()["total"] == 1
    assert tenant.api.delete(f"{GROUPS}/{group['id']}").status_code == 200


def test_one_name_in_any_case_is_one_group_also_in_a_race(tenant: TestTenant) -> None:
    name = f"Race {secrets.token_hex(4)}"

    def attempt(number: int) -> int:
        try:
            return int(
                Api(token=tenant.api.token).post(GROUPS, {"name": name.lower() if number % 2 else name}).status_code
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(attempt, range(10))) == [201] + [409] * 9


def test_parallel_joins_of_one_user_make_one_member(tenant: TestTenant) -> None:
    group, person = make(tenant), tenant.register()

    def join(_: int) -> int:
        try:
            return int(Api(token=tenant.api.token).post(users(group), ids(person)).json()["changed"])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(join, range(8))) == 1
    assert tenant.api.get(users(group)).json()["total"] == 1


def test_another_tenants_group_is_the_404_of_an_unknown_one(tenant: TestTenant, other_tenant: TestTenant) -> None:
    group, person = make(tenant), other_tenant.register()
    for method, suffix, body in (
        ("get", "", None),
        ("put", "", {"name": "x"}),
        ("delete", "", None),
        ("get", "/users", None),
        ("post", "/users", ids(person)),
        ("delete", "/users", ids(person)),
    ):
        foreign = other_tenant.api.call(method, f"{GROUPS}/{group['id']}{suffix}", body)
        unknown = other_tenant.api.call(method, f"{GROUPS}/{NOBODY}{suffix}", body)
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.json() == unknown.json()
    assert tenant.api.get(f"{GROUPS}/{group['id']}").json() == group


def test_another_tenants_role_is_unknown_to_a_group(tenant: TestTenant, other_tenant: TestTenant) -> None:
    assert tenant.api.post(GROUPS, {"name": "x", "roles": [role(other_tenant)]}).status_code == 400


def test_only_who_may_reads_and_writes_groups(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    group, end_user = make(tenant), tenant.as_user(tenant.register())
    assert Api().get(GROUPS).status_code == 401
    assert end_user.get(GROUPS).status_code == end_user.post(GROUPS, {"name": "x"}).status_code == 403
    assert tenant.api.get(GROUPS, {"tenant_id": str(other_tenant.id)}).status_code == 403
    assert operator.get(f"{GROUPS}/{group['id']}", {"tenant_id": str(tenant.id)}).json() == group
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
def test_a_bad_group_names_the_member(tenant: TestTenant, body: dict[str, Any], member: str) -> None:
    response = tenant.api.post(GROUPS, body)
    assert response.status_code == 400
    assert next(iter(response.json()["details"])).startswith(member.partition("[")[0])


def test_the_number_of_statements_does_not_grow(tenant: TestTenant) -> None:
    group, people = make(tenant, roles=[role(tenant), role(tenant)]), [tenant.register() for _ in range(4)]
    with capture_statements() as one:
        tenant.api.post(users(group), ids(people[0]))
    with capture_statements() as more:
        tenant.api.post(users(group), ids(*people[1:]))
    # The last one is the event's, which no endpoint of this tenant listens to.
    assert [len(one.default), len(one.tenant)] == [len(more.default), len(more.tenant)] == [1, 7]
    with capture_statements() as listed:
        tenant.api.get(GROUPS)
    with capture_statements() as members:
        tenant.api.get(users(group))
    # The caller's state; the page, its roles, the total; of members also whether the group is there.
    assert [len(listed.default), len(listed.tenant), len(members.default), len(members.tenant)] == [1, 3, 1, 3]


def test_every_change_is_in_the_audit_trail(tenant: TestTenant) -> None:
    group, person = make(tenant), tenant.register()
    tenant.api.post(users(group), ids(person))
    tenant.api.delete(users(group), ids(person))
    tenant.api.delete(f"{GROUPS}/{group['id']}")
    told = tenant.api.get("/uflow/admin/audit", {"target": group["id"]}).json()["events"]
    assert [event["action"] for event in told] == ["group.deleted", "group.created"]
    about = tenant.api.get("/uflow/admin/audit", {"target": str(person.id), "limit": "2"}).json()["events"]
    assert [event["action"] for event in about] == ["group.left", "group.joined"]
