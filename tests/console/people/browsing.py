"""Shared helpers for pages inside a tenant."""

from typing import Any

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from tests.console.staff import Staff, new_operator
from tests.world import TestTenant

CHOOSER = "/admin/inside/"
USERS = "/admin/userflow/enduser/"
GROUPS = "/admin/userflow/group/"
ROLES = "/admin/userflow/role/"
SESSIONS = "/admin/userflow/endusersession/"
PEOPLE = "/admin/inside/people/"


def open_tenant_pages(tenant: TestTenant, staff: Staff) -> Staff:
    """Open the tenant."""
    response = staff.post(CHOOSER, {"tenant": str(tenant.id)})
    assert response.status_code == 302, response.content.decode()
    return staff


def operator_in(tenant: TestTenant, *permissions: str) -> Staff:
    """Return a signed-in operator in the open tenant, with these permissions or all."""
    held = ("tenants:read", *permissions) if permissions else ()
    return open_tenant_pages(tenant, new_operator(*held).sign_in())


def send(staff: Staff, tenant: TestTenant, path: str, **members: Any) -> Any:
    """Send a form of the tenant."""
    return staff.post(path, {"form_tenant_id": str(tenant.id), **members})


def text_of(response: Any) -> str:
    """Return the text of the page, whose status must be 200."""
    page: str = response.content.decode()
    assert "<html" in page
    return page


def tenant_events(tenant: TestTenant, action: str) -> list[TenantEvent]:
    """Return the tenant's events of this action, newest first."""
    with in_tenant(tenant.id, Purpose.INSPECT):
        return list(TenantEvent.objects.filter(action=action).order_by("-id"))
