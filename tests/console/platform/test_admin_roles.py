"""Custom roles of admin users: operators create, change and delete them; one permission opens what it names and no more."""

import secrets
from typing import Any

import pytest

from identity_platform.audit.models import PlatformEvent
from tests.console.people.browsing import PEOPLE, open_tenant_pages
from tests.console.platform.test_admins import as_operator
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.world import PASSWORD, TestTenant
from userflow.accounts.models import AdminRole
from userflow.admins.actions import create_admin_user

ROLES = "/admin/userflow/adminrole/"
ADD = f"{ROLES}add/"
SUPPORT = ["endusers:read", "endusers:history", "endusers:factors"]


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


def created(staff: Staff, *permissions: str) -> AdminRole:
    name = f"desk-{secrets.token_hex(4)}"
    response = staff.post(ADD, {"name": name, "permissions": list(permissions or SUPPORT)})
    assert response.status_code == 302, response.content.decode()
    return AdminRole.objects.get(name=name)


def holder(role: AdminRole, tenant: TestTenant | None) -> Staff:
    name = f"staff-{secrets.token_hex(5)}"
    email = f"{name}@example.com"
    tenant_id = tenant.id if tenant else None
    user, _ = create_admin_user(tenant_id=tenant_id, username=name, email=email, password=PASSWORD, roles=[role.name])
    return Staff(name, email, user.pk, tenant_id).sign_in()


def errors(response: Any) -> dict[str, Any]:
    assert response.status_code == 400
    return dict(response.context["form"].errors)


def test_role_is_created_changed_and_deleted(operator: Staff) -> None:
    role = created(operator)
    assert role.permissions == sorted(SUPPORT)
    page = f"{ROLES}{role.pk}/"
    assert operator.post(f"{page}edit/", {"permissions": ["endusers:read", "groups:read"]}).status_code == 302
    role.refresh_from_db()
    assert role.permissions == ["endusers:read", "groups:read"]
    assert "typed" in errors(operator.post(f"{page}remove/", {"typed": "another"}))
    assert operator.post(f"{page}remove/", {"typed": role.name}).status_code == 302
    assert not AdminRole.objects.filter(pk=role.pk).exists()
    events = PlatformEvent.objects.filter(target_kind="admin_role", target_id=str(role.pk)).order_by("id")
    assert [event.action for event in events] == ["admin_role.created", "admin_role.updated", "admin_role.deleted"]
    assert events[1].details == {"added": ["groups:read"], "removed": ["endusers:factors", "endusers:history"]}


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"name": "auditor", "permissions": ["audit:read"]}, "__all__"),
        ({"name": "With Spaces", "permissions": ["audit:read"]}, "name"),
        ({"name": "nothing"}, "permissions"),
        ({"name": "unknown", "permissions": ["no:such"]}, "permissions"),
    ],
)
def test_wrong_role_is_rejected(operator: Staff, form: dict[str, Any], field: str) -> None:
    assert list(errors(operator.post(ADD, form))) == [field]


def test_no_operator_grants_or_changes_more_than_held(operator: Staff) -> None:
    lesser = new_operator("admins:read", "admins:write", "endusers:read").sign_in()
    assert "permissions" in errors(lesser.post(ADD, {"name": "more", "permissions": ["endusers:delete"]}))
    greater = created(operator)
    for path, form in (("edit/", {"permissions": ["endusers:read"]}), ("remove/", {"typed": greater.name})):
        response = lesser.post(f"{ROLES}{greater.pk}/{path}", form)
        assert "permissions that you do not hold" in str(errors(response))
    greater.refresh_from_db()
    assert greater.permissions == sorted(SUPPORT)


def test_built_in_and_held_roles_stay(operator: Staff, tenant: TestTenant) -> None:
    built_in = AdminRole.objects.get(name="operator")
    assert operator.post(f"{ROLES}{built_in.pk}/remove/", {"typed": "operator"}).status_code == 403
    assert operator.post(f"{ROLES}{built_in.pk}/edit/", {"permissions": ["endusers:read"]}).status_code == 403
    held, invited = created(operator), created(operator)
    holder(held, tenant)
    invitation = {"typed": as_operator(), "email": f"{invited.name}@example.com", "roles": [invited.name]}
    assert operator.post("/admin/userflow/admininvitation/add/", invitation).status_code == 302
    granted = {"permissions": [*SUPPORT, "tenants:read"]}
    assert "Admins of tenants" in str(errors(operator.post(f"{ROLES}{held.pk}/edit/", granted)))
    for role in (held, invited):
        assert "have this role" in str(errors(operator.post(f"{ROLES}{role.pk}/remove/", {"typed": role.name})))


def test_roles_are_managed_by_operators_only(operator: Staff, tenant: TestTenant) -> None:
    role, head = created(operator), new_tenant_admin(tenant).sign_in()
    page = head.get(f"{ROLES}{role.pk}/change/")
    assert (page.status_code, "edit/" in page.text, ADD in head.get(ROLES).text) == (200, False, False)
    assert f"{ROLES}{role.pk}/edit/" in operator.get(f"{ROLES}{role.pk}/change/").text
    for path in (ADD, f"{ROLES}{role.pk}/edit/", f"{ROLES}{role.pk}/remove/"):
        assert [head.get(path).status_code, head.post(path, {}).status_code] == [403, 403]


def test_support_resets_factors_and_sees_history_of_one_person(operator: Staff, tenant: TestTenant) -> None:
    person = tenant.register()
    support = open_tenant_pages(tenant, holder(created(operator, *SUPPORT, "tenants:read"), None))
    page = support.get(f"{PEOPLE}{person.id}/")
    assert [entry.event["action"] for entry in page.context["record"]["events"]] == ["end_user.registered"]
    assert "Open audit log" not in page.text
    statuses = {
        path: support.get(path).status_code
        for path in (
            f"{PEOPLE}{person.id}/factors/reset/",
            f"{PEOPLE}{person.id}/enrollment-pass/",
            f"{PEOPLE}{person.id}/erase/",
            f"{PEOPLE}{person.id}/edit/",
            "/admin/inside/trail/",
            "/admin/platform/audit/",
        )
    }
    assert list(statuses.values()) == [200, 200, 403, 403, 403, 403]
    without = open_tenant_pages(tenant, new_operator("tenants:read", "endusers:read").sign_in())
    assert without.get(f"{PEOPLE}{person.id}/").context["record"]["events"] is None


def test_changed_role_applies_to_the_next_request(operator: Staff, tenant: TestTenant) -> None:
    role = created(operator, "services:read", "clients:read")
    head = holder(role, tenant)
    assert head.get("/admin/userflow/client/").status_code == 200
    operator.post(f"{ROLES}{role.pk}/edit/", {"permissions": ["services:read"]})
    statuses = [head.get(f"/admin/{path}/").status_code for path in ("userflow/client", "registry/service")]
    assert statuses == [403, 200]


def test_page_of_a_role_shows_holders_of_the_own_tenant_only(
    operator: Staff, tenant: TestTenant, other_tenant: TestTenant
) -> None:
    role = created(operator)
    own, foreign, of_platform = (holder(role, where) for where in (tenant, other_tenant, None))
    page = f"{ROLES}{role.pk}/change/"
    shown = new_tenant_admin(tenant).sign_in().get(page).text
    assert [user.username in shown for user in (own, foreign, of_platform)] == [True, False, False]
    assert [user.email in shown for user in (own, foreign, of_platform)] == [True, False, False]
    everyone = operator.get(page).text
    assert all(user.username in everyone for user in (own, foreign, of_platform))
