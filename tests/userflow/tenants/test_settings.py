"""Settings of a tenant: API, documentation and defaults."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

from identity_platform.audit.models import PlatformEvent
from tenants.settings.declarations import SETTINGS
from tenants.settings.json_schemas import json_schema
from tests.mfa.signin.test_admins import new_admin
from tests.openapi.document import document, fields_of
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.admins.actions import create_admin_user


@pytest.fixture
def tenant(tenant: TestTenant) -> TestTenant:
    """Return the shared tenant with its admin just signed in."""
    return replace(tenant, api=Api(token=sign_in_admin(tenant.admin.username)["access_token"]))


def test_schema_lists_each_setting_with_type_and_meaning() -> None:
    schemas = document()["components"]["schemas"]
    for component in ("Tenant", "TenantRequest", "TenantChangesRequest"):
        found = fields_of(schemas[component]["properties"]["settings"])["properties"]
        assert list(found) == list(SETTINGS)
        assert [name for name, shape in found.items() if not shape["description"]] == []
        assert [name for name, shape in found.items() if not {"type", "oneOf", "$ref"} & shape.keys()] == []
    assert schemas["EnrollmentMode"]["enum"] == ["window", "ticket", "bearer"]
    assert found["access_token_seconds"]["default"] == settings.ACCESS_TOKEN_SECONDS


def path_of(tenant: TestTenant) -> str:
    return f"/uflow/admin/tenants/{tenant.id}/settings"


def change(api: Api, tenant: TestTenant, **changes: Any) -> Any:
    return api.patch(path_of(tenant), {"settings": changes})


def test_get_settings_shows_what_is_set_and_what_applies(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    assert change(own.api, own, password_min_length=12).status_code == 200
    found = own.api.get(path_of(own)).json()
    assert (found["tenant_id"], found["settings"]) == (str(own.id), {"password_min_length": 12})
    assert set(found["effective"]) == set(SETTINGS)
    applies = {name: found["effective"][name] for name in ("issuer_name", "password_min_length", "account_deletion")}
    assert applies == {"issuer_name": own.name, "password_min_length": 12, "account_deletion": "off"}
    assert found["effective"]["access_token_seconds"] == settings.ACCESS_TOKEN_SECONDS


def test_patch_settings_merges_and_null_restores(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    change(own.api, own, password_min_length=20, issuer_name=" Acme ")
    assert change(own.api, own, password_min_length=None).json()["settings"] == {"issuer_name": "Acme"}
    register = {"email": "w@example.com", "password": "nine chars 9", "tenant_id": str(own.id)}
    assert Api().post("/uflow/user/clients/register", {**register, "client_id": str(own.client_id)}).status_code == 201
    event = PlatformEvent.objects.filter(action="tenant.updated", target_id=own.id).latest("at")
    values = {"before": {"password_min_length": 20}, "after": {"password_min_length": None}}
    assert (event.actor_id, event.details) == (str(own.admin.id), {"changed": ["password_min_length"], **values})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"no_such": 1}, "no_such"),
        ({"issuer_name": "help@bank.example"}, "issuer_name"),
        ({"issuer_name": "Ac\u200bme"}, "issuer_name"),
        ({"password_min_length": True}, "password_min_length"),
        ({"account_deletion": "maybe"}, "account_deletion"),
        ({"sms_countries": ["DE", "DE"]}, "sms_countries"),
        *(
            ({setting: [name]}, setting)
            for setting in ("app_metadata_claims", "metadata_claims")
            for name in ("sub", "email_verified", "roles", "entitlements", "upn", "external_id", "a b", "", "\n")
        ),
        ({"app_metadata_claims": ["plan"], "metadata_claims": ["plan"]}, "metadata_claims"),
        ({"external_id_claim": "yes"}, "external_id_claim"),
        ({"webauthn_rp_id": "acme.example"}, "webauthn_rp_id"),
        ({"webauthn_origins": None}, "webauthn_origins"),
        ({"access_token_seconds": settings.ACCESS_TOKEN_SECONDS + 1}, "access_token_seconds"),
        ({"refresh_token_seconds": settings.REFRESH_TOKEN_SECONDS + 1}, "refresh_token_seconds"),
        ({"mfa_policy": "required", "enrollment_mode": "bearer"}, "enrollment_mode"),
    ],
)
def test_patch_settings_rejects_a_tenant_admin(tenant: TestTenant, changes: dict[str, Any], named: str) -> None:
    before = tenant.api.get(path_of(tenant)).json()
    response = change(tenant.api, tenant, **changes)
    assert (response.status_code, list(response.json()["details"])) == (400, [f"settings.{named}"])
    assert tenant.api.get(path_of(tenant)).json() == before


def test_patch_settings_needs_the_settings(tenant: TestTenant) -> None:
    for body in ({}, {"settings": None}, {"mfa_policy": "required"}, {"settings": []}):
        assert tenant.api.patch(path_of(tenant), body).json()["details"].keys() == {"settings"}


def test_tenant_admin_can_only_shorten_lifetimes(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own, longest = new_tenant(), settings.ACCESS_TOKEN_SECONDS
    assert change(own.api, own, access_token_seconds=longest - 60).status_code == 200
    assert change(operator, own, access_token_seconds=longest + 120).status_code == 200
    assert change(own.api, own, access_token_seconds=longest + 60).status_code == 200
    assert change(own.api, own, access_token_seconds=longest + 120).status_code == 400
    assert change(own.api, own, access_token_seconds=None).status_code == 200
    assert change(own.api, own, access_token_seconds=longest + 60).status_code == 400


def test_settings_of_other_tenants_are_forbidden(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    unknown_id, before = uuid4(), operator.get(path_of(tenant)).json()
    for method in ("GET", "PATCH"):
        body = {"settings": {"mfa_policy": "required"}} if method == "PATCH" else None
        path = "/uflow/admin/tenants/{}/settings"
        foreign, unknown = (other_tenant.api.call(method, path.format(one), body) for one in (tenant.id, unknown_id))
        assert (foreign.status_code, foreign.content) == (403, unknown.content)
        assert operator.call(method, path.format(unknown_id), body).status_code == 404
        assert other_tenant.api.call(method, path.format("no-uuid"), body).status_code == 400
    assert operator.get(path_of(tenant)).json() == before


def test_settings_are_for_admins_of_the_tenant(tenant: TestTenant) -> None:
    user = tenant.as_user(tenant.register())
    client = Api(token=own_token(make_client(tenant, scopes=["admins:write", "admins:read"])))
    for api, status in ((user, 403), (client, 403), (Api(), 401)):
        assert api.get(path_of(tenant)).status_code == status
        assert change(api, tenant, mfa_policy="required").status_code == status


def test_patch_settings_needs_admins_write(tenant: TestTenant) -> None:
    name = f"user-manager-{uuid4().hex[:8]}"
    create_admin_user(
        tenant_id=tenant.id, username=name, email=f"{name}@example.com", password=PASSWORD, roles=["user-manager"]
    )
    weak = Api(token=sign_in_admin(name)["access_token"])
    assert weak.get(path_of(tenant)).status_code == 200
    assert change(weak, tenant, mfa_policy="required").status_code == 403


def test_tenant_admin_cannot_change_the_tenant_itself(tenant: TestTenant) -> None:
    path = f"/uflow/admin/tenants/{tenant.id}"
    for body in ({"name": "Mine"}, {"slug": "mine"}, {"status": "suspended"}, {"settings": {}}):
        assert tenant.api.patch(path, body).status_code == 403
    renamed = tenant.api.patch(path_of(tenant), {"settings": {}, "name": "Mine", "slug": "mine", "status": "suspended"})
    assert renamed.status_code == 200
    tenant.row.refresh_from_db()
    assert tenant.name != "Mine"


def test_patch_settings_needs_a_recent_sign_in(tenant: TestTenant, operator: Api) -> None:
    before = tenant.api.get(path_of(tenant)).json()
    for api, path in ((tenant.api, path_of(tenant)), (operator, path_of(tenant)), (operator, path_of(tenant)[:-9])):
        old = Api(token=aged(str(api.token), 16))
        response = old.patch(path, {"settings": {"mfa_policy": "required"}})
        assert (response.status_code, "15 minutes" in response.json()["message"]) == (401, True)
    assert tenant.api.get(path_of(tenant)).json() == before


def test_patch_settings_needs_the_factor_in_the_session(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    eve = new_admin(own)
    before = Api(token=eve.sign_in().json()["access_token"])
    assert change(before, own, password_min_length=9).status_code == 200
    eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket})
    assert change(before, own, password_min_length=10).status_code == 401
    body = {"email": eve.email, "mfa_token": eve.sign_in().json()["mfa_token"], "code": eve.code(1)}
    after = Api(token=Api().post("/webauthn/admin/totp/verifyLogin", body).json()["access_token"])
    assert change(after, own, password_min_length=10).status_code == 200


def test_settings_of_suspended_tenant_need_an_operator(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own = new_tenant()
    operator.patch(path_of(own)[:-9], {"status": "suspended"})
    assert own.api.get(path_of(own)).status_code == 403
    assert change(own.api, own, mfa_policy="required").status_code == 403
    assert change(operator, own, mfa_policy="required").status_code == 200


def documented(name: str) -> str:
    """Return the row of a setting in the documentation."""
    shape = json_schema(nullable=False)["properties"][name]
    values = " ".join(f"`{value}`" for value in shape.get("enum", ()))
    bounds = f"integer, {shape['minimum']} to {shape['maximum']}" if "minimum" in shape else shape["type"]
    return f"| `{name}` | {values or bounds} | {SETTINGS[name].default.text} | {SETTINGS[name].meaning} |"


def test_documentation_lists_each_setting() -> None:
    text = (settings.BASE_DIR / "docs" / "operating-tenants.md").read_text()
    table = [
        line for line in text.partition("## Settings\n")[2].partition("\n## ")[0].splitlines() if line[:3] == "| `"
    ]
    assert table == [documented(name) for name in SETTINGS]
