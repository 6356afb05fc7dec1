"""The claims of a token and the present permissions of its owner."""

from __future__ import annotations

import time

from tests.copies import change_client
from tests.registry.conftest import as_client, as_end_user
from tests.world import Api, TestTenant
from userflow.accounts.models import Client

PATH = "/exsvc/debug/auth"
CLAIMS = {
    "iss",
    "aud",
    "sub",
    "jti",
    "iat",
    "nbf",
    "exp",
    "typ",
    "kind",
    "tenant_id",
    "client_id",
    "roles",
    "permissions",
}


def test_debug_auth_returns_claims_and_permissions(tenant: TestTenant) -> None:
    response = tenant.api.get(PATH)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    found = response.json()
    assert set(found) == {
        "claims",
        "header",
        "kind",
        "tenant_id",
        "client_id",
        "roles",
        "permissions",
        "expires_in",
    }
    assert set(found["claims"]) == CLAIMS | {"sid", "amr", "acr", "auth_time"}
    assert set(found["header"]) == {"alg", "kid", "typ"}
    assert found["header"]["alg"] == "ES256"
    assert (found["kind"], found["tenant_id"], found["client_id"]) == ("admin", str(tenant.id), None)
    assert found["roles"] == ["tenant-admin"]
    assert "services:credentials" in found["permissions"]
    assert 0 < found["expires_in"] <= found["claims"]["exp"] - time.time() + 1


def test_debug_auth_never_returns_the_token(tenant: TestTenant) -> None:
    assert tenant.api.token is not None
    content = tenant.api.get(PATH).content.decode()
    assert not any(part in content for part in tenant.api.token.split("."))


def test_debug_auth_answers_every_principal_kind(tenant: TestTenant, operator: Api) -> None:
    client, person = as_client(tenant, "services:read"), as_end_user(tenant, "services:read")
    kinds = [caller.get(PATH).json()["kind"] for caller in (operator, client, person)]
    assert kinds == ["operator", "client", "end_user"]
    assert operator.get(PATH).json()["tenant_id"] is None
    assert client.get(PATH).json()["permissions"] == ["services:read"]


def test_debug_auth_returns_current_permissions(tenant: TestTenant) -> None:
    caller = as_client(tenant, "services:read", "services:write")
    client = Client.objects.get(tenant_id=tenant.id, scopes=["services:read", "services:write"])
    change_client(client.pk, scopes=[])
    found = caller.get(PATH).json()
    assert found["permissions"] == []
    assert found["claims"]["permissions"] == ["services:read", "services:write"]


def test_debug_auth_requires_a_valid_token(api: Api) -> None:
    assert api.get(PATH).status_code == 401
    assert api.get(PATH, token="x.y.z").status_code == 401
