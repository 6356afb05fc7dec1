"""The list of tenants and the page of one."""

import secrets
from collections.abc import Callable
from html import escape
from urllib.parse import urlencode

import pytest

from identity_platform.api.email_addresses import a_labels
from tenants.models import DomainClaim
from tests.console.staff import new_operator, new_tenant_admin
from tests.tenants.conftest import run_command
from tests.world import TestTenant, capture_statements

LIST = "/admin/tenants/tenant/"


def page(tenant: TestTenant, step: str = "") -> str:
    return f"{LIST}{tenant.id}/{step or 'change'}/"


def test_operators_find_tenants_by_name_slug_and_id(tenant: TestTenant, other_tenant: TestTenant) -> None:
    operator = new_operator().sign_in()
    for words in (tenant.name, tenant.slug, str(tenant.id)):
        shown = operator.get(LIST, q=words).content.decode()
        assert str(tenant.id) in shown
        assert str(other_tenant.id) not in shown


def test_operators_find_tenants_by_domain_in_both_forms(tenant: TestTenant, other_tenant: TestTenant) -> None:
    shown = f"bücher-{secrets.token_hex(4)}.example"
    claim = DomainClaim.objects.create(domain=a_labels(shown), tenant_id=tenant.id, token="t")
    operator = new_operator().sign_in()
    for words in (shown, claim.domain):
        page = operator.get(LIST, q=words).content.decode()
        assert (str(tenant.id) in page, str(other_tenant.id) in page) == (True, False)
    claim.delete()


def test_the_list_shows_state_server_schema_size_and_users(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.register()
    run_command("collect_figures", tenant=[tenant.slug], settled=0)
    shown = new_operator().sign_in().get(LIST, q=tenant.slug).content.decode()
    for word in ("active", "main", "current", "\N{NO-BREAK SPACE}MB"):
        assert word in shown


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("state=active", True), ("state=suspended", False), ("schema=current", True), ("schema=behind", False)],
)
def test_the_list_is_filtered(tenant: TestTenant, wanted: str, found: bool) -> None:
    name, _, value = wanted.partition("=")
    shown = new_operator().sign_in().get(LIST, q=tenant.slug, **{name: value}).content.decode()
    assert (str(tenant.id) in shown) == found


def test_tenant_page_shows_related_rows(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    shown = new_operator().sign_in().get(page(tenant)).content.decode()
    for word in (tenant.slug, tenant.admin.username, "main", "Suspend", "Back up", "Tenant created"):
        assert word in shown


def test_tenant_page_links_through_chooser(new_tenant: Callable[[], TestTenant], other_tenant: TestTenant) -> None:
    tenant = new_tenant()
    operator = new_operator().sign_in().choose(tenant)
    client = f"/admin/userflow/client/{tenant.client_id}/change/"
    assert f'href="{client}"' in operator.get(page(tenant)).text
    operator.choose(other_tenant)
    assert operator.get(client).status_code == 404
    assert (
        f'href="/admin/inside/?{escape(urlencode({"tenant": tenant.id, "next": client}))}"'
        in operator.get(page(tenant)).text
    )
    chosen = operator.post("/admin/inside/", {"tenant": str(tenant.id), "next": client})
    assert (chosen.headers["Location"], operator.get(client).status_code) == (client, 200)


def test_a_tenant_admin_sees_the_own_tenant_only(tenant: TestTenant, other_tenant: TestTenant) -> None:
    admin = new_tenant_admin(tenant).sign_in()
    listed = admin.get(LIST).content.decode()
    assert str(tenant.id) in listed
    assert str(other_tenant.id) not in listed
    own = admin.get(page(tenant))
    assert own.status_code == 200
    assert "Suspend" not in own.content.decode()
    for step in ("change", "settings", "suspend", "delete", "backup"):
        assert admin.get(page(other_tenant, step)).status_code in (403, 404)
    assert admin.get(page(other_tenant)).status_code == 404


@pytest.mark.parametrize(
    "tenant_id", ["00000000-0000-0000-0000-000000000000", "nonsense", "5d2c33e5-9a86-4c0e-8d57-c8df6a2f9b11"]
)
def test_unknown_tenant_gets_404_page(tenant_id: str) -> None:
    response = new_operator().sign_in().get(f"{LIST}{tenant_id}/change/")
    assert response.status_code == 404
    assert "Go to the dashboard" in response.content.decode()


def test_tenant_list_and_page_require_permission(tenant: TestTenant) -> None:
    operator = new_operator("audit:read").sign_in()
    for path in (LIST, page(tenant), "/admin/console/job/"):
        response = operator.get(path)
        assert response.status_code == 403
        assert "Not allowed" in response.content.decode()
    assert LIST not in operator.get("/admin/").content.decode()


def test_a_page_shows_only_what_the_roles_allow(tenant: TestTenant) -> None:
    shown = new_operator("tenants:read").sign_in().get(page(tenant)).content.decode()
    for word in (tenant.admin.username, "Tenant created", "Suspend", "Provision"):
        assert word not in shown


def test_anonymous_request_redirects_to_sign_in(tenant: TestTenant) -> None:
    from django.test import Client

    for path in (LIST, page(tenant), page(tenant, "delete"), f"{LIST}provision/"):
        assert Client().get(path).headers["Location"].startswith("/admin/login/")


def test_tenant_page_costs_the_same_with_many_rows(new_tenant: Callable[[], TestTenant]) -> None:
    operator, tenant = new_operator().sign_in(), new_tenant()
    operator.get(page(tenant))
    with capture_statements() as few:
        operator.get(page(tenant))
    for _ in range(3):
        new_tenant_admin(tenant)
    with capture_statements() as many:
        operator.get(page(tenant))
    assert many.counts == few.counts
    assert many.counts[0] <= 18
    assert many.counts[1] == 0
