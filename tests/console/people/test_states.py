"""A tenant that cannot be opened or changed: the page says why and what to do."""

from collections.abc import Callable

import pytest

from tenants.lifecycle.provisioning import suspend_tenant
from tenants.models import TenantDatabase
from tests.console.people.browsing import PEOPLE, USERS, operator_in, send, text_of
from tests.console.staff import new_tenant_admin
from tests.copies import change_mapping
from tests.world import TestTenant

LOOKS = [USERS, "/admin/inside/trail/", "/admin/inside/invitations/", f"{PEOPLE}00000000-0000-4000-8000-000000000000/"]


def set_state(tenant: TestTenant, state: str, **columns: str) -> None:
    change_mapping(tenant.id, status=state, **columns)


def test_operators_open_suspended_tenant(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    staff = operator_in(tenant)
    suspend_tenant(tenant_id=tenant.id)
    for path in (f"{PEOPLE}{person.id}/", USERS, "/admin/inside/invitations/", "/admin/inside/trail/"):
        assert staff.get(path).status_code == 200
    refused = send(staff, tenant, "/admin/inside/invitations/new/", email="guest@example.com")
    assert refused.status_code == 400


@pytest.mark.parametrize("page", ["edit", "activity", "factors/reset", "sessions/end", "erase"])
def test_operators_change_users_of_a_suspended_tenant(new_tenant: Callable[[], TestTenant], page: str) -> None:
    tenant = new_tenant()
    tenant.register()
    person, admin = tenant.register(), new_tenant_admin(tenant).sign_in()
    tenant.sign_in(person)
    staff = operator_in(tenant)
    suspend_tenant(tenant_id=tenant.id)
    fields = {
        "edit": {"name": "New Name", "email": person.email, "metadata": "{}"},
        "activity": {"active": "no"},
        "factors/reset": {"reason": "lost phone"},
        "sessions/end": {},
        "erase": {"typed": person.email},
    }[page]
    assert send(admin, tenant, f"{PEOPLE}{person.id}/{page}/", **fields).headers["Location"].startswith("/admin/login")
    response = send(staff, tenant, f"{PEOPLE}{person.id}/{page}/", **fields)
    assert response.status_code == 302, text_of(response)


@pytest.mark.parametrize(
    ("state", "words"),
    [("provisioning", "is being created"), ("deleting", "deleted or being deleted"), ("deleted", "being deleted")],
)
def test_tenant_without_database_shows_reason(new_tenant: Callable[[], TestTenant], state: str, words: str) -> None:
    tenant = new_tenant()
    staff = operator_in(tenant)
    set_state(tenant, state)
    for path in LOOKS:
        response = staff.get(path)
        assert response.status_code == 503
        assert words in text_of(response)
        assert "Choose another tenant" in text_of(response)


def test_unreachable_database_shows_state_and_reason(
    new_tenant: Callable[[], TestTenant],
) -> None:
    tenant = new_tenant()
    database = tenant.row.database.name
    staff, admin = operator_in(tenant), new_tenant_admin(tenant).sign_in()
    set_state(tenant, "failed", name="no_such_database", reason="migration 0007 stopped")
    for path in LOOKS:
        response = staff.get(path)
        assert response.status_code == 503
        assert "migration 0007 stopped" in text_of(response)
        assert "Fix the reason and run the operation again" in text_of(response)
    # Only operators see the reason.
    response = admin.get(USERS)
    assert response.status_code == 503
    assert "migration 0007" not in text_of(response)
    TenantDatabase.objects.filter(pk=tenant.id).update(status="active")
    assert "Check its server" in text_of(staff.get(USERS))
    # Else a later test of repairs would find an orphan.
    set_state(tenant, "active", name=database)


def test_moving_tenant_is_read_only(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    admin = new_tenant_admin(tenant).sign_in()
    set_state(tenant, "moving")
    assert admin.get(f"{PEOPLE}{person.id}/").status_code == 200
    refused = send(admin, tenant, f"{PEOPLE}{person.id}/activity/", active="no")
    assert refused.status_code == 400
    assert "under maintenance" in text_of(refused)
