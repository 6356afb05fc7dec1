"""The pages of groups and roles, and their changes."""

import secrets
from typing import Any
from uuid import uuid4

import pytest

from tests.console.people.browsing import GROUPS, ROLES, open_tenant_pages, operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_tenant_admin
from tests.world import TestTenant

INSIDE = "/admin/inside/"
KINDS = ["groups", "roles"]
# Paths below the page that need the kind's `write`.
CHANGES = ["edit/", "delete/", "members/"]


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


def made(tenant: TestTenant, kind: str, **members: Any) -> dict[str, Any]:
    """Create a group or a role over the API."""
    response = tenant.api.post(f"/authmgr/{kind}", {"name": f"{kind}-{secrets.token_hex(4)}", **members})
    assert response.status_code == 201, response.content
    return dict(response.json())


def join(tenant: TestTenant, kind: str, key: str, *people: Any) -> None:
    end = "users" if kind == "groups" else "bindings"
    body = {"user_ids": [str(person.id) for person in people]}
    assert tenant.api.post(f"/authmgr/{kind}/{key}/{end}", body).status_code == 200


def test_a_group_shows_its_roles_and_members(tenant: TestTenant, staff: Staff) -> None:
    person, outsider = tenant.register(), tenant.register()
    role = made(tenant, "roles")
    group = made(tenant, "groups", roles=[role["name"]], description="Those who count")
    join(tenant, "groups", group["id"], person)
    page = text_of(staff.get(f"{INSIDE}groups/{group['id']}/"))
    for shown in (group["name"], "Those who count", role["name"], person.email):
        assert shown in page
    assert outsider.email not in page
    (event,) = [event for event in tenant_events(tenant, "group.viewed") if event.target_id == group["id"]]
    assert event.actor_id == str(staff.id)


def test_role_page_shows_permissions_groups_and_users(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    role = made(tenant, "roles", permissions=["ledger:close", "endusers:read"])
    group = made(tenant, "groups", roles=[role["name"]])
    join(tenant, "roles", role["id"], person)
    page = text_of(staff.get(f"{INSIDE}roles/{role['id']}/"))
    for shown in (role["name"], "ledger:close", "endusers:read", group["name"], person.email):
        assert shown in page
    assert [event for event in tenant_events(tenant, "role.viewed") if event.target_id == role["id"]]


@pytest.mark.parametrize("kind", KINDS)
def test_member_search_requires_endusers_read(tenant: TestTenant, kind: str) -> None:
    staff = operator_in(tenant)
    person, other = tenant.register(), tenant.register()
    key = made(tenant, kind)["id"]
    join(tenant, kind, key, person, other)
    page = text_of(staff.get(f"{INSIDE}{kind}/{key}/", q=person.email[:17]))
    assert f"/inside/people/{person.id}/" in page
    assert f"/inside/people/{other.id}/" not in page
    assert person.email not in text_of(operator_in(tenant, f"{kind}:read").get(f"{INSIDE}{kind}/{key}/"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["", *CHANGES])
def test_other_tenants_records_are_404(tenant: TestTenant, other_tenant: TestTenant, kind: str, path: str) -> None:
    theirs = made(other_tenant, kind)
    for staff in (operator_in(tenant), new_tenant_admin(tenant).sign_in()):
        for key in (theirs["id"], str(uuid4()), "nonsense"):
            assert staff.get(f"{INSIDE}{kind}/{key}/{path}").status_code == 404
            assert send(staff, tenant, f"{INSIDE}{kind}/{key}/{path}", typed=theirs["name"]).status_code == 404
    assert other_tenant.api.get(f"/authmgr/{kind}/{theirs['id']}").status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_changes_by_url_require_permission(tenant: TestTenant, kind: str) -> None:
    key, person = made(tenant, kind)["id"], tenant.register()
    out = f"people/{person.id}/{'groups' if kind == 'groups' else 'roles'}/{key}/{'leave' if kind == 'groups' else 'take'}/"
    reader = operator_in(tenant, "endusers:read", f"{kind}:read")
    for path in (f"{kind}/new/", out, *(f"{kind}/{key}/{path}" for path in CHANGES)):
        assert reader.get(f"{INSIDE}{path}").status_code == 403
        assert send(reader, tenant, f"{INSIDE}{path}").status_code == 403
    page = text_of(reader.get(f"{INSIDE}{kind}/{key}/"))
    assert "/edit/" not in page
    assert "/delete/" not in page


def test_role_and_group_are_created_edited_and_deleted(tenant: TestTenant, staff: Staff) -> None:
    name, team = f"clerk-{secrets.token_hex(4)}", f"Team {secrets.token_hex(4)}"
    assert send(staff, tenant, f"{INSIDE}roles/new/", name=name, permissions="a:read\nb:write").status_code == 302
    assert send(staff, tenant, f"{INSIDE}groups/new/", name=team, roles=[name]).status_code == 302
    role = next(row for row in tenant.api.get("/authmgr/roles", {"name": name}).json()["roles"])
    group = next(row for row in tenant.api.get("/authmgr/groups", {"name": team}).json()["groups"])
    assert role["permissions"] == ["a:read", "b:write"]
    assert group["roles"] == [name]
    send(staff, tenant, f"{INSIDE}roles/{role['id']}/edit/", name=name, description="Books", permissions="c:read")
    changed = tenant.api.get(f"/authmgr/roles/{role['id']}").json()
    assert (changed["permissions"], changed["description"]) == (["c:read"], "Books")
    send(staff, tenant, f"{INSIDE}groups/{group['id']}/edit/", name=f"{team}s")
    changed = tenant.api.get(f"/authmgr/groups/{group['id']}").json()
    assert (changed["name"], changed["roles"]) == (f"{team}s", [])
    for kind, row, typed in (("groups", group, f"{team}s"), ("roles", role, name)):
        assert send(staff, tenant, f"{INSIDE}{kind}/{row['id']}/delete/", typed="another").status_code == 400
        response = send(staff, tenant, f"{INSIDE}{kind}/{row['id']}/delete/", typed=typed)
        assert response.headers["Location"] == {"groups": GROUPS, "roles": ROLES}[kind]
        assert tenant.api.get(f"/authmgr/{kind}/{row['id']}").status_code == 404


@pytest.mark.parametrize("kind", KINDS)
def test_action_errors_are_shown_at_the_form(tenant: TestTenant, staff: Staff, kind: str) -> None:
    taken = made(tenant, kind)["name"]
    again = send(staff, tenant, f"{INSIDE}{kind}/new/", name=taken.upper())
    assert again.status_code == 400
    assert "with this name already exists. Choose another name." in text_of(again)
    assert send(staff, tenant, f"{INSIDE}{kind}/new/", name="").status_code == 400
    if kind == "roles":
        odd = send(staff, tenant, f"{INSIDE}roles/new/", name="odd", permissions="nonsense")
        assert "Send resource:action" in text_of(odd)


def test_built_in_roles_are_not_deleted(tenant: TestTenant, staff: Staff) -> None:
    role = next(row for row in tenant.api.get("/authmgr/roles", {"name": "user"}).json()["roles"] if row["built_in"])
    assert "/delete/" not in text_of(staff.get(f"{INSIDE}roles/{role['id']}/"))
    response = send(staff, tenant, f"{INSIDE}roles/{role['id']}/delete/", typed=role["name"])
    assert "Built-in roles cannot be deleted or renamed." in text_of(response)


def test_grant_beyond_own_permissions_is_rejected(tenant: TestTenant) -> None:
    weak = operator_in(tenant, "endusers:read", "groups:read", "groups:write", "roles:read", "roles:write")
    strong = made(tenant, "roles", permissions=["endusers:delete"])
    person, name = tenant.register(), f"n-{secrets.token_hex(4)}"
    group = made(tenant, "groups", roles=[strong["name"]])
    for path, body in (
        ("roles/new/", {"name": name, "permissions": "endusers:delete"}),
        ("groups/new/", {"name": name, "roles": [strong["name"]]}),
        (f"roles/{strong['id']}/members/?q={person.email}", {"chosen": [str(person.id)]}),
        (f"groups/{group['id']}/members/?q={person.email}", {"chosen": [str(person.id)]}),
    ):
        response = send(weak, tenant, f"{INSIDE}{path}", **body)
        assert response.status_code == 400
        assert "you do not hold it yourself" in text_of(response), path


@pytest.mark.parametrize("kind", KINDS)
def test_users_are_found_added_and_removed(tenant: TestTenant, staff: Staff, kind: str) -> None:
    person, key = tenant.register(), made(tenant, kind)["id"]
    search = f"{INSIDE}{kind}/{key}/members/?q={person.email}"
    assert str(person.id) in text_of(staff.get(search))
    assert send(staff, tenant, search).status_code == 400
    assert send(staff, tenant, search, chosen=[str(person.id)]).status_code == 302
    assert f"/inside/people/{person.id}/" in text_of(staff.get(f"{INSIDE}{kind}/{key}/"))
    assert "No other user matches the search." in text_of(staff.get(search))
    out = "groups/{}/leave/" if kind == "groups" else "roles/{}/take/"
    send(staff, tenant, f"{INSIDE}people/{person.id}/{out.format(key)}")
    assert f"/inside/people/{person.id}/" not in text_of(staff.get(f"{INSIDE}{kind}/{key}/"))


@pytest.mark.parametrize("kind", KINDS)
def test_users_of_other_tenant_cannot_be_added(
    tenant: TestTenant, other_tenant: TestTenant, staff: Staff, kind: str
) -> None:
    foreign_user, key = other_tenant.register(), made(tenant, kind)["id"]
    search = f"{INSIDE}{kind}/{key}/members/?q={foreign_user.email}"
    assert str(foreign_user.id) not in text_of(staff.get(search))
    assert send(staff, tenant, search, chosen=[str(foreign_user.id)]).status_code == 400


def test_group_form_of_other_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant, staff: Staff) -> None:
    group = made(tenant, "groups")
    open_tenant_pages(other_tenant, staff)
    assert send(staff, tenant, f"{INSIDE}groups/{group['id']}/delete/", typed=group["name"]).status_code == 409
    assert tenant.api.get(f"/authmgr/groups/{group['id']}").status_code == 200
