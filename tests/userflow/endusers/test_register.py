"""Register end users over the API."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import change_tenant, create_client
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser, RoleBinding
from userflow.accounts.session_models import EndUserEnrollmentWindow

PATH = "/uflow/user/clients/register"


def body(tenant: TestTenant, **members: Any) -> dict[str, Any]:
    return {
        "tenant_id": str(tenant.id),
        "client_id": str(tenant.client_id),
        "email": f"someone-{secrets.token_hex(5)}@example.com",
        "password": PASSWORD,
        "name": "Some One",
        **members,
    }


def without(sent: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in sent.items() if key != name}


def test_a_new_user_is_stored_in_the_tenant_and_can_sign_in(api: Api, tenant: TestTenant) -> None:
    response = api.post(PATH, body(tenant, email="Ann.First@Example.COM"))
    assert response.status_code == 201
    assert response.json() | {"user_id": "", "message": ""} == {
        "user_id": "",
        "email": "Ann.First@example.com",
        "tenant_id": str(tenant.id),
        "client_id": str(tenant.client_id),
        "message": "",
    }
    assert response.headers["X-Enrollment-Ticket"]
    assert response.headers["Cache-Control"] == "no-store"
    login = {"client_id": str(tenant.client_id), "email": "ann.first@example.com", "password": PASSWORD}
    signed_in = api.post("/uflow/auth/enduser/login", login)
    assert signed_in.status_code == 200
    assert signed_in.json()["user"]["id"] == response.json()["user_id"]


def test_register_creates_role_window_and_event(tenant: TestTenant) -> None:
    person = tenant.register()
    with in_tenant(tenant.id):
        assert list(RoleBinding.objects.filter(user_id=person.id).values_list("role__name", flat=True)) == ["user"]
        assert EndUserEnrollmentWindow.objects.get(user_id=person.id).cause == "registration"
        event = TenantEvent.objects.get(action="end_user.registered", target_id=str(person.id))
        assert event.details == {"client_id": str(tenant.client_id)}


@pytest.mark.parametrize("name", ["tenant_id", "client_id", "email", "password"])
def test_register_names_missing_field(api: Api, tenant: TestTenant, name: str) -> None:
    response = api.post(PATH, without(body(tenant), name))
    assert response.status_code == 400
    assert name in response.json()["details"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("email", "no address"),
        ("email", "kelvin\u212a@example.com"),
        ("email", 5),
        ("email", ""),
        ("email", None),
        ("tenant_id", "x"),
        ("client_id", ["a"]),
        ("password", 12345678),
        ("name", {"a": 1}),
        ("name", "a\u0000b"),
        ("provider", ""),
        ("password", "short"),
        ("password", "p" * 129),
        ("password", "password123"),
    ],
)
def test_register_rejects_invalid_field(api: Api, tenant: TestTenant, name: str, value: Any) -> None:
    sent = body(tenant)
    response = api.post(PATH, {**sent, name: value})
    assert response.status_code == 400, response.content
    with in_tenant(tenant.id):
        assert not EndUser.objects.filter(email=sent["email"]).exists()


def test_local_provider_is_case_insensitive(tenant: TestTenant, api: Api) -> None:
    sent = body(tenant, provider="Local")
    assert "password" in api.post(PATH, without(sent, "password")).json()["details"]
    made = api.post(PATH, sent)
    assert made.status_code == 201
    stored = tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{made.json()['user_id']}").json()
    assert stored["provider"] == "local"


def test_register_unknown_tenant_or_client_is_404(api: Api, tenant: TestTenant, other_tenant: TestTenant) -> None:
    nowhere = "00000000-0000-4000-8000-000000000000"
    assert api.post(PATH, body(tenant, tenant_id=nowhere)).status_code == 404
    unknown = api.post(PATH, body(tenant, client_id=nowhere))
    foreign = api.post(PATH, body(tenant, client_id=str(other_tenant.client_id)))
    assert (unknown.status_code, unknown.content) == (404, foreign.content)
    assert foreign.status_code == 404


def test_address_registers_once_per_tenant(api: Api, tenant: TestTenant, other_tenant: TestTenant) -> None:
    address = f"same-{secrets.token_hex(4)}@example.com"
    assert api.post(PATH, body(tenant, email=address)).status_code == 201
    clash = api.post(PATH, body(tenant, email=address.upper()))
    assert (clash.status_code, clash.json()["error"]) == (409, "Conflict")
    assert api.post(PATH, body(other_tenant, email=address)).status_code == 201


def test_concurrent_registrations_store_one_user(tenant: TestTenant) -> None:
    sent, address = body(tenant), Api().address

    def register(_: int) -> int:
        try:
            return int(Api(address=address).post(PATH, sent).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        statuses = sorted(pool.map(register, range(20)))
    assert statuses == [201] + [409] * 19


@pytest.mark.parametrize("name", ["active", "role", "roles", "mfa_methods", "password_hash", "id", "email_verified_at"])
def test_register_ignores_unknown_fields(api: Api, tenant: TestTenant, name: str) -> None:
    response = api.post(PATH, body(tenant, **{name: ["tenant-admin"]}))
    assert response.status_code == 201
    user_id = response.json()["user_id"]
    stored = tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{user_id}").json()
    assert (stored["active"], stored["mfa_methods"], stored["metadata"]) == (True, [], {})
    assert user_id != "tenant-admin"


def test_closed_client_requires_endusers_write(api: Api, tenant: TestTenant, other_tenant: TestTenant) -> None:
    closed = create_client(tenant_id=tenant.id, name="closed", self_registration=False)
    sent = body(tenant, client_id=str(closed.pk))
    person = tenant.register()
    assert api.post(PATH, sent).status_code == 401
    assert tenant.as_user(person).post(PATH, sent).status_code == 403
    assert other_tenant.api.post(PATH, sent).status_code == 403
    assert tenant.api.post(PATH, sent).status_code == 201


def test_register_applies_password_rules_of_tenant(new_tenant: Any) -> None:
    strict = new_tenant()
    strict.row.settings = {"password_min_length": 30}
    change_tenant(strict.id, settings=strict.row.settings)
    assert Api().post(PATH, body(strict)).status_code == 400
    assert Api().post(PATH, body(strict, password=PASSWORD * 2)).status_code == 201


def test_one_address_registers_at_most_120_a_minute(tenant: TestTenant) -> None:
    hasty = Api()
    statuses = [hasty.post(PATH, {**body(tenant), "client_id": str(tenant.id)}).status_code for _ in range(122)]
    assert statuses[0] == 404
    assert statuses[-1] == 429
    rejected = hasty.post(PATH, body(tenant))
    assert int(rejected.headers["Retry-After"]) >= 1
    assert Api().post(PATH, body(tenant)).status_code == 201
