"""Enrolling an authenticator app."""

import base64

import pyotp
import pytest

from mfa.totp.models import EndUserTotpSecret
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user, old_user, wrong_code
from tests.mfa.totp.test_engine import decoded_by_opencv, decoded_by_zxing
from tests.userflow.sessions.aged import proof_token
from tests.world import Api, TestTenant
from userflow.accounts.models import EndUser


def test_documented_example_works_for_new_user(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    begun = ann.api.post("/webauthn/totp/beginSetup", ann.named_with_client)
    assert begun.status_code == 200
    assert set(begun.json()) == {"account", "issuer", "manual_entry", "otp_auth_url", "qr_code", "secret"}
    assert begun.headers["Cache-Control"] == "no-store"
    secret = begun.json()["secret"]
    body = {**ann.named_with_client, "code": pyotp.TOTP(secret).now(), "secret": secret}
    done = ann.api.post("/webauthn/totp/confirmSetup", body)
    assert done.status_code == 200
    assert set(done.json()) == {"backup_codes", "message", "success"}
    assert done.json()["success"] is True
    assert len(done.json()["backup_codes"]) == 10
    assert ann.row().mfa_methods == ["totp", "backup_code"]


def test_qr_code_contains_exactly_the_url(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    begun = ann.api.post("/webauthn/totp/beginSetup", ann.name).json()
    png = base64.b64decode(begun["qr_code"], validate=True)
    assert decoded_by_zxing(png) == decoded_by_opencv(png) == begun["otp_auth_url"]
    assert begun["account"] == ann.email
    assert begun["manual_entry"].replace(" ", "") == begun["secret"]


def test_begin_rejects_old_user_without_proof(tenant: TestTenant) -> None:
    ann = old_user(tenant)
    begun = ann.api.post("/webauthn/totp/beginSetup", ann.name)
    assert (begun.status_code, begun.json()["error"]) == (401, "Unauthorized")
    with in_tenant(tenant.id):
        assert not EndUserTotpSecret.objects.filter(user_id=ann.id).exists()


def test_confirm_rejects_secret_of_another_origin(tenant: TestTenant) -> None:
    ann, ben = new_user(tenant), new_user(tenant)
    own = pyotp.random_base32()
    ben_begun = ben.api.post("/webauthn/totp/beginSetup", ben.name).json()["secret"]
    for secret in (own, ben_begun):
        body = {**ann.name, "secret": secret, "code": pyotp.TOTP(secret).now()}
        assert ann.api.post("/webauthn/totp/confirmSetup", body).status_code == 400
    assert ann.row().mfa_methods == []


def test_repeated_begin_keeps_earlier_secrets(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    first = ann.api.post("/webauthn/totp/beginSetup", ann.name).json()["secret"]
    again = [ann.api.post("/webauthn/totp/beginSetup", ann.name) for _ in range(4)]
    assert [response.status_code for response in again] == [200, 200, 429, 429]
    assert int(again[-1].headers["Retry-After"]) <= 601
    body = {**ann.name, "secret": first, "code": pyotp.TOTP(first).now()}
    assert ann.api.post("/webauthn/totp/confirmSetup", body).status_code == 200


def test_pending_secret_expires_after_ten_minutes(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    secret = ann.api.post("/webauthn/totp/beginSetup", ann.name).json()["secret"]
    ann.minutes_pass(11)
    body = {**ann.name, "secret": secret, "code": pyotp.TOTP(secret).now()}
    response = ann.api.post("/webauthn/totp/confirmSetup", body)
    assert response.status_code == 400
    assert "ten minutes" in response.json()["message"]


def test_confirm_accepts_right_code_after_wrong_one(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    secret = ann.api.post("/webauthn/totp/beginSetup", ann.name).json()["secret"]
    right = pyotp.TOTP(secret).now()
    wrong = wrong_code(secret)
    body = {**ann.name, "secret": secret}
    refused = ann.api.post("/webauthn/totp/confirmSetup", {**body, "code": wrong})
    assert (refused.status_code, refused.json()["message"]) == (400, "Invalid verification code")
    assert ann.row().mfa_methods == []
    assert ann.api.post("/webauthn/totp/confirmSetup", {**body, "code": right}).status_code == 200


@pytest.mark.parametrize("path", ["beginSetup", "confirmSetup", "verify", "verifyLogin", "disable"])
def test_unknown_user_or_tenant_is_404(tenant: TestTenant, path: str) -> None:
    ann = new_user(tenant)
    rest = {"code": "123456", "secret": "A" * 32}
    missing = {**ann.name, **rest, "email": "unknown@example.com"}
    nowhere = {**ann.name, **rest, "tenant_id": "00000000-0000-4000-8000-000000000000"}
    assert Api().post(f"/webauthn/totp/{path}", missing).status_code == 404
    assert Api().post(f"/webauthn/totp/{path}", nowhere).status_code == 404


def test_database_has_no_plain_secret_or_backup_code(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    with in_tenant(tenant.id):
        row = EndUserTotpSecret.objects.get(user_id=ann.id)
        stored = [bytes(code.digest) for code in EndUser.objects.get(pk=ann.id).backup_codes.all()]
    assert base64.b32decode(ann.secret) not in bytes(row.secret_sealed)
    assert all(ann.backup_codes[0].replace("-", "").encode() not in digest for digest in stored)


def test_secret_copied_to_another_user_is_unusable(tenant: TestTenant) -> None:
    ann, ben = new_user(tenant).enrol_totp(), new_user(tenant).enrol_totp()
    with in_tenant(tenant.id):
        sealed = EndUserTotpSecret.objects.get(user_id=ann.id).secret_sealed
        EndUserTotpSecret.objects.filter(user_id=ben.id).update(secret_sealed=sealed)
    response = Api().post("/webauthn/totp/verify", {**ben.name, "code": ann.code(1)})
    assert response.status_code == 400


def test_disable_and_regenerate_require_fresh_token(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    token = ann.second_step_token()
    for path in ("disable", "regenerateBackupCodes"):
        for headers in ({}, {"X-Enrollment-Ticket": ann.ticket}):
            assert ann.api.post(f"/webauthn/totp/{path}", ann.name, headers=headers).status_code == 401
    proof = {"backup_code": ann.backup_codes.pop()}
    renewed = ann.api.post("/webauthn/totp/regenerateBackupCodes", {**ann.name, **proof}, token=token)
    assert renewed.status_code == 200
    proof = {"proof_token": proof_token(token)}
    assert not set(renewed.json()["backup_codes"]) & set(ann.backup_codes)
    old = Api().post("/webauthn/totp/verify", {**ann.name, "backup_code": ann.backup_codes[0]})
    assert old.status_code == 400
    body = {**ann.name, **proof}
    assert "details" in ann.api.post("/webauthn/totp/disable", ann.name, token=token).json()
    assert ann.api.post("/webauthn/totp/disable", body, token=token).status_code == 200
    assert ann.row().mfa_methods == []
    assert "not enrolled" in ann.api.post("/webauthn/totp/disable", body, token=token).json()["message"]


def test_replacement_requires_fresh_token_and_ends_old_secret(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    token = ann.token()
    ann.enrol_totp(token=token)
    old = TestUser(**vars(ann))
    assert ann.api.post("/webauthn/totp/beginSetup", ann.name).status_code == 401
    # A session from before the factor has not proven it.
    assert ann.api.post("/webauthn/totp/beginSetup", ann.name, token=token).status_code == 401
    ann.enrol_totp(token=ann.second_step_token())
    assert Api().post("/webauthn/totp/verify", {**ann.name, "code": old.code(1)}).status_code == 400
    assert Api().post("/webauthn/totp/verify", {**ann.name, "code": ann.code(1)}).status_code == 200


def test_backup_codes_go_with_the_app_while_a_phone_is_left(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp().enrol_phone()
    token = ann.second_step_token()
    assert ann.row().mfa_methods == ["totp", "sms", "backup_code"]
    body = {**ann.name, "backup_code": ann.backup_codes[1]}
    assert ann.api.post("/webauthn/totp/disable", body, token=token).status_code == 200
    assert (ann.row().mfa_methods, ann.sign_in().json()["methods"]) == (["sms"], ["sms"])
    old = Api().post("/webauthn/totp/verify", {**ann.name, "backup_code": ann.backup_codes[0]})
    assert old.status_code == 400
    with in_tenant(tenant.id):
        assert not EndUser.objects.get(pk=ann.id).backup_codes.exists()
