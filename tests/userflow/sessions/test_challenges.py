"""What WWW-Authenticate says of a rejected request (RFC 6750 section 3)."""

from typing import Any

import pytest

from tests.registry.conftest import as_client
from tests.world import Api, TestTenant

MISSING = 'Bearer realm="api"'
INVALID = 'Bearer error="invalid_token"'


def challenge(response: Any) -> tuple[int, str | None]:
    return response.status_code, response.headers.get("WWW-Authenticate")


@pytest.mark.parametrize(
    "path", ["/authmgr/validate", "/uflow/admin/users/me", "/exsvc/debug/auth", "/webauthn/factors"]
)
def test_challenge_distinguishes_invalid_from_missing_token(api: Api, tenant: TestTenant, path: str) -> None:
    refresh = tenant.sign_in(tenant.register())["refresh_token"]
    assert challenge(api.get(path)) == (401, MISSING)
    assert challenge(api.get(path, token="x.y.z")) == (401, INVALID)
    assert challenge(api.get(path, token=refresh)) == (401, INVALID)


def test_token_of_an_ended_session_is_invalid(tenant: TestTenant) -> None:
    user = tenant.as_user(tenant.register())
    assert user.post("/authmgr/logout").status_code == 200
    assert challenge(user.get("/authmgr/profile")) == (401, INVALID)


def test_wrong_password_names_no_error_of_a_token(api: Api) -> None:
    body = {"username": "unknown-user", "password": "wrong"}
    assert challenge(api.post("/uflow/admin/auth/login", body)) == (401, MISSING)


def test_failed_client_authentication_challenges_with_basic(api: Api, tenant: TestTenant) -> None:
    form = {"grant_type": "client_credentials", "client_id": str(tenant.client_id), "client_secret": "wrong"}
    status, asked = challenge(api.post("/authmgr/token", form))
    assert (status, str(asked).split()[0]) == (401, "Basic")


def test_missing_permission_is_insufficient_scope(tenant: TestTenant) -> None:
    reader = as_client(tenant, "services:read")
    lacking = 'Bearer error="insufficient_scope", scope="services:delete"'
    assert challenge(reader.delete("/exsvc/api/v1/services/x")) == (403, lacking)
    missing = reader.get("/authmgr/validate/scope", {"scope": "services:delete"})
    assert challenge(missing) == (403, 'Bearer error="insufficient_scope"')


def test_forbidden_call_has_no_challenge(tenant: TestTenant, other_tenant: TestTenant) -> None:
    itself = tenant.api.delete(f"/uflow/admin/users/{tenant.admin.id}")
    foreign = tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)})
    assert challenge(itself) == challenge(foreign) == (403, None)
