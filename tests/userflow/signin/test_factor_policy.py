"""The second factor that the policy in force wants: at sign-in, at every use of a token and at every refresh."""

from typing import Any

import pytest

from tests.mfa.people import new_user
from tests.openapi.operations import Operation, operations_with_token, with_unknown_ids
from tests.userflow.sessions.clients import basic, make_client
from tests.userflow.sessions.test_refresh import refresh
from tests.userflow.sessions.test_revoke_and_introspect import introspect
from tests.world import PASSWORD, Api, TestTenant, build_tenant, sign_in_admin

PROFILE = "/authmgr/profile"
# What a session below the required level is for: to enroll a factor, to verify its address first, and to sign out.
OPEN = {
    "post /uflow/user/email/verify",
    "post /webauthn/totp/beginSetup",
    "post /webauthn/totp/confirmSetup",
    "post /webauthn/admin/totp/beginSetup",
    "post /webauthn/admin/totp/confirmSetup",
    "post /webauthn/sms/beginSetup",
    "post /webauthn/sms/confirmSetup",
    "post /webauthn/admin/beginRegistration",
    "post /webauthn/admin/finishRegistration",
    "post /webauthn/enduser/beginRegistration",
    "post /webauthn/enduser/finishRegistration",
    "post /webauthn/finishRegistration",
    "get /webauthn/factors",
    "post /authmgr/logout",
    "post /authmgr/step-up",
    "post /authmgr/step-up/options",
    "post /webauthn/sms/requestCode",
}


def require_factor(operator: Api, tenant: TestTenant) -> None:
    changed = operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"settings": {"mfa_policy": "required"}})
    assert changed.status_code == 200, changed.content


def is_rejected(response: Any) -> bool:
    challenge = response.headers.get("WWW-Authenticate", "")
    rejected = response.status_code == 401 and 'error="insufficient_user_authentication"' in challenge
    return bool(rejected and 'acr_values="aal2"' in challenge)


@pytest.fixture(scope="module")
def strict(django_db_setup: None, django_db_blocker: Any, operator_name: str) -> tuple[str, str]:
    """Tokens of an end user and of an admin who signed in before their tenant wanted a factor."""
    with django_db_blocker.unblock():
        tenant = build_tenant("strict")
        person = tenant.as_user(tenant.register()).token
        require_factor(Api(token=sign_in_admin(operator_name)["access_token"]), tenant)
        return str(person), str(tenant.api.token)


@pytest.mark.parametrize("operation", list(operations_with_token()), ids=str)
def test_operation_rejects_sessions_below_policy(strict: tuple[str, str], operation: Operation) -> None:
    if operation.path == "/authmgr/logout":
        return  # it would end the sessions that the other operations are tried with
    for token in strict:
        body = None if operation.method == "get" else {"token": "unknown"}
        response = Api(token=token).call(operation.method, with_unknown_ids(operation.path), body)
        if str(operation) in OPEN:
            assert not is_rejected(response), response.content
        else:
            assert response.status_code == 401, (response.status_code, response.content)


def test_tenant_policy_applies_to_open_sessions(new_tenant: Any, operator: Api) -> None:
    tenant = new_tenant()
    client = make_client(tenant)
    pair, admin = tenant.sign_in(tenant.register()), sign_in_admin(tenant.admin.username)
    require_factor(operator, tenant)
    for one in (pair, admin):
        assert is_rejected(Api(token=one["access_token"]).get(PROFILE))
        assert refresh(one["refresh_token"]).json()["error"] == "invalid_grant"
        assert introspect(one["access_token"], headers=basic(client)).json() == {"active": False}
    assert Api(token=pair["access_token"]).get("/webauthn/factors").status_code == 200
    assert Api(token=pair["access_token"]).post("/authmgr/logout").status_code == 200


def test_session_below_policy_enrolls_and_signs_in_again(new_tenant: Any, operator: Api) -> None:
    tenant = new_tenant()
    ann = new_user(tenant)
    token = ann.token()
    require_factor(operator, tenant)
    ann.enrol_totp(token=token)
    assert is_rejected(Api(token=token).get(PROFILE))
    waiting = ann.sign_in().json()["mfa_token"]
    body = {**ann.name, "mfa_token": waiting, "backup_code": ann.backup_codes[0]}
    again = Api().post("/webauthn/totp/verifyLogin", body).json()
    assert Api(token=again["access_token"]).get(PROFILE).status_code == 200
    assert refresh(again["refresh_token"]).status_code == 200


def test_operators_without_factor_are_rejected(tenant: TestTenant, operator: Api, settings: Any) -> None:
    ann = new_user(tenant)
    settings.OPERATORS_REQUIRE_FACTOR = True
    reset = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost"}
    for response in (
        operator.get("/uflow/admin/tenants"),
        operator.call("DELETE", f"/uflow/admin/tenants/{tenant.id}", {"confirm": tenant.slug}),
        operator.get("/exsvc/api/v1/services", {"tenant_id": str(tenant.id)}),
        operator.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}),
        operator.post("/webauthn/factors/reset", reset),
        operator.post("/webauthn/enrollment-passes", {**reset, "delivery": "show"}),
    ):
        assert is_rejected(response), response.content
    # Nor would a factor help here: admins enroll for no one else.
    assert operator.post("/webauthn/totp/beginSetup", ann.name).status_code == 403


def test_operator_login_without_factor_returns_no_token(operator_name: str, settings: Any) -> None:
    settings.OPERATORS_REQUIRE_FACTOR = True
    body = {"username": operator_name, "password": PASSWORD}
    response = Api().post("/uflow/admin/auth/login", body)
    assert response.status_code == 200
    assert response.json()["mfa_required"] is True
    assert "access_token" not in response.json()
    ticket = {"X-Enrollment-Ticket": response.headers["X-Enrollment-Ticket"]}
    begun = Api().post("/webauthn/admin/totp/beginSetup", {"email": f"{operator_name}@example.com"}, headers=ticket)
    assert begun.status_code == 200


def test_operator_policy_does_not_apply_to_tenants(tenant: TestTenant, settings: Any) -> None:
    settings.OPERATORS_REQUIRE_FACTOR = True
    assert tenant.api.get(PROFILE).status_code == 200
    assert tenant.as_user(tenant.register()).get(PROFILE).status_code == 200
