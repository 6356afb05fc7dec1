"""Lists inside a tenant: search, permissions, cost and audit events."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tests.console.people.browsing import (
    GROUPS,
    PEOPLE,
    ROLES,
    SESSIONS,
    USERS,
    open_tenant_pages,
    operator_in,
    tenant_events,
    text_of,
)
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.world import TestTenant
from userflow.accounts.models import EndUser

LISTS = {
    USERS: ("endusers:read", "end_user.listed"),
    GROUPS: ("groups:read", "group.listed"),
    ROLES: ("roles:read", "role.listed"),
    SESSIONS: ("sessions:read endusers:read", "session.listed"),
    "/admin/inside/invitations/": ("invitations:read", "invitation.listed"),
    "/admin/inside/trail/": ("audit:read", "audit.viewed"),
}


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


@pytest.mark.parametrize("path", LISTS)
def test_list_requires_its_permission(tenant: TestTenant, path: str) -> None:
    needed = LISTS[path][0].split()
    assert operator_in(tenant, *needed).get(path).status_code == 200
    assert new_tenant_admin(tenant, *needed).sign_in().get(path).status_code == 200
    others = {other for names, _ in LISTS.values() for other in names.split()} - set(needed)
    refused = operator_in(tenant, *others).get(path)
    assert refused.status_code == 403
    assert needed[0] in text_of(refused)
    assert new_tenant_admin(tenant, *others).sign_in().get(path).status_code == 403


@pytest.mark.parametrize("path", LISTS)
def test_list_without_tenant_redirects_to_chooser(tenant: TestTenant, path: str) -> None:
    staff = new_operator().sign_in()
    response = staff.get(path)
    assert response.status_code == 302
    assert response.headers["Location"].startswith("/admin/inside/?next=")


@pytest.mark.parametrize("path", LISTS)
def test_list_views_are_audited(new_tenant: Callable[[], TestTenant], path: str) -> None:
    tenant = new_tenant()
    staff = operator_in(tenant)
    staff.get(path)
    (event,) = tenant_events(tenant, LISTS[path][1])
    assert (event.actor_kind, event.actor_id) == ("operator", str(staff.id))
    assert event.details == {"console": True, "filters": []}


def test_audit_records_filter_names_not_values(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    operator_in(tenant).get(USERS, q="ada@example.com", active="yes", nonsense="ada")
    (event,) = tenant_events(tenant, "end_user.listed")
    assert event.details == {"console": True, "filters": ["q", "active"]}


def test_end_users_are_found_by_address_and_name(tenant: TestTenant, staff: Staff) -> None:
    mark = secrets.token_hex(4)
    ada = tenant.register(f"Ada-{mark}@example.com", name=f"Countess {mark} Lovelace")
    bob = tenant.register(f"bob-{mark}@example.com", name="Bob")
    for words in (f"ada-{mark}@example.com", f"ADA-{mark}@", f"da-{mark}", f"{mark} love"):
        page = text_of(staff.get(USERS, q=words))
        assert ada.email in page, words
        assert bob.email not in page, words
    assert ada.email not in text_of(staff.get(USERS, q=f"%{mark}"))
    tenant.register(f"eva-{mark}@m\u00fcnchen.example")
    for words in (f"eva-{mark}@m\u00fcnchen.example", f"eva-{mark}@xn--mnchen-3ya.example"):
        assert f"eva-{mark}@xn--mnchen-3ya.example" in text_of(staff.get(USERS, q=words)), words


def test_end_users_of_other_tenant_are_not_listed(tenant: TestTenant, other_tenant: TestTenant, staff: Staff) -> None:
    foreign_user = other_tenant.register()
    page = f"{PEOPLE}{foreign_user.id}/"
    assert page not in text_of(staff.get(USERS, q=foreign_user.email))
    assert page in text_of(open_tenant_pages(other_tenant, staff).get(USERS, q=foreign_user.email))
    assert page not in text_of(new_tenant_admin(tenant).sign_in().get(USERS, q=foreign_user.email))


def test_end_users_are_filtered(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    staff = operator_in(tenant)
    on, off = tenant.register(), tenant.register()
    tenant.api.post("/uflow/user/enduser/delete", {"tenant_id": str(tenant.id), "user_id": str(off.id)})
    assert shown(staff, {on.email, off.email}, active="yes") == {on.email}
    assert shown(staff, {on.email, off.email}, active="no") == {off.email}
    assert shown(staff, {on.email, off.email}, provider="local") == {on.email, off.email}
    assert shown(staff, {on.email, off.email}, client=str(tenant.client_id)) == {on.email, off.email}
    assert shown(staff, {on.email, off.email}, factor="none", active="yes") == {on.email}
    assert shown(staff, {on.email, off.email}, factor="totp") == set()


def test_end_users_are_sorted_by_address_and_time(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    first, second = (tenant.register(email=f"{name}-{secrets.token_hex(3)}@example.com") for name in ("zoe", "amy"))
    staff = operator_in(tenant)

    def first_shown(order: str) -> str:
        page = text_of(staff.get(USERS, o=order))
        return min(first.email, second.email, key=page.index)

    # The first column has the boxes.
    orders = {"": second, "1": second, "-1": first, "6": first, "-6": second}
    assert {order: first_shown(order) for order in orders} == {order: user.email for order, user in orders.items()}


def test_page_is_compressed_and_small(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    rows = [EndUser(email=f"u{i}@example.com", email_key=f"u{i}@example.com", name=f"User {i}") for i in range(60)]
    with in_tenant(tenant.id):
        EndUser.objects.bulk_create(rows)
    response = operator_in(tenant).browser.get(USERS, headers={"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(response.content) < 100 * 1024


def shown(staff: Staff, of: set[str], **filters: Any) -> set[str]:
    page = text_of(staff.get(USERS, **filters))
    return {email for email in of if email in page}


@pytest.mark.parametrize(
    "query",
    [
        {"q": "\x00"},
        {"provider": "\x00"},
        {"client": "nonsense"},
        {"factor": "\ud7ff"},
        {"active": "1"},
        {"p": "nonsense"},
        {"p": "999999"},
        {"o": "1.2.3"},
        {"email__contains": "a"},
        {"password__startswith": "argon2"},
    ],
)
def test_malformed_filters_disclose_nothing(staff: Staff, query: dict[str, str]) -> None:
    assert staff.get(USERS, **query).status_code in (200, 302, 400)


def test_groups_and_roles_are_found_by_name(tenant: TestTenant, staff: Staff) -> None:
    mark = secrets.token_hex(4)
    tenant.api.post("/authmgr/roles", {"name": f"role-{mark}", "permissions": ["invoices:read"]})
    tenant.api.post("/authmgr/groups", {"name": f"Group {mark}", "roles": [f"role-{mark}"]})
    assert f"role-{mark}" in text_of(staff.get(GROUPS, q=f"group {mark}"))
    assert "invoices:read" in text_of(staff.get(ROLES, q=f"ROLE-{mark}"))


def test_sessions_are_found_by_user(tenant: TestTenant, staff: Staff) -> None:
    person, other = tenant.register(), tenant.register()
    tenant.sign_in(person)
    tenant.sign_in(other)
    page = text_of(staff.get(SESSIONS, q=person.email))
    assert f"{PEOPLE}{person.id}/" in page
    assert f"{PEOPLE}{other.id}/" not in page
    assert f"{PEOPLE}{person.id}/" not in text_of(staff.get(SESSIONS, q=person.email, state="over"))


def test_empty_list_says_what_to_do(new_tenant: Callable[[], TestTenant]) -> None:
    staff = operator_in(new_tenant())
    assert "Register a user or send an invitation" in text_of(staff.get(USERS))
    assert "Create the first one" in text_of(staff.get(GROUPS))
    assert "No invitations yet" in text_of(staff.get("/admin/inside/invitations/"))


@pytest.mark.parametrize("path", ["add/", "00000000-0000-4000-8000-000000000000/change/", "x/delete/", "x/history/"])
def test_django_admin_row_pages_are_404(staff: Staff, path: str) -> None:
    assert staff.get(f"{USERS}{path}").status_code == 404
