"""Roles of end users and their bindings, which apply immediately."""

import base64
import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin

ROLES = "/authmgr/roles"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


def make(tenant: TestTenant, **members: Any) -> dict[str, Any]:
    response = tenant.api.post(ROLES, {"name": f"role-{secrets.token_hex(4)}", **members})
    assert response.status_code == 201, response.content
    return dict(response.json())


def bindings(role: dict[str, Any]) -> str:
    return f"{ROLES}/{role['id']}/bindings"


def claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))


def manager(tenant: TestTenant) -> Api:
    """Return an admin who can write roles but not read or write services."""
    name = f"manager-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "M", "last_name": "R"}
    assert tenant.api.post("/uflow/admin/users", {**body, "roles": ["user-manager"]}).status_code == 201
    return Api(token=sign_in_admin(name)["access_token"])


def test_role_create_read_update_delete(tenant: TestTenant) -> None:
    role = make(tenant, description="Pays", permissions=["invoices:pay", "invoices:read", "invoices:pay"])
    assert role["permissions"] == ["invoices:pay", "invoices:read"]
    assert tenant.api.get(f"{ROLES}/{role['id']}").json() == role
    changed = tenant.api.put(f"{ROLES}/{role['id']}", {"permissions": []}).json()
    assert (changed["permissions"], changed["description"], changed["name"]) == ([], "Pays", role["name"])
    assert tenant.api.delete(f"{ROLES}/{role['id']}").json()["id"] == role["id"]
    assert tenant.api.get(f"{ROLES}/{role['id']}").status_code == 404


def test_list_roles_pages_and_filters_by_name(tenant: TestTenant) -> None:
    mark = secrets.token_hex(4)
    names = [make(tenant, name=f"Page {mark} {number}%")["name"] for number in range(3)]
    found = tenant.api.get(ROLES, {"name": f"page {mark}".upper(), "limit": "2"}).json()
    assert ([role["name"] for role in found["roles"]], found["total"], found["total_pages"]) == (names[:0:-1], 3, 2)
    assert tenant.api.get(ROLES, {"name": f"{mark} 1%"}).json()["total"] == 1
    assert tenant.api.get(ROLES, {"name": f"{mark} _%"}).json()["total"] == 0
    past = tenant.api.get(ROLES, {"name": mark, "page": "9", "limit": "1000"}).json()
    assert (past["roles"], past["total"], past["limit"]) == ([], 3, 100)


def test_role_binding_applies_at_next_request(tenant: TestTenant) -> None:
    person, role = tenant.register(), make(tenant, permissions=["services:read", "lamps:switch"])
    api = tenant.as_user(person)
    services = "/exsvc/debug/auth"
    assert "services:read" not in api.get(services).json()["permissions"]
    assert tenant.api.post(bindings(role), {"user_ids": [str(person.id)]}).json()["changed"] == 1
    assert {"services:read", "lamps:switch"} <= set(api.get(services).json()["permissions"])
    assert {"services:read", "lamps:switch"} <= set(claims(tenant.sign_in(person)["access_token"])["permissions"])
    assert tenant.api.delete(bindings(role), {"user_ids": [str(person.id)]}).json()["changed"] == 1
    assert "lamps:switch" not in api.get(services).json()["permissions"]


def test_removed_permissions_end_at_next_request(tenant: TestTenant) -> None:
    person, role = tenant.register(), make(tenant, permissions=["doors:open", "doors:lock"])
    tenant.api.post(bindings(role), {"user_ids": [str(person.id)]})
    api = tenant.as_user(person)
    tenant.api.put(f"{ROLES}/{role['id']}", {"permissions": ["doors:lock"]})
    held = api.get("/exsvc/debug/auth").json()["permissions"]
    assert ("doors:open" in held, "doors:lock" in held) == (False, True)
    tenant.api.delete(f"{ROLES}/{role['id']}")
    assert "doors:lock" not in api.get("/exsvc/debug/auth").json()["permissions"]


def test_bind_adds_all_or_none_and_names_unknown_users(tenant: TestTenant, other_tenant: TestTenant) -> None:
    role, person, foreign = make(tenant), tenant.register(), other_tenant.register()
    wanted = {"user_ids": [str(person.id), UNKNOWN_ID, str(foreign.id)]}
    for call in (tenant.api.post, tenant.api.delete):
        rejected = call(bindings(role), wanted)
        assert rejected.status_code == 404
        told = " ".join(rejected.json()["details"]["user_ids"])
        assert (UNKNOWN_ID in told, str(foreign.id) in told, str(person.id) in told) == (True, True, False)
    assert tenant.api.get(bindings(role)).json()["total"] == 0


def test_bind_is_idempotent_and_listed(tenant: TestTenant) -> None:
    role, people = make(tenant), [tenant.register() for _ in range(3)]
    everybody = {"user_ids": [str(person.id) for person in people]}
    assert tenant.api.post(bindings(role), {"user_ids": [str(people[0].id)]}).json()["changed"] == 1
    assert tenant.api.post(bindings(role), everybody).json()["changed"] == 2
    assert tenant.api.post(bindings(role), everybody).json()["changed"] == 0
    found = tenant.api.get(bindings(role), {"limit": "2"}).json()
    assert (found["total"], found["total_pages"], len(found["users"])) == (3, 2, 2)
    assert {user["email"] for user in found["users"]} <= {person.email for person in people}
    assert tenant.api.delete(bindings(role), {"user_ids": [str(people[0].id)]}).json()["changed"] == 1
    assert tenant.api.delete(bindings(role), {"user_ids": [str(people[0].id)]}).json()["changed"] == 0


def test_built_in_role_cannot_be_deleted_or_renamed(tenant: TestTenant) -> None:
    (user,) = [
        role for role in tenant.api.get(ROLES, {"name": "user", "limit": "100"}).json()["roles"] if role["built_in"]
    ]
    assert tenant.api.delete(f"{ROLES}/{user['id']}").status_code == 403
    assert tenant.api.put(f"{ROLES}/{user['id']}", {"name": "human"}).status_code == 403
    assert (
        tenant.api.put(f"{ROLES}/{user['id']}", {"name": "user", "description": "All."}).json()["description"] == "All."
    )


def test_grant_beyond_own_permissions_is_rejected(tenant: TestTenant) -> None:
    weak, person = manager(tenant), tenant.register()
    strong = make(tenant, permissions=["services:delete", "own:thing"])
    assert weak.post(ROLES, {"name": f"r{secrets.token_hex(4)}", "permissions": ["services:delete"]}).status_code == 403
    plain = weak.post(ROLES, {"name": f"r{secrets.token_hex(4)}", "permissions": ["own:thing", "endusers:read"]}).json()
    assert weak.put(f"{ROLES}/{plain['id']}", {"permissions": ["services:read"]}).status_code == 403
    assert weak.post(bindings(strong), {"user_ids": [str(person.id)]}).status_code == 403
    assert weak.post(bindings(plain), {"user_ids": [str(person.id)]}).status_code == 200
    # Permissions that the role already has are allowed in an update.
    assert weak.put(f"{ROLES}/{strong['id']}", {"description": "x", "name": strong["name"]}).status_code == 200
    # Imports, invitations and groups grant roles by name: a strong role renamed to a plain one would be granted instead.
    assert weak.put(f"{ROLES}/{strong['id']}", {"name": f"r{secrets.token_hex(4)}"}).status_code == 403
    assert weak.put(f"{ROLES}/{plain['id']}", {"name": f"r{secrets.token_hex(4)}"}).status_code == 200
    assert tenant.api.post(ROLES, {"name": "tenants", "permissions": ["tenants:write"]}).status_code == 403


@pytest.mark.parametrize(
    "permission", ["", "services", "a:b:c", ":read", "a:", "a b:c", "a:b\n", "ä:b", 5, None, "a" * 64 + ":b", ["a:b"]]
)
def test_malformed_permission_is_400(tenant: TestTenant, permission: Any) -> None:
    response = tenant.api.post(ROLES, {"name": f"r{secrets.token_hex(4)}", "permissions": [permission]})
    assert response.status_code == 400
    assert next(iter(response.json()["details"])).startswith("permissions")


def test_role_name_is_unique_in_any_case(tenant: TestTenant) -> None:
    name = f"Race {secrets.token_hex(4)}"

    def attempt(number: int) -> int:
        try:
            return int(
                Api(token=tenant.api.token).post(ROLES, {"name": name.upper() if number % 2 else name}).status_code
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        responses = sorted(pool.map(attempt, range(10)))
    assert responses == [201] + [409] * 9
    other = make(tenant)
    for taken in (name.lower(), f" {name} "):
        assert tenant.api.put(f"{ROLES}/{other['id']}", {"name": taken}).status_code == 409, taken
    assert tenant.api.put(f"{ROLES}/{other['id']}", {"name": "  "}).status_code == 400


def test_role_of_another_tenant_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    role, person = make(tenant), other_tenant.register()
    for method, suffix, body in (
        ("get", "", None),
        ("put", "", {"name": "x"}),
        ("delete", "", None),
        ("get", "/bindings", None),
        ("post", "/bindings", {"user_ids": [str(person.id)]}),
        ("delete", "/bindings", {"user_ids": [str(person.id)]}),
    ):
        foreign = other_tenant.api.call(method, f"{ROLES}/{role['id']}{suffix}", body)
        unknown = other_tenant.api.call(method, f"{ROLES}/{UNKNOWN_ID}{suffix}", body)
        malformed = other_tenant.api.call(method, f"{ROLES}/not-an-id{suffix}", body)
        assert foreign.status_code == unknown.status_code == malformed.status_code == 404
        assert foreign.json() == unknown.json() == malformed.json()
    assert tenant.api.get(f"{ROLES}/{role['id']}").json() == role


def test_roles_require_permission(tenant: TestTenant, other_tenant: TestTenant) -> None:
    role, end_user = make(tenant), tenant.as_user(tenant.register())
    everything = make(tenant, permissions=["roles:read", "roles:write"])
    assert Api().get(ROLES).status_code == Api().post(ROLES, {"name": "x"}).status_code == 401
    assert end_user.get(ROLES).status_code == end_user.delete(f"{ROLES}/{role['id']}").status_code == 403
    # End users act on themselves only, regardless of the name of their role.
    person = tenant.register()
    tenant.api.post(bindings(everything), {"user_ids": [str(person.id)]})
    assert tenant.as_user(person).get(ROLES).status_code == 403
    assert tenant.api.get(ROLES, {"tenant_id": str(other_tenant.id)}).status_code == 403
    assert tenant.api.post(ROLES, {"name": "x", "tenant_id": str(other_tenant.id)}).status_code == 403


def test_operator_must_name_the_tenant(tenant: TestTenant, operator: Api) -> None:
    role = make(tenant)
    assert operator.get(f"{ROLES}/{role['id']}").status_code == 400
    assert operator.get(f"{ROLES}/{role['id']}", {"tenant_id": str(tenant.id)}).json() == role
    assert operator.get(f"{ROLES}/{role['id']}", headers={"X-Tenant-ID": str(tenant.id)}).json() == role
    assert operator.get(ROLES, {"tenant_id": UNKNOWN_ID}).status_code == 404
    made = operator.post(ROLES, {"name": f"op {secrets.token_hex(4)}", "tenant_id": str(tenant.id)})
    assert made.status_code == 201


def test_create_ignores_unknown_fields(tenant: TestTenant) -> None:
    role = make(tenant, built_in=True, id=UNKNOWN_ID)
    assert (role["built_in"], role["id"] == UNKNOWN_ID) == (False, False)


@pytest.mark.parametrize("body", [{}, {"user_ids": []}, {"user_ids": "x"}, {"user_ids": ["x"]}, {"user_ids": [None]}])
def test_bind_requires_a_list_of_ids(tenant: TestTenant, body: dict[str, Any]) -> None:
    role = make(tenant)
    for call in (tenant.api.post, tenant.api.delete):
        response = call(bindings(role), body)
        assert response.status_code == 400
        assert next(iter(response.json()["details"])).startswith("user_ids")


def test_statement_count_is_constant(tenant: TestTenant) -> None:
    role, people = make(tenant), [str(tenant.register().id) for _ in range(5)]
    with capture_statements() as one:
        tenant.api.post(bindings(role), {"user_ids": people[:1]})
    with capture_statements() as four:
        tenant.api.post(bindings(role), {"user_ids": people[1:]})
    # The last statement looks for webhook endpoints; this tenant has none for the event.
    assert [len(one.default), len(one.tenant)] == [len(four.default), len(four.tenant)] == [1, 6]
    with capture_statements() as listed:
        tenant.api.get(ROLES)
    with capture_statements() as bound:
        tenant.api.get(bindings(role))
    # The caller's state; the page and the total; for bindings the role and the page, which is not full.
    assert [len(listed.default), len(listed.tenant), len(bound.default), len(bound.tenant)] == [1, 2, 1, 2]


def test_every_change_is_audited(tenant: TestTenant) -> None:
    role, person = make(tenant), tenant.register()
    tenant.api.post(bindings(role), {"user_ids": [str(person.id)]})
    tenant.api.delete(f"{ROLES}/{role['id']}")
    about_role = tenant.api.get("/uflow/admin/audit", {"target": role["id"]}).json()["events"]
    assert [event["action"] for event in about_role] == ["role.deleted", "role.created"]
    about_person = tenant.api.get("/uflow/admin/audit", {"target": str(person.id), "action": "role.bound"}).json()
    (bound,) = about_person["events"]
    assert (bound["details"], bound["actor_id"]) == ({"role_id": role["id"]}, str(tenant.admin.id))


def test_api_document_has_the_body_of_unbind(api: Api) -> None:
    document = api.get("/schema/", {"format": "json"}).json()
    for path in ("/authmgr/roles/{role_id}/bindings", "/authmgr/groups/{group_id}/users"):
        shape = document["paths"][path]["delete"]["requestBody"]["content"]["application/json"]["schema"]
        assert "user_ids" in document["components"]["schemas"][shape["$ref"].rpartition("/")[2]]["properties"]
