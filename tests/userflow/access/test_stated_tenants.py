"""A call applies to the tenant of its token; naming another tenant is rejected."""

import secrets
from uuid import uuid4

import pytest

from tests.world import PASSWORD, Api, TestTenant


@pytest.mark.parametrize("path", ["/authmgr/groups", "/uflow/admin/users/me", "/exsvc/api/v1/services"])
def test_query_with_foreign_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant, path: str) -> None:
    rejected = [tenant.api.get(path, {"tenant_id": str(tenant_id)}) for tenant_id in (other_tenant.id, uuid4())]
    assert [response.status_code for response in rejected] == [403, 403]
    assert tenant.api.get(path, {"tenant_id": str(tenant.id).upper()}).status_code == 200


@pytest.mark.parametrize("name", ["tenant%5Fid", "%74enant_id", "limit=1&tenant%5fid"])
def test_query_with_respelled_foreign_tenant_is_rejected(
    tenant: TestTenant, other_tenant: TestTenant, name: str
) -> None:
    path = "/uflow/admin/users/me"
    assert tenant.api.get(f"{path}?{name}={other_tenant.id}").status_code == 403
    assert tenant.api.get(f"{path}?{name}={tenant.id}").status_code == 200


def test_body_with_foreign_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    body = {"name": f"group-{secrets.token_hex(4)}", "tenant_id": str(other_tenant.id)}
    assert tenant.api.post("/authmgr/groups", body).status_code == 403
    assert tenant.api.post("/authmgr/groups", {**body, "tenant_id": str(tenant.id)}).status_code == 201


def test_end_user_with_foreign_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.as_user(tenant.register())
    assert person.get("/authmgr/profile", {"tenant_id": str(other_tenant.id)}).status_code == 403
    assert person.get("/authmgr/profile", {"tenant_id": str(tenant.id)}).status_code == 200


@pytest.mark.parametrize("path", ["/uflow/user/clients/register", "/webauthn/totp/verify"])
def test_optional_token_with_foreign_tenant_is_rejected(
    tenant: TestTenant, other_tenant: TestTenant, path: str
) -> None:
    asked = {each.id: tenant.api.post(f"{path}?tenant_id={each.id}", {}) for each in (tenant, other_tenant)}
    assert {name: response.status_code for name, response in asked.items()} == {tenant.id: 400, other_tenant.id: 403}


@pytest.mark.parametrize("form", ["{%s}", "urn:uuid:%s"])
def test_tenant_header_needs_the_36_character_form(operator: Api, tenant: TestTenant, form: str) -> None:
    response = operator.get("/authmgr/groups", headers={"X-Tenant-ID": form % tenant.id})
    assert response.status_code == 400
    assert "X-Tenant-ID" in response.json()["details"]


@pytest.mark.parametrize("path", ["/uflow/admin/users", "/authmgr/groups"])
def test_empty_tenant_header_is_rejected(operator: Api, path: str) -> None:
    assert operator.get(path, headers={"X-Tenant-ID": ""}).status_code == 400


def test_create_rejects_tenant_in_header_only(operator: Api, tenant: TestTenant) -> None:
    name = f"ambiguous-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "A", "last_name": "B"}
    response = operator.post("/uflow/admin/users", body, headers={"X-Tenant-ID": str(tenant.id)})
    assert response.status_code == 400
    assert "tenant_id" in response.json()["details"]
    assert operator.post("/uflow/admin/users", {**body, "tenant_id": str(tenant.id)}).status_code == 201
