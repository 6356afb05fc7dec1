"""Services of the chosen tenant in the console: listed, shown, changed, and only with the permission."""

import secrets
from typing import Any
from uuid import uuid4

import pytest

from registry.actions import create_service
from registry.models import Service
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import TestTenant, capture_statements

LIST = "/admin/registry/service/"
FORM = {
    "name": "Payments",
    "type": "payment",
    "base_url": "https://pay.example.com/v1",
    "status": "active",
    "description": "Takes money.",
    "metadata": '{"team": "till"}',
}


EVERYTHING = ("services:read", "services:write", "services:delete", "services:credentials")


def service_manager(tenant: TestTenant) -> Staff:
    return new_tenant_admin(tenant, *EVERYTHING).sign_in()


@pytest.fixture
def manager(tenant: TestTenant) -> Staff:
    return service_manager(tenant)


def a_service(tenant: TestTenant, **members: Any) -> Service:
    given = {
        "name": f"Service {secrets.token_hex(4)}",
        "type": "payment",
        "base_url": "https://a.example.com",
        **members,
    }
    return create_service(tenant_id=tenant.id, **given)


def add(staff: Staff, tenant: TestTenant, **form: str) -> Any:
    """Send a form as the page rendered it, with the id of its tenant."""
    return staff.post(f"{LIST}add/", {"form_tenant_id": str(tenant.id), **FORM, **form})


def at(service: Service, page: str = "change/") -> str:
    return f"{LIST}{service.pk}/{page}"


def test_services_are_registered_changed_and_deleted(manager: Staff, tenant: TestTenant) -> None:
    name = f"Payments {secrets.token_hex(4)}"
    response = add(manager, tenant, name=name)
    service = Service.objects.get(tenant_id=tenant.id, name=name)
    assert (response.status_code, response.headers["Location"]) == (302, at(service))
    assert (service.type, service.metadata) == ("payment", {"team": "till"})
    assert manager.post(at(service, "edit/"), {**FORM, "name": name, "status": "inactive"}).status_code == 302
    assert "inactive" in manager.get(at(service)).text
    assert manager.post(at(service, "delete/")).headers["Location"] == LIST
    assert not Service.objects.filter(pk=service.pk).exists()


def test_edit_service_rejects_stale_form(manager: Staff, tenant: TestTenant) -> None:
    service = a_service(tenant)
    typed = {**FORM, "name": service.name, "base_url": "https://old.example.com"}
    drawn = {"form_state": manager.get(at(service, "edit/")).text.partition('name="form_state" value="')[2][:32]}
    assert tenant.api.put(f"/exsvc/api/v1/services/{service.pk}", {"status": "inactive"}).status_code == 200
    # Sent again it is still outdated; a page that is opened now is current.
    for _ in range(2):
        late = manager.post(at(service, "edit/"), {**typed, **drawn})
        assert (late.status_code, "This was changed after you opened the page" in late.text) == (400, True)
        assert late.text.partition('name="form_state" value="')[2][:32] == drawn["form_state"]
    service.refresh_from_db()
    assert (service.status, service.base_url) == ("inactive", "https://a.example.com")
    drawn = {"form_state": manager.get(at(service, "edit/")).text.partition('name="form_state" value="')[2][:32]}
    assert manager.post(at(service, "edit/"), {**typed, **drawn}).status_code == 302


def test_validation_errors_are_shown_at_the_field(manager: Staff, tenant: TestTenant) -> None:
    taken = a_service(tenant)
    wrong = add(manager, tenant, base_url="ftp://example.com", metadata="[]")
    assert wrong.status_code == 400
    assert "Type a JSON object" in wrong.text
    clash = add(manager, tenant, name=taken.name)
    assert (clash.status_code, "Choose another name" in clash.text) == (400, True)


def test_the_list_is_searched_and_filtered(manager: Staff, tenant: TestTenant) -> None:
    kind = f"kind-{secrets.token_hex(3)}"
    wanted, other = a_service(tenant, type=kind, status="inactive"), a_service(tenant, type=kind)
    for query in (f"?q={wanted.name[-8:]}", f"?type={kind}&status=inactive"):
        page = manager.get(LIST + query).text
        assert (wanted.name in page, other.name in page) == (True, False)
    assert "No results" in manager.get(f"{LIST}?q={uuid4()}").text


def test_empty_list_says_what_to_do(new_tenant: Any) -> None:
    page = service_manager(new_tenant()).get(LIST).text
    assert "Register the outside services" in page
    assert f'href="{LIST}add/"' in page


def test_a_list_costs_the_same_with_many_services(new_tenant: Any) -> None:
    tenant = new_tenant()
    at_work = service_manager(tenant)
    for _ in range(60):
        a_service(tenant)
    with capture_statements() as seen:
        page = at_work.get(LIST)
    assert page.context["cl"].paginator.count == 60
    # Session, admin user, tenant; the types of the filter, the total from the counters, the page itself.
    assert seen.counts == (6, 0), "\n".join(seen.default)


def test_read_permission_does_not_allow_changes(tenant: TestTenant) -> None:
    service = a_service(tenant)
    auditor = new_auditor(tenant).sign_in()
    assert auditor.get(at(service)).status_code == 200
    for page in (f"{LIST}add/", at(service, "edit/"), at(service, "delete/"), at(service, "credentials/add/")):
        for response in (auditor.get(page), auditor.post(page, FORM)):
            assert response.status_code == 403
            assert "permission" in response.text
    assert Service.objects.filter(pk=service.pk, status="active").exists()


def test_services_of_other_tenant_are_404(manager: Staff, tenant: TestTenant, other_tenant: TestTenant) -> None:
    foreign = a_service(other_tenant)
    operator = new_operator().sign_in().choose(tenant)
    for browser in (manager, operator):
        assert foreign.name not in browser.get(LIST).text
        for page in ("change/", "edit/", "delete/", "credentials/add/"):
            for response in (browser.get(at(foreign, page)), browser.post(at(foreign, page), FORM)):
                assert response.status_code == 404
    assert Service.objects.filter(pk=foreign.pk, name=foreign.name).exists()
    assert manager.get(f"{LIST}nonsense/change/").status_code == 404


def test_delete_rejects_service_with_active_credentials(manager: Staff, tenant: TestTenant) -> None:
    service = a_service(tenant)
    manager.post(at(service, "credentials/add/"), {"name": "live", "type": "api_key", "secret": "s3cret"})
    response = manager.post(at(service, "delete/"))
    assert (response.status_code, "Revoke or delete them first" in response.text) == (400, True)
    assert Service.objects.filter(pk=service.pk).exists()
