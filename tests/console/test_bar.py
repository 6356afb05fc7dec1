"""The bar at the top names the tenant that the page acts on, and no page of the platform has one."""

import re
from uuid import uuid4

import pytest
from django.http import HttpRequest

from console.frame.scope import act_on
from tenants.models import Tenant
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.world import TestTenant

_BAR = re.compile(r'<div class="inside-bar".*?</div>', re.DOTALL)


@pytest.fixture
def ann(tenant: TestTenant) -> Staff:
    """An operator who has opened the first tenant."""
    return new_operator().sign_in().choose(tenant)


def bar_of(staff: Staff, path: str) -> str:
    response = staff.get(path)
    assert response.status_code == 200, path
    return "".join(_BAR.findall(response.content.decode()))


@pytest.mark.parametrize("step", ["change", "settings", "suspend", "backup", "delete"])
def test_page_of_another_tenant_names_that_tenant_only(
    ann: Staff, tenant: TestTenant, other_tenant: TestTenant, step: str
) -> None:
    bar = bar_of(ann, f"/admin/tenants/tenant/{other_tenant.id}/{step}/")
    assert f"({other_tenant.slug})" in bar
    assert f"({tenant.slug})" not in bar
    # What the bar offers is about the tenant that is open, which is not this one.
    assert "Exit tenant" not in bar


@pytest.mark.parametrize(
    "path", ["userflow/enduser/", "inside/people/register/", "platform/webhooks/", "userflow/client/"]
)
def test_page_inside_the_open_tenant_names_it(ann: Staff, tenant: TestTenant, path: str) -> None:
    bar = bar_of(ann, f"/admin/{path}")
    assert f"({tenant.slug})" in bar
    assert "Exit tenant" in bar


@pytest.mark.parametrize("path", ["", "tenants/tenant/", "userflow/adminuser/", "platform/servers/", "inside/"])
def test_page_of_the_platform_names_no_tenant(ann: Staff, path: str) -> None:
    assert bar_of(ann, f"/admin/{path}") == ""


def test_page_of_an_admin_user_names_the_tenant_of_that_user(ann: Staff, other_tenant: TestTenant) -> None:
    theirs, platform = new_tenant_admin(other_tenant), new_operator()
    assert f"({other_tenant.slug})" in bar_of(ann, f"/admin/userflow/adminuser/{theirs.id}/edit/")
    assert bar_of(ann, f"/admin/userflow/adminuser/{platform.id}/edit/") == ""


def test_every_page_of_a_tenant_admin_names_the_own_tenant(tenant: TestTenant) -> None:
    ben = new_tenant_admin(tenant).sign_in()
    for path in ("", "userflow/adminuser/", f"tenants/tenant/{tenant.id}/change/"):
        assert f"({tenant.slug})" in bar_of(ben, f"/admin/{path}")


def test_sidebar_names_the_open_tenant_on_every_page(ann: Staff, tenant: TestTenant) -> None:
    text = ann.get("/admin/platform/servers/").content.decode()
    assert f"{tenant.name}" in text
    assert "Change tenant" in text


def test_a_page_that_acts_on_two_tenants_is_a_defect() -> None:
    request = HttpRequest()
    request.console_tenant = None  # type: ignore[attr-defined]  # none is chosen
    act_on(request, Tenant(pk=uuid4(), slug="one"))
    with pytest.raises(RuntimeError, match="acts on one and on two"):
        act_on(request, Tenant(pk=uuid4(), slug="two"))


def test_sidebar_marks_the_chooser_on_its_own_page_only(ann: Staff) -> None:
    marked = re.compile(r'href="/admin/inside/" aria-current="page"')
    assert marked.search(ann.get("/admin/inside/").content.decode())
    assert not marked.search(ann.get("/admin/inside/invitations/").content.decode())
