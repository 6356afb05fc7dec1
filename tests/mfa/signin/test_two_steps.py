"""Sign-in in two steps: password, then a factor."""

import base64
import json
from typing import Any

import pytest

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import change_client, create_client
from tests.mfa.people import TestUser, code_to, new_user
from tests.mfa.people import wrong_code as wrong_for
from tests.world import PASSWORD, Api, TestTenant


def claims(token: str) -> dict[str, Any]:
    return dict(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")))


def second_step(person: TestUser, mfa_token: str, **members: Any) -> Any:
    return Api().post("/webauthn/totp/verifyLogin", {**person.name, "mfa_token": mfa_token, **members})


def wrong_code(person: TestUser) -> str:
    return wrong_for(person.secret)


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant).enrol_totp()


def test_right_password_returns_ticket_and_no_token(ann: TestUser) -> None:
    response = ann.sign_in()
    assert set(response.json()) == {"mfa_required", "mfa_token", "methods", "expires_in"}
    assert response.json() | {"mfa_token": ""} == {
        "mfa_required": True,
        "mfa_token": "",
        "methods": ["totp", "backup_code"],
        "expires_in": 600,
    }
    assert "X-Enrollment-Ticket" not in response.headers
    assert response.headers["Cache-Control"] == "no-store"


def test_second_step_returns_tokens_of_login(ann: TestUser) -> None:
    done = second_step(ann, ann.sign_in().json()["mfa_token"], code=ann.code(1))
    assert done.status_code == 200
    body = done.json()
    assert body | {"access_token": "", "refresh_token": "", "message": ""} == {
        "email": ann.email,
        "tenant_id": str(ann.tenant.id),
        "method": "totp",
        "success": True,
        "message": "",
        "access_token": "",
        "refresh_token": "",
        "token_type": "Bearer",
        "expires_in": 3600,
    }
    said = claims(body["access_token"])
    assert (said["amr"], said["sub"], said["kind"]) == (["pwd", "otp"], str(ann.id), "end_user")
    assert abs(said["auth_time"] - said["iat"]) <= 2
    assert Api(token=body["access_token"]).get("/webauthn/factors").status_code == 200
    refreshed = Api().post("/authmgr/token", {"grant_type": "refresh_token", "refresh_token": body["refresh_token"]})
    assert claims(refreshed.json()["access_token"])["amr"] == ["pwd", "otp"]


def test_backup_code_completes_login(ann: TestUser) -> None:
    done = second_step(ann, ann.sign_in().json()["mfa_token"], backup_code=ann.backup_codes[3])
    assert (done.status_code, done.json()["method"]) == (200, "backup_code")
    assert done.json()["access_token"]


def test_sms_code_completes_login(tenant: TestTenant) -> None:
    ben = new_user(tenant).enrol_phone()
    ticket = ben.sign_in().json()["mfa_token"]
    assert Api().post("/webauthn/sms/requestCode", {**ben.named_with_client, "mfa_token": ticket}).status_code == 200
    body = {**ben.named_with_client, "mfa_token": ticket, "code": code_to(ben.phone)}
    done = Api().post("/webauthn/sms/verify", body)
    assert done.status_code == 200
    assert claims(done.json()["access_token"])["amr"] == ["pwd", "sms"]


def test_success_without_ticket_is_verification_only(ann: TestUser) -> None:
    response = Api().post("/webauthn/totp/verifyLogin", {**ann.name, "code": ann.code(1)})
    assert response.status_code == 200
    assert "access_token" not in response.json()


def test_ticket_works_once(ann: TestUser) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    assert second_step(ann, ticket, backup_code=ann.backup_codes[0]).status_code == 200
    assert second_step(ann, ticket, backup_code=ann.backup_codes[1]).status_code == 401
    # The code was not lost on the ticket that is gone.
    assert second_step(ann, ann.sign_in().json()["mfa_token"], backup_code=ann.backup_codes[1]).status_code == 200


def test_ticket_expires_after_ten_minutes(ann: TestUser) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    ann.minutes_pass(11)
    assert second_step(ann, ticket, backup_code=ann.backup_codes[0]).status_code == 401


def test_ticket_ends_after_five_wrong_codes_of_any_factor(ann: TestUser) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    for number in range(5):
        wrong = {"code": wrong_code(ann)} if number % 2 else {"backup_code": "0000-0000-0000-0000"}
        assert second_step(ann, ticket, **wrong).status_code == 400
    assert second_step(ann, ticket, code=ann.code(1)).status_code == 401
    assert second_step(ann, ann.sign_in().json()["mfa_token"], code=ann.code(1)).status_code == 200


def test_ticket_counts_sms_codes_never_requested(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_phone()
    named = {**ann.named_with_client, "mfa_token": ann.sign_in().json()["mfa_token"]}
    for _ in range(5):
        assert Api().post("/webauthn/sms/verify", {**named, "code": "000000"}).status_code == 400
    assert Api().post("/webauthn/sms/requestCode", named).status_code == 401


def test_ticket_ends_after_five_wrong_codes_of_a_message(tenant: TestTenant) -> None:
    ben = new_user(tenant).enrol_phone()
    named = {**ben.named_with_client, "mfa_token": ben.sign_in().json()["mfa_token"]}
    assert Api().post("/webauthn/sms/requestCode", named).status_code == 200
    right = code_to(ben.phone)
    wrong = f"{(int(right) + 1) % 1_000_000:06d}"
    for _ in range(5):
        assert Api().post("/webauthn/sms/verify", {**named, "code": wrong}).status_code == 400
    assert Api().post("/webauthn/sms/verify", {**named, "code": right}).status_code == 401


def test_locked_attempts_do_not_count_against_ticket(ann: TestUser) -> None:
    good = ann.sign_in().json()["mfa_token"]
    for _ in range(5):
        spoilt = ann.sign_in().json()["mfa_token"]
        for _ in range(5):
            assert second_step(ann, spoilt, code=wrong_code(ann)).status_code == 400
    for _ in range(6):
        assert second_step(ann, good, code=ann.code(1)).status_code == 429
    ann.locks_end()
    assert second_step(ann, good, code=ann.code(1)).status_code == 200


def test_ticket_of_another_user_or_kind_is_401(tenant: TestTenant, ann: TestUser) -> None:
    ben = new_user(tenant).enrol_totp()
    for ticket in (ben.sign_in().json()["mfa_token"], ann.ticket, "x" * 43, "é"):
        assert second_step(ann, ticket, code=ann.code(1)).status_code == 401
    assert second_step(ann, "", code=ann.code(1)).status_code == 400
    own = ann.sign_in().json()["mfa_token"]
    assert ann.api.post("/webauthn/sms/beginSetup", headers={"X-Enrollment-Ticket": own}).status_code == 400
    assert ann.api.get("/webauthn/factors", token=own).status_code == 401
    assert second_step(ann, own, code=ann.code(1)).status_code == 200


def test_ticket_of_another_tenant_is_401(other_tenant: TestTenant, ann: TestUser) -> None:
    far = new_user(other_tenant).enrol_totp()
    ticket = far.sign_in().json()["mfa_token"]
    assert second_step(ann, ticket, code=ann.code(1)).status_code == 401
    assert second_step(far, ticket, code=far.code(1)).status_code == 200


def test_user_deactivated_between_steps_is_rejected(ann: TestUser) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    path = f"/uflow/user/enduser/{ann.tenant.id}/{ann.id}/status"
    assert ann.tenant.api.put(path, {"active": False}).status_code == 200
    assert second_step(ann, ticket, code=ann.code(1)).status_code == 404


def test_client_deactivated_between_steps_opens_no_session(tenant: TestTenant, ann: TestUser) -> None:

    second = create_client(tenant_id=tenant.id, name="second", first_party=True)
    body = {"client_id": str(second.pk), "email": ann.email, "password": PASSWORD}
    ticket = Api().post("/uflow/auth/enduser/login", body).json()["mfa_token"]
    change_client(second.pk, active=False)
    assert second_step(ann, ticket, code=ann.code(1)).status_code == 401


def test_waiting_login_opens_no_window_and_issues_no_ticket(ann: TestUser) -> None:
    ann.minutes_pass(60)
    api = Api()
    response = ann.sign_in(api)
    assert "X-Enrollment-Ticket" not in response.headers
    body = {**ann.named_with_client, "phone_number": "+4915112345678"}
    assert api.post("/webauthn/sms/beginSetup", body).status_code == 401


def test_verified_code_opens_no_window(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    ann.minutes_pass(60)
    ann.api.post("/webauthn/totp/verify", {**ann.name, "code": ann.code(1)})
    body = {**ann.named_with_client, "phone_number": "+4915112345678"}
    assert ann.api.post("/webauthn/sms/beginSetup", body).status_code == 401


@pytest.fixture
def strict(new_tenant: Any, operator: Api) -> TestTenant:
    """A tenant that requires a factor of every user."""
    own: TestTenant = new_tenant()
    asked = {"settings": {"mfa_policy": "required"}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", asked).status_code == 200
    return own


def test_login_returns_ticket_where_factor_is_required(strict: TestTenant) -> None:
    ann = new_user(strict)
    ann.minutes_pass(60)
    response = ann.sign_in()
    assert response.json() | {"mfa_token": ""} == {
        "mfa_required": True,
        "methods": [],
        "enrollment_required": True,
        "mfa_token": "",
        "enrollment_ticket": response.headers["X-Enrollment-Ticket"],
        "expires_in": 600,
    }
    ticket = response.headers["X-Enrollment-Ticket"]
    ann.enrol_totp(headers={"X-Enrollment-Ticket": ticket})
    again = ann.sign_in().json()
    assert again["methods"] == ["totp", "backup_code"]
    assert second_step(ann, again["mfa_token"], code=ann.code(1)).json()["access_token"]


def test_required_factor_applies_to_tenant_admins(strict: TestTenant) -> None:
    body = {"username": strict.admin.username, "password": PASSWORD}
    response = Api().post("/uflow/admin/auth/login", body)
    assert (response.status_code, response.json()["mfa_required"]) == (200, True)
    assert "access_token" not in response.json()
    headers = {"X-Enrollment-Ticket": response.headers["X-Enrollment-Ticket"]}
    begun = Api().post("/webauthn/admin/totp/beginSetup", {"email": strict.admin.email}, headers=headers)
    assert begun.status_code == 200


def test_wrong_backup_code_is_not_recorded_as_done_by_the_user(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_totp()
    login = person.sign_in().json()
    body = {**person.name, "mfa_token": login["mfa_token"], "backup_code": "aaaa-aaaa-aaaa-aaaa"}
    assert Api().post("/webauthn/totp/verifyLogin", body).status_code == 400
    with in_tenant(tenant.id):
        event = TenantEvent.objects.filter(action="factor.refused", target_id=str(person.id)).latest("id")
    assert event.actor_id != str(person.id)
