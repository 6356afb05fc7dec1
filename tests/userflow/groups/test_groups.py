"""Groups of end users: their roles apply as soon as users join and end when they leave."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tests.world import PASSWORD, Api, TestTenant, User, capture_statements, sign_in_admin

GROUPS = "/authmgr/groups"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


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


def test_group_create_read_update_delete(tenant: TestTenant) -> None:
    first, second = role(tenant), role(tenant)
    group = make(tenant, description="On call", roles=[first.upper()])
    assert (group["roles"], tenant.api.get(f"{GROUPS}/{group['id']}").json()) == ([first], group)
    changed = tenant.api.put(f"{GROUPS}/{group['id']}", {"roles": [second]}).json()
    assert (changed["roles"], changed["name"], changed["description"]) == ([second], group["name"], "On call")
    assert tenant.api.put(f"{GROUPS}/{group['id']}", {"name": "n" * 256}).status_code == 400
    assert tenant.api.delete(f"{GROUPS}/{group['id']}").json()["id"] == group["id"]
    assert tenant.api.get(f"{GROUPS}/{group['id']}").status_code == 404


def test_list_groups_pages_and_filters_by_name(tenant: TestTenant) -> None:
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


def test_deleted_group_revokes_its_roles(tenant: TestTenant) -> None:
    person, group = tenant.register(), make(tenant, roles=[role(tenant, "lamps:smash")])
    tenant.api.post(users(group), ids(person))
    api = tenant.as_user(person)
    assert "lamps:smash" in held(api)
    tenant.api.delete(f"{GROUPS}/{group['id']}")
    assert "lamps:smash" not in held(api)


def test_join_adds_all_or_none_and_names_unknown_users(tenant: TestTenant, other_tenant: TestTenant) -> None:
    group, person, foreign = make(tenant), tenant.register(), other_tenant.register()
    for call in (tenant.api.post, tenant.api.delete):
        rejected = call(users(group), ids(person, foreign))
        assert rejected.status_code == 404
        assert rejected.json()["details"] == {"user_ids": [f"No user has the id {foreign.id}."]}
    assert tenant.api.get(users(group)).json()["total"] == 0
    assert tenant.api.post(users(group), ids(person)).status_code == 200
    (member,) = tenant.api.get(users(group)).json()["users"]
    assert (member["id"], member["email"], member["active"]) == (str(person.id), person.email, True)


def test_create_names_unknown_role(tenant: TestTenant) -> None:
    name = f"group-{secrets.token_hex(4)}"
    rejected = tenant.api.post(GROUPS, {"name": name, "roles": ["no such role"]})
    assert (rejected.status_code, "no such role" in rejected.json()["details"]["roles"][0]) == (400, True)
    assert tenant.api.get(GROUPS, {"name": name}).json()["total"] == 0


def manager_of(tenant: TestTenant) -> Api:
    """Return an admin of the tenant who manages users only."""
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
    # Directories map groups by name: a strong group renamed to the name of a weak one would be given to its members.
    assert weak.put(f"{GROUPS}/{group['id']}", {"name": f"g{secrets.token_hex(4)}"}).status_code == 403
    assert weak.put(f"{GROUPS}/{group['id']}", {"description": "as it was"}).status_code == 200
    assert weak.put(f"{GROUPS}/{empty['id']}", {"name": f"g{secrets.token_hex(4)}"}).status_code == 200
    assert weak.put(f"{GROUPS}/{group['id']}", {"description": "still strong", "roles": [strong]}).status_code == 200


def test_leave_rejects_group_with_more_permissions(tenant: TestTenant) -> None:
    weak, person = manager_of(tenant), tenant.register()
    group = make(tenant, roles=[role(tenant, "services:credentials")])
    assert tenant.api.post(users(group), ids(person)).status_code == 200
    assert weak.delete(users(group), ids(person)).status_code == 403
    assert weak.put(f"{GROUPS}/{group['id']}", {"roles": []}).status_code == 403
    assert weak.delete(f"{GROUPS}/{group['id']}").status_code == 403
    assert tenant.api.get(users(group)).json()["total"] == 1
    assert tenant.api.delete(f"{GROUPS}/{group['id']}").status_code == 200


def test_group_name_is_unique_in_any_case(tenant: TestTenant) -> None:
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


def test_concurrent_joins_add_one_member(tenant: TestTenant) -> None:
    group, person = make(tenant), tenant.register()

    def join(_: int) -> int:
        try:
            return int(Api(token=tenant.api.token).post(users(group), ids(person)).json()["changed"])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(join, range(8))) == 1
    assert tenant.api.get(users(group)).json()["total"] == 1


def test_group_of_another_tenant_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
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
        unknown = other_tenant.api.call(method, f"{GROUPS}/{UNKNOWN_ID}{suffix}", body)
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.json() == unknown.json()
    assert tenant.api.get(f"{GROUPS}/{group['id']}").json() == group


def test_group_rejects_role_of_another_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    assert tenant.api.post(GROUPS, {"name": "x", "roles": [role(other_tenant)]}).status_code == 400


def test_groups_require_permission(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
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
def test_invalid_group_names_field(tenant: TestTenant, body: dict[str, Any], member: str) -> None:
    response = tenant.api.post(GROUPS, body)
    assert response.status_code == 400
    assert next(iter(response.json()["details"])).startswith(member.partition("[")[0])


def test_statement_count_is_constant(tenant: TestTenant) -> None:
    group, people = make(tenant, roles=[role(tenant), role(tenant)]), [tenant.register() for _ in range(4)]
    with capture_statements() as one:
        tenant.api.post(users(group), ids(people[0]))
    with capture_statements() as more:
        tenant.api.post(users(group), ids(*people[1:]))
    # The last statement looks for webhook endpoints; this tenant has none for the event.
    assert [len(one.default), len(one.tenant)] == [len(more.default), len(more.tenant)] == [1, 7]
    with capture_statements() as listed:
        tenant.api.get(GROUPS)
    with capture_statements() as members:
        tenant.api.get(users(group))
    # The caller's state; the page, its roles, the total; for members the group and the page, which is not full.
    assert [len(listed.default), len(listed.tenant), len(members.default), len(members.tenant)] == [1, 3, 1, 2]


def test_every_change_is_audited(tenant: TestTenant) -> None:
    group, person = make(tenant), tenant.register()
    tenant.api.post(users(group), ids(person))
    tenant.api.delete(users(group), ids(person))
    tenant.api.delete(f"{GROUPS}/{group['id']}")
    told = tenant.api.get("/uflow/admin/audit", {"target": group["id"]}).json()["events"]
    assert [event["action"] for event in told] == ["group.deleted", "group.created"]
    about = tenant.api.get("/uflow/admin/audit", {"target": str(person.id), "limit": "2"}).json()["events"]
    assert [event["action"] for event in about] == ["group.left", "group.joined"]
