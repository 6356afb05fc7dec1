"""The settings of a tenant as a form."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tenants.models import Tenant
from tenants.settings.declarations import SETTINGS
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.console.tenants.test_pages import page
from tests.copies import change_tenant
from tests.world import TestTenant


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


def form(tenant: TestTenant, **changed: Any) -> dict[str, Any]:
    """Return what a browser sends: every field, with the changed ones."""
    return {
        "name": tenant.name,
        **dict.fromkeys(SETTINGS, ""),
        **changed,
    }


def settings_of(tenant: TestTenant) -> dict[str, Any]:
    return Tenant.objects.get(pk=tenant.id).settings


def test_settings_page_has_a_field_for_every_setting(operator: Staff, tenant: TestTenant) -> None:
    shown = operator.get(page(tenant, "settings")).content.decode()
    assert [name for name in SETTINGS if f'name="{name}"' not in shown] == []


def test_settings_are_saved_and_reset(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    stated = {
        "issuer_name": "Acme",
        "self_registration": "false",
        "password_min_length": "12",
        "sms_countries": "DE\nFR\n",
        "mfa_policy": "required",
    }
    assert operator.post(page(tenant, "settings"), form(tenant, **stated)).status_code == 302
    assert settings_of(tenant) == {
        "issuer_name": "Acme",
        "self_registration": False,
        "password_min_length": 12,
        "sms_countries": ["DE", "FR"],
        "mfa_policy": "required",
    }
    shown = operator.get(page(tenant, "settings")).content.decode()
    assert "DE\nFR" in shown
    assert 'value="Acme"' in shown
    operator.post(page(tenant, "settings"), form(tenant, issuer_name="Acme"))
    assert settings_of(tenant) == {"issuer_name": "Acme"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("password_min_length", "3", "between 8 and 64"),
        ("password_min_length", "many", "whole number"),
        ("webauthn_origins", "ftp://nowhere", "https origins"),
        ("password_reset_url", "javascript:alert(1)", "https address"),
        ("name", "", "required"),
    ],
)
def test_settings_show_validation_errors(operator: Staff, tenant: TestTenant, name: str, value: str, says: str) -> None:
    before = settings_of(tenant)
    response = operator.post(page(tenant, "settings"), form(tenant, **{name: value}))
    assert response.status_code == 400
    assert says in response.content.decode()
    assert settings_of(tenant) == before


def test_rename_tenant_rejects_taken_slug(
    operator: Staff, new_tenant: Callable[[], TestTenant], tenant: TestTenant
) -> None:
    own = new_tenant()
    slug = f"{own.slug}-x"
    operator.post(page(own, "settings"), form(own, name="Renamed"))
    operator.post(page(own, "slug"), {"slug": slug, "typed": own.slug})
    assert (Tenant.objects.get(pk=own.id).name, Tenant.objects.get(pk=own.id).slug) == ("Renamed", slug)
    for rejected, says in ((tenant.slug, "Another tenant has this slug"), ("Not A Slug", "not starting or ending")):
        response = operator.post(page(own, "slug"), {"slug": rejected, "typed": slug})
        assert (response.status_code, says in response.content.decode()) == (400, True)


def test_saving_without_a_change_writes_nothing(operator: Staff, tenant: TestTenant) -> None:
    before = Tenant.objects.get(pk=tenant.id).updated_at
    assert operator.post(page(tenant, "settings"), form(tenant)).status_code == 302
    assert Tenant.objects.get(pk=tenant.id).updated_at == before


def test_settings_reject_stale_form(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    shown = operator.get(page(tenant, "settings")).content.decode()
    found = re.search(r'name="form_state" value="([^"]+)"', shown)
    assert found is not None
    first = operator.post(page(tenant, "settings"), form(tenant, form_state=found[1], mfa_policy="required"))
    assert first.status_code == 302
    late = operator.post(page(tenant, "settings"), form(tenant, form_state=found[1], name="Renamed"))
    assert (late.status_code, settings_of(tenant)) == (400, {"mfa_policy": "required"})
    assert "This was changed after you opened the page" in late.content.decode()


def test_settings_page_shows_values_in_effect_and_defaults(
    operator: Staff, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    operator.post(page(tenant, "settings"), form(tenant, password_min_length="12", self_registration="false"))
    rows = {str(row[0]): row[1:] for row in operator.get(page(tenant, "settings")).context["in_effect"].rows}
    assert rows["Minimum password length"] == ("12", "8", True)
    assert rows["Self-registration"] == ("no", "yes", True)
    assert rows["Second factor"] == ("optional", "optional", False)


def test_tenant_admin_changes_settings_that_the_api_allows(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    admin = new_tenant_admin(tenant).sign_in()
    shown = admin.get(page(tenant, "settings")).text
    hidden = ("name", "slug", "webauthn_rp_id", "webauthn_origins", "region")
    assert [name for name in hidden if f'name="{name}"' in shown] == []
    sent = {**form(tenant), "password_min_length": "12", "name": "Renamed", "region": "eu"}
    assert admin.post(page(tenant, "settings"), sent).headers["Location"] == page(tenant)
    assert (settings_of(tenant), Tenant.objects.get(pk=tenant.id).name) == ({"password_min_length": 12}, tenant.name)
    longer = admin.post(page(tenant, "settings"), {**form(tenant), "access_token_seconds": "86400"})
    assert (longer.status_code, "only an operator can set a longer lifetime" in longer.text) == (400, True)


def test_tenant_admin_needs_permission_and_step_up_for_settings(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant = new_tenant()
    admin, reader = new_tenant_admin(tenant).sign_in(), new_tenant_admin(tenant, "admins:read").sign_in()
    assert (page(tenant, "settings") in admin.get(page(tenant)).text, reader.get(page(tenant)).status_code) == (
        True,
        200,
    )
    assert page(tenant, "settings") not in reader.get(page(tenant)).text
    sent = {**form(tenant), "mfa_policy": "required"}
    assert reader.post(page(tenant, "settings"), sent).status_code == 403
    assert admin.post(page(other_tenant, "settings"), sent).status_code == 404
    admin.time_passes(minutes=16)
    assert admin.post(page(tenant, "settings"), sent).headers["Location"].startswith("/admin/reauthenticate/")
    assert settings_of(tenant) == {}


def test_settings_page_warns_of_claims_that_users_write(operator: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    says = "Users write these claims about themselves, so applications must not rely on them:"
    assert says not in operator.get(page(tenant, "settings")).content.decode()
    saved = operator.post(
        page(tenant, "settings"),
        form(tenant, app_metadata_claims="plan", external_id_claim="true", metadata_claims="theme"),
    )
    assert saved.status_code == 302
    assert settings_of(tenant) == {
        "app_metadata_claims": ["plan"],
        "external_id_claim": True,
        "metadata_claims": ["theme"],
    }
    assert f"{says} theme." in operator.get(page(tenant, "settings")).content.decode()
    change_tenant(tenant.id, settings={"metadata_claims": ["upn", "given_name"]})
    shown = operator.get(page(tenant, "settings")).content.decode()
    assert f"{says} given_name." in shown
    assert "These names are reserved, so they are no claims any more: upn." in shown
