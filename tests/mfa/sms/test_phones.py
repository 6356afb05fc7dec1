"""Enrolling a phone and verifying codes by SMS."""

import re
import secrets
from typing import Any

import pytest

from mfa.sms.models import Phone, SmsMessage
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, code_to, messages_to, new_user, old_user, some_phone
from tests.world import Api, TestTenant, capture_statements


def request(person: TestUser, api: Api | None = None, **how: Any) -> Any:
    return (api or person.api).post("/webauthn/sms/requestCode", person.named_with_client, **how)


def verify(person: TestUser, code: str, **how: Any) -> Any:
    return Api().post("/webauthn/sms/verify", {**person.named_with_client, "code": code}, **how)


def other_than(code: str, by: int = 1) -> str:
    return f"{(int(code) + by) % 1_000_000:06d}"


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant).enrol_phone()


def test_documented_flow_works_for_new_user(tenant: TestTenant) -> None:
    ann, phone = new_user(tenant), some_phone()
    body = {**ann.named_with_client, "phone_number": phone}
    begun = ann.api.post("/webauthn/sms/beginSetup", body)
    masked = f"***-***-{phone[-4:]}"
    assert begun.status_code == 200
    assert begun.json() | {"message": ""} == {
        "attempts_remaining": 5,
        "expires_in_minutes": 5,
        "message": "",
        "phone_display": masked,
        "success": True,
    }
    done = ann.api.post("/webauthn/sms/confirmSetup", {**body, "code": code_to(phone)})
    assert (done.status_code, set(done.json())) == (200, {"message", "phone_display", "success"})
    assert done.json()["phone_display"] == masked
    assert ann.row().mfa_methods == ["sms"]


def test_code_is_verified_once(ann: TestUser) -> None:
    sent = request(ann)
    assert (sent.status_code, sent.json()["attempts_remaining"]) == (200, 5)
    assert sent.json()["phone_display"] == f"***-***-{ann.phone[-4:]}"
    code = code_to(ann.phone)
    response = verify(ann, code)
    assert response.status_code == 200
    assert response.json() == {
        "email": ann.email,
        "message": "The code is right.",
        "method": "sms",
        "success": True,
        "tenant_id": str(ann.tenant.id),
    }
    assert verify(ann, code).status_code == 400


def test_begin_sends_nothing_for_old_user_without_proof(tenant: TestTenant) -> None:
    ann, phone = old_user(tenant), some_phone()
    body = {**ann.named_with_client, "phone_number": phone}
    assert ann.api.post("/webauthn/sms/beginSetup", body).status_code == 401
    assert ann.api.post("/webauthn/sms/confirmSetup", {**body, "code": "123456"}).status_code == 401
    assert messages_to(phone) == []
    with in_tenant(tenant.id):
        assert not SmsMessage.objects.filter(user_id=ann.id).exists()


def says(response: Any) -> tuple[int, str, str]:
    return response.status_code, response.json()["error"], response.json()["message"]


def test_wrong_codes_get_documented_errors(ann: TestUser) -> None:
    request(ann)
    code = code_to(ann.phone)
    for number in range(5):
        assert says(verify(ann, other_than(code, number + 1))) == (400, "Bad Request", "Invalid verification code")
    exceeded = (400, "Bad Request", "Maximum verification attempts exceeded")
    assert says(verify(ann, code)) == exceeded
    ann.minutes_pass(2)
    again = request(ann)
    assert (again.status_code, again.json()["attempts_remaining"]) == (200, 0)
    assert says(verify(ann, code_to(ann.phone))) == exceeded


def test_attempts_are_forgotten_after_fifteen_minutes(ann: TestUser) -> None:
    request(ann)
    for number in range(5):
        verify(ann, other_than(code_to(ann.phone), number + 1))
    ann.minutes_pass(16)
    ann.locks_end()
    assert request(ann).json()["attempts_remaining"] == 5
    assert verify(ann, code_to(ann.phone)).status_code == 200


def test_expired_code_gets_documented_error(ann: TestUser) -> None:
    request(ann)
    ann.minutes_pass(6)
    assert says(verify(ann, code_to(ann.phone))) == (401, "Unauthorized", "Verification code has expired")


def test_new_code_invalidates_old_one(ann: TestUser) -> None:
    request(ann)
    old = code_to(ann.phone)
    ann.minutes_pass(2)
    request(ann)
    new = code_to(ann.phone)
    if old != new:
        assert verify(ann, old).status_code == 400
    assert verify(ann, new).status_code == 200


def test_unknown_caller_keeps_code_of_known_caller(ann: TestUser) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    assert ann.api.post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": ticket}).status_code == 200
    sent = messages_to(ann.phone)
    ann.minutes_pass(2)
    for api in (ann.api, Api()):
        assert request(ann, api).json() == {
            "attempts_remaining": 5,
            "expires_in_minutes": 5,
            "message": "A code is on its way.",
            "phone_display": f"***-***-{ann.phone[-4:]}",
            "success": True,
        }
    assert messages_to(ann.phone) == sent
    assert (
        Api()
        .post("/webauthn/sms/verify", {**ann.named_with_client, "code": code_to(ann.phone), "mfa_token": ticket})
        .json()["access_token"]
    )


def test_caller_at_another_address_keeps_code(ann: TestUser) -> None:
    request(ann)
    sent = messages_to(ann.phone)
    ann.minutes_pass(2)
    assert request(ann, Api()).status_code == 200
    assert messages_to(ann.phone) == sent
    assert verify(ann, code_to(ann.phone)).status_code == 200


def test_request_of_unknown_caller_resets_no_attempts(ann: TestUser) -> None:
    request(ann)
    for number in range(3):
        verify(ann, other_than(code_to(ann.phone), number + 1))
    ann.minutes_pass(2)
    assert request(ann, Api()).json()["attempts_remaining"] == 2


def test_known_caller_replaces_code_of_unknown_caller(ann: TestUser) -> None:
    request(ann, Api())
    before = len(messages_to(ann.phone))
    ticket = ann.sign_in().json()["mfa_token"]
    assert ann.api.post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": ticket}).status_code == 200
    assert len(messages_to(ann.phone)) == before + 1
    assert verify(ann, code_to(ann.phone)).status_code == 200


def test_expired_code_can_be_replaced(ann: TestUser) -> None:
    request(ann)
    ann.minutes_pass(6)
    before = len(messages_to(ann.phone))
    assert request(ann, Api()).status_code == 200
    assert len(messages_to(ann.phone)) == before + 1


def test_caller_at_same_address_keeps_setup_code(tenant: TestTenant) -> None:
    ann, phone = new_user(tenant), some_phone()
    body, ticket = {**ann.named_with_client, "phone_number": phone}, {"X-Enrollment-Ticket": ann.ticket}
    assert ann.api.post("/webauthn/sms/beginSetup", body, headers=ticket).status_code == 200
    code = code_to(phone)
    ann.minutes_pass(2)
    assert ann.api.post("/webauthn/sms/beginSetup", body).status_code == 200
    assert len(messages_to(phone)) == 1
    for number in range(5):
        assert (
            ann.api.post("/webauthn/sms/confirmSetup", {**body, "code": other_than(code, number + 1)}).status_code
            == 400
        )
    confirmed = ann.api.post("/webauthn/sms/confirmSetup", {**body, "code": code}, headers=ticket)
    assert confirmed.status_code == 200, confirmed.content


def test_unknown_callers_leave_attempts_of_user(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    token = ann.token()
    ann.enrol_phone(token=token)
    request(ann)
    code = code_to(ann.phone)
    for number in range(6):
        verify(ann, other_than(code, number + 1))
    assert verify(ann, code).status_code == 400
    assert verify(ann, code, token=token).status_code == 200


def test_phone_belongs_to_one_user_of_tenant(tenant: TestTenant, other_tenant: TestTenant, ann: TestUser) -> None:
    ben, far = new_user(tenant), new_user(other_tenant)
    body = {**ben.named_with_client, "phone_number": ann.phone}
    assert ben.api.post("/webauthn/sms/beginSetup", body).status_code == 200
    code = code_to(ann.phone)
    assert ben.api.post("/webauthn/sms/confirmSetup", {**body, "code": other_than(code)}).json()["message"] == (
        "Invalid verification code"
    )
    taken = ben.api.post("/webauthn/sms/confirmSetup", {**body, "code": code})
    assert says(taken) == (400, "Bad Request", "Phone number already registered")
    assert ben.row().mfa_methods == []
    body = {**far.named_with_client, "phone_number": ann.phone}
    assert far.api.post("/webauthn/sms/beginSetup", body).status_code == 200
    done = far.api.post("/webauthn/sms/confirmSetup", {**body, "code": code_to(ann.phone)})
    assert done.status_code == 200


def test_replacing_by_a_taken_number_consumes_no_proof(tenant: TestTenant, ann: TestUser) -> None:
    ben = new_user(tenant).enrol_totp()
    login = {**ben.name, "mfa_token": ben.sign_in().json()["mfa_token"], "backup_code": ben.backup_codes.pop()}
    token = Api().post("/webauthn/totp/verifyLogin", login).json()["access_token"]
    ben.enrol_phone(token=token)
    body = {**ben.named_with_client, "phone_number": ann.phone}
    assert ben.api.post("/webauthn/sms/beginSetup", body, token=token).status_code == 200
    body |= {"code": code_to(ann.phone), "backup_code": ben.backup_codes[-1]}
    assert says(ben.api.post("/webauthn/sms/confirmSetup", body, token=token))[2] == "Phone number already registered"
    ben.raised(token)


def test_unknown_user_and_user_without_phone_look_alike(tenant: TestTenant) -> None:
    ben = new_user(tenant)
    missing = {**ben.named_with_client, "email": f"unknown-{secrets.token_hex(4)}@example.com"}
    for path, more in (("requestCode", {}), ("verify", {"code": "123456"})):
        known = Api().post(f"/webauthn/sms/{path}", {**ben.named_with_client, **more})
        unknown = Api().post(f"/webauthn/sms/{path}", {**missing, **more})
        assert says(known) == says(unknown)
        assert known.status_code == 400
    statuses = [[], []]
    for _ in range(6):
        for found, body in zip(statuses, (ben.named_with_client, missing), strict=True):
            found.append(Api().post("/webauthn/sms/verify", {**body, "code": "123456"}).status_code)
    assert statuses[0] == statuses[1] == [400, 400, 400, 400, 429, 429]


REFUSED_NUMBERS = [
    "015112345678", "+49 151 12345678", "+49-151-12345678", "+4915112345678 ", "+٤٩١٥١١٢٣٤٥٦٧٨", "+999123456789", "+49",
    "+4930901820", "+442079460000", "+49900123456", "+4915112345678;ext=1", "tel:+4915112345678", "", "+1234567890123456",
    "+49015112345678", "+4407400123456", "+112015550123",
]  # fmt: skip


@pytest.mark.parametrize("number", REFUSED_NUMBERS)
def test_begin_rejects_other_than_e164_mobile_numbers(tenant: TestTenant, number: str) -> None:
    ann = new_user(tenant)
    response = ann.api.post("/webauthn/sms/beginSetup", {**ann.named_with_client, "phone_number": number})
    assert (response.status_code, list(response.json()["details"])) == (400, ["phone_number"])
    with in_tenant(tenant.id):
        assert not SmsMessage.objects.filter(user_id=ann.id).exists()


@pytest.mark.parametrize("number", ["+4915112345678", "+447400123456", "+33612345678", "+12015550123", "+819012345678"])
def test_begin_accepts_mobile_numbers_of_many_countries(tenant: TestTenant, number: str) -> None:
    ann = new_user(tenant)
    response = ann.api.post("/webauthn/sms/beginSetup", {**ann.named_with_client, "phone_number": number})
    assert response.status_code == 200, response.content


def test_begin_rejects_country_not_on_tenant_list(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    settings = {"settings": {"sms_countries": ["FR"]}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", settings).status_code == 200
    ann = new_user(own)
    body = {**ann.named_with_client, "phone_number": some_phone()}
    assert ann.api.post("/webauthn/sms/beginSetup", body).status_code == 400
    assert ann.api.post("/webauthn/sms/beginSetup", {**body, "phone_number": "+33612345678"}).status_code == 200


def test_request_rejects_country_removed_from_list(new_tenant: Any, operator: Api) -> None:
    ann = new_user(new_tenant()).enrol_phone()
    for countries, expected in ((["FR"], 400), (["DE"], 200)):
        asked = {"settings": {"sms_countries": countries}}
        assert operator.patch(f"/uflow/admin/tenants/{ann.tenant.id}", asked).status_code == 200
        assert request(ann).status_code == expected


def test_client_must_belong_to_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    ann = new_user(tenant)
    body = {**ann.name, "client_id": str(other_tenant.client_id), "phone_number": some_phone()}
    response = ann.api.post("/webauthn/sms/beginSetup", body)
    assert (response.status_code, list(response.json()["details"])) == (400, ["client_id"])


def test_number_is_sealed_and_copied_row_is_unusable(tenant: TestTenant, ann: TestUser) -> None:
    ben = new_user(tenant).enrol_phone()
    with in_tenant(tenant.id):
        row = Phone.objects.get(user_id=ann.id)
        assert ann.phone.encode() not in bytes(row.number_sealed) + bytes(row.number_digest)
        Phone.objects.filter(user_id=ben.id).update(number_sealed=row.number_sealed)
    before = len(messages_to(ann.phone))
    assert request(ben).status_code == 400
    assert len(messages_to(ann.phone)) == before


def test_audit_trail_contains_no_number_or_code(ann: TestUser) -> None:
    from identity_platform.audit.models import TenantEvent

    request(ann)
    verify(ann, code_to(ann.phone))
    with in_tenant(ann.tenant.id):
        trail = str(list(TenantEvent.objects.filter(target_id=str(ann.id)).values()))
        details = str(list(TenantEvent.objects.filter(target_id=str(ann.id)).values_list("details")))
    assert ann.phone not in trail
    # Six digits: times and ids have them by chance.
    assert not re.search(rf"(?<![\w-]){code_to(ann.phone)}(?![\w-])", details)
    assert "factor.verified" in trail


def test_verify_statement_counts(ann: TestUser) -> None:
    request(ann)
    body = {**ann.named_with_client, "code": code_to(ann.phone)}
    api = Api()
    with capture_statements() as made:
        assert api.post("/webauthn/sms/verify", body).status_code == 200
    assert made.counts == (0, 13)
