"""Verifying codes and backup codes."""

import re
from typing import Any

import pyotp
import pytest

from mfa.totp.models import EndUserBackupCode, EndUserTotpSecret
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, a_step_lasts, new_user, wrong_code
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.realms import END_USERS


def verify(person: TestUser, **members: Any) -> Any:
    return Api().post("/webauthn/totp/verify", {**person.name, **members})


def wrong(person: TestUser) -> str:
    """A code of none of the steps around now."""
    return wrong_code(person.secret)


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant).enrol_totp()


def test_verify_returns_documented_response(ann: TestUser) -> None:
    response = verify(ann, code=ann.code(1))
    assert response.status_code == 200
    assert response.json() == {
        "email": ann.email,
        "message": "The code is right.",
        "method": "totp",
        "success": True,
        "tenant_id": str(ann.tenant.id),
    }


def test_step_is_accepted_once_enrollment_included(ann: TestUser) -> None:
    assert verify(ann, code=ann.spent).status_code == 400
    code = ann.code(1)
    assert verify(ann, code=code).status_code == 200
    assert verify(ann, code=code).status_code == 400


@pytest.mark.parametrize("steps", [-2, 2])
def test_verify_rejects_code_two_steps_away(ann: TestUser, steps: int) -> None:
    ann.minutes_pass(5)
    a_step_lasts()
    assert verify(ann, code=ann.code(steps)).status_code == 400


def test_backup_code_works_once_in_any_spelling(ann: TestUser) -> None:
    first, second = ann.backup_codes[:2]
    response = verify(ann, backup_code=first.lower().replace("-", ""))
    assert (response.status_code, response.json()["method"]) == (200, "backup_code")
    assert verify(ann, backup_code=first).status_code == 400
    assert verify(ann, backup_code=second).status_code == 200


def test_verify_prefers_code_to_backup_code(ann: TestUser) -> None:
    assert verify(ann, code=wrong(ann), backup_code=ann.backup_codes[0]).status_code == 400
    both = verify(ann, code=ann.code(1), backup_code=ann.backup_codes[0])
    assert both.json()["method"] == "totp"
    assert verify(ann, backup_code=ann.backup_codes[0]).status_code == 200


def test_last_backup_code_leaves_methods(ann: TestUser) -> None:
    for code in ann.backup_codes:
        assert verify(ann, backup_code=code).status_code == 200
    assert ann.row().mfa_methods == ["totp"]


def test_verify_rejects_backup_code_of_another_user(tenant: TestTenant, ann: TestUser) -> None:
    ben = new_user(tenant).enrol_totp()
    assert verify(ben, backup_code=ann.backup_codes[0]).status_code == 400
    assert verify(ann, backup_code=ann.backup_codes[0]).status_code == 200


BAD_CODES: list[Any] = [
    123456, ["123456"], " 123456", "123456 ", "12345", "1234567", "１２３４５６", "١٢٣٤٥٦", "12\u0000456", "123456\n", "", None,
    True, {"code": "123456"}, "1_3456", "+12345", "12345a",
]  # fmt: skip


@pytest.mark.parametrize("code", BAD_CODES)
@pytest.mark.parametrize("path", ["totp/verify", "totp/verifyLogin", "sms/verify"])
def test_malformed_code_is_400_and_not_counted(tenant: TestTenant, code: Any, path: str) -> None:
    other = shared(tenant)
    response = Api().post(f"/webauthn/{path}", {**other.named_with_client, "code": code})
    assert response.status_code == 400
    # A body with NUL is rejected as JSON.
    assert list(response.json().get("details", {"code": 0})) == ["code"]
    assert failures(other) == {}


_shared: dict[Any, TestUser] = {}


def shared(tenant: TestTenant) -> TestUser:
    """One user for all cases: none of them may change anything."""
    if tenant.id not in _shared:
        _shared[tenant.id] = new_user(tenant).enrol_totp()
    return _shared[tenant.id]


def failures(person: TestUser) -> dict[tuple[str, str], int]:
    """Counted tries by factor and kind of caller, without counters that were set to 0."""
    from userflow.credentials.attempts import subject_of

    with in_tenant(person.tenant.id):
        rows = END_USERS.attempts._default_manager.filter(subject=subject_of(END_USERS, person.id))
        return {(row.factor, row.caller): row.failures for row in rows if row.failures}


@pytest.mark.parametrize("body", [{}, {"backup_code": ""}, {"backup_code": "short"}, {"backup_code": 5}])
def test_missing_code_is_400_and_not_counted(ann: TestUser, body: dict[str, Any]) -> None:
    assert verify(ann, **body).status_code == 400
    assert failures(ann) == {}


def test_user_without_factor_gets_error_of_wrong_code(tenant: TestTenant, ann: TestUser) -> None:
    ben = new_user(tenant)
    with_factor, without = verify(ann, code=wrong(ann)), verify(ben, code="123456")
    assert (with_factor.status_code, with_factor.json()) == (without.status_code, without.json())


def test_five_wrong_codes_lock_for_one_minute_then_two(ann: TestUser) -> None:
    for _ in range(5):
        assert verify(ann, code=wrong(ann)).status_code == 400
    locked = verify(ann, code=ann.code(1))
    assert locked.status_code == 429
    assert 55 <= int(locked.headers["Retry-After"]) <= 61
    ann.locks_end()
    for _ in range(5):
        assert verify(ann, code=wrong(ann)).status_code == 400
    assert 115 <= int(verify(ann, code=ann.code(1)).headers["Retry-After"]) <= 121


def test_lock_applies_to_one_factor_of_one_user(tenant: TestTenant, other_tenant: TestTenant, ann: TestUser) -> None:
    ben, far = new_user(tenant).enrol_totp(), new_user(other_tenant).enrol_totp()
    for _ in range(5):
        verify(ann, code=wrong(ann))
    assert verify(ann, code=ann.code(1)).status_code == 429
    assert verify(ann, backup_code=ann.backup_codes[0]).status_code == 200
    assert verify(ben, code=ben.code(1)).status_code == 200
    assert verify(far, code=far.code(1)).status_code == 200


def test_other_callers_do_not_lock_own_session(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    token = ann.token()
    ann.enrol_totp(token=token)
    for _ in range(6):
        last = verify(ann, code=wrong(ann))
    assert last.status_code == 429
    own = Api().post("/webauthn/totp/verify", {**ann.name, "code": ann.code(1)}, token=token)
    assert own.status_code == 200


def test_right_code_clears_failed_attempts(ann: TestUser) -> None:
    for _ in range(4):
        verify(ann, code=wrong(ann))
    assert verify(ann, code=ann.code(1)).status_code == 200
    assert failures(ann) == {}


def test_verify_rejects_token_of_another_tenant(tenant: TestTenant, other_tenant: TestTenant, ann: TestUser) -> None:
    body = {**ann.name, "code": ann.code(1)}
    assert Api().post("/webauthn/totp/verify", body, token="nonsense").status_code == 401
    foreign = other_tenant.api.post("/webauthn/totp/verify", body)
    assert foreign.status_code == 403
    assert Api().post("/webauthn/totp/verify", body).status_code == 200


def test_same_address_in_two_tenants_is_two_users(tenant: TestTenant, other_tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    response = Api().post(
        "/webauthn/totp/verify", {"email": ann.email, "tenant_id": str(other_tenant.id), "code": ann.code(1)}
    )
    assert response.status_code == 404


def test_extra_fields_have_no_effect(ann: TestUser) -> None:
    extra = {"mfa_verified": True, "success": True, "active": True, "last_step": 0, "method": "sms"}
    assert verify(ann, code=wrong(ann), **extra).status_code == 400


def test_audit_trail_contains_no_secret(ann: TestUser) -> None:
    from identity_platform.audit.models import TenantEvent

    code = ann.code(1)
    verify(ann, code=code)
    verify(ann, backup_code=ann.backup_codes[0])
    with in_tenant(ann.tenant.id):
        trail = str(list(TenantEvent.objects.filter(target_id=str(ann.id)).values()))
        details = str(list(TenantEvent.objects.filter(target_id=str(ann.id)).values_list("details")))
    for secret in (ann.secret, *ann.backup_codes, ann.email):
        assert secret not in trail
    # Six digits: times and ids have them by chance.
    assert not re.search(rf"(?<![\w-]){code}(?![\w-])", details)
    assert "factor.enrolled" in trail
    assert "factor.verified" in trail


def test_verify_statement_counts(ann: TestUser) -> None:
    body = {**ann.name, "code": ann.code(1)}
    api = Api()
    with capture_statements() as made:
        assert api.post("/webauthn/totp/verify", body).status_code == 200
    assert made.counts == (0, 3)


def test_login_by_code_statement_counts(ann: TestUser) -> None:
    body = {**ann.name, "code": ann.code(1), "mfa_token": ann.sign_in().json()["mfa_token"]}
    with capture_statements() as seen:
        assert Api().post("/webauthn/totp/verifyLogin", body).status_code == 200
    # Tenant and client; the user and the attempt; then use the ticket and the step; then open the session.
    assert seen.counts == (0, 5)


def test_erasure_counts_deleted_factors(tenant: TestTenant, ann: TestUser) -> None:
    response = tenant.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(tenant.id), "user_id": str(ann.id)})
    assert response.status_code == 200
    deleted = response.json()["deleted"]
    assert (deleted["totp_secrets"], deleted["backup_codes"]) == (1, 10)
    named = {"role_bindings", "webauthn_credentials", "push_devices", "push_authentication_requests", "phones"}
    assert named <= set(deleted)
    with in_tenant(tenant.id):
        assert not EndUserTotpSecret.objects.filter(user_id=ann.id).exists()
        assert not EndUserBackupCode.objects.filter(user_id=ann.id).exists()


def test_independent_authenticator_is_accepted(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    url = ann.api.post("/webauthn/totp/beginSetup", ann.name).json()["otp_auth_url"]
    authenticator = pyotp.parse_uri(url)
    body = {**ann.name, "secret": authenticator.secret, "code": authenticator.now()}  # type: ignore[union-attr]
    assert ann.api.post("/webauthn/totp/confirmSetup", body).status_code == 200
