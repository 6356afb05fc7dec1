"""Choosing the tenant to open."""

from collections.abc import Callable
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.console.people.browsing import (
    CHOOSER,
    PEOPLE,
    USERS,
    open_tenant_pages,
    operator_in,
    send,
    tenant_events,
    text_of,
)
from tests.console.staff import new_operator, new_tenant_admin
from tests.world import TestTenant


def test_operator_finds_and_opens_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    staff = new_operator().sign_in()
    for words in (tenant.name, tenant.slug.upper(), tenant.slug[3:]):
        page = text_of(staff.get(CHOOSER, q=words))
        assert str(tenant.id) in page
        assert str(other_tenant.id) not in page
    response = staff.post(CHOOSER, {"tenant": str(tenant.id)})
    assert (response.status_code, response.headers["Location"]) == (302, USERS)
    assert tenant.name in text_of(staff.get("/admin/"))


def test_a_link_proposes_a_tenant_and_changes_nothing(tenant: TestTenant) -> None:
    staff = new_operator().sign_in()
    page = text_of(staff.get(CHOOSER, tenant=str(tenant.id)))
    assert f"Open {tenant.name}?" in page
    assert staff.get(USERS).headers["Location"] == f"{CHOOSER}?next={quote(USERS, safe='')}"


def test_chooser_returns_to_requested_page(tenant: TestTenant) -> None:
    staff = new_operator().sign_in()
    response = staff.post(CHOOSER, {"tenant": str(tenant.id), "next": "/admin/userflow/role/"})
    assert response.headers["Location"] == "/admin/userflow/role/"


@pytest.mark.parametrize("away", ["https://evil.example/admin/", "//evil.example/admin/", "/docs/", "javascript:1"])
def test_chooser_ignores_external_next_path(tenant: TestTenant, away: str) -> None:
    staff = new_operator().sign_in()
    assert staff.post(CHOOSER, {"tenant": str(tenant.id), "next": away}).headers["Location"] == USERS


def test_chooser_lists_recent_tenants_and_exits(tenant: TestTenant, other_tenant: TestTenant) -> None:
    staff = open_tenant_pages(other_tenant, operator_in(tenant))
    page = text_of(staff.get(CHOOSER))
    assert page.index(str(other_tenant.slug)) < page.index(str(tenant.slug))
    staff.post(CHOOSER, {"tenant": ""})
    assert staff.get(USERS).status_code == 302
    assert "inside-bar" not in text_of(staff.get("/admin/"))


@pytest.mark.parametrize("odd", ["nonsense", "\x00", "1"])
def test_chooser_rejects_unknown_tenant(odd: str) -> None:
    staff = new_operator().sign_in()
    assert staff.post(CHOOSER, {"tenant": odd}).status_code == 404
    assert staff.post(CHOOSER, {"tenant": str(uuid4())}).status_code == 404
    assert staff.get(CHOOSER, tenant=odd).status_code == 404


def test_a_tenant_admin_has_the_own_tenant_and_no_chooser(tenant: TestTenant, other_tenant: TestTenant) -> None:
    staff = new_tenant_admin(tenant).sign_in()
    assert tenant.name in text_of(staff.get(USERS))
    assert f'"{CHOOSER}"' not in text_of(staff.get(USERS))
    assert staff.get(CHOOSER).status_code == 403
    assert staff.post(CHOOSER, {"tenant": str(other_tenant.id)}).status_code == 403
    assert tenant.name in text_of(staff.get(USERS))


def test_the_chooser_needs_the_permission_to_read_tenants(tenant: TestTenant) -> None:
    staff = new_operator("endusers:read").sign_in()
    assert staff.get(CHOOSER).status_code == 403
    assert staff.post(CHOOSER, {"tenant": str(tenant.id)}).status_code == 403


def test_form_of_other_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    staff = operator_in(tenant)
    path = f"{PEOPLE}{person.id}/edit/"
    assert f'name="form_tenant_id" value="{tenant.id}"' in text_of(staff.get(path))
    open_tenant_pages(other_tenant, staff)
    response = send(staff, tenant, path, name="Another Name", email=person.email)
    assert response.status_code == 409
    assert f"Go back to {tenant.name}" in text_of(response)
    open_tenant_pages(tenant, staff)
    assert "Another Name" not in text_of(staff.get(f"{PEOPLE}{person.id}/"))


def test_form_without_tenant_id_is_rejected(tenant: TestTenant) -> None:
    person = tenant.register()
    staff = new_tenant_admin(tenant).sign_in()
    for body in ({}, {"form_tenant_id": ""}, {"form_tenant_id": "nonsense"}, {"form_tenant_id": str(uuid4())}):
        assert staff.post(f"{PEOPLE}{person.id}/activity/", body).status_code == 409
    assert not [event for event in tenant_events(tenant, "end_user.deactivated") if event.target_id == str(person.id)]


def test_chooser_lists_newest_tenants_on_first_visit(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    shown = new_operator().sign_in().get(CHOOSER).content.decode()
    assert "Newest tenants" in shown
    assert tenant.slug in shown
