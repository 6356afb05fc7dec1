"""The specification's examples of the MFA calls, without any header, from the address of the registration or sign-in."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tests.mfa.people import TestUser, code_to, new_user, old_user, some_phone
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.world import PASSWORD, Api, TestTenant


def freshly_registered(tenant: TestTenant) -> TestUser:
    return new_user(tenant)


def just_signed_in(tenant: TestTenant) -> TestUser:
    ann = old_user(tenant)
    ann.api = Api()
    ann.sign_in(ann.api)
    return ann


@pytest.fixture(params=[freshly_registered, just_signed_in], ids=lambda how: how.__name__)
def ann(tenant: TestTenant, request: Any) -> TestUser:
    made: Callable[[TestTenant], TestUser] = request.param
    return made(tenant)


def done(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.content
    return dict(response.json())


def test_totp_examples(ann: TestUser) -> None:
    begun = done(ann.api.post("/webauthn/totp/beginSetup", ann.named_with_client))
    assert set(begun) == {"account", "issuer", "manual_entry", "otp_auth_url", "qr_code", "secret"}
    ann.secret = begun["secret"]
    body = {**ann.named_with_client, "secret": ann.secret, "code": ann.code()}
    confirmed = done(ann.api.post("/webauthn/totp/confirmSetup", body))
    assert (set(confirmed), confirmed["success"]) == ({"backup_codes", "message", "success"}, True)
    verified = done(ann.api.post("/webauthn/totp/verify", {**ann.named_with_client, "code": ann.code(1)}))
    by_backup_code = {**ann.name, "backup_code": confirmed["backup_codes"][0]}
    again = done(ann.api.post("/webauthn/totp/verifyLogin", by_backup_code))
    for response, method in ((verified, "totp"), (again, "backup_code")):
        assert set(response) == {"email", "message", "method", "success", "tenant_id"}
        assert (response["method"], response["success"], response["email"]) == (method, True, ann.email)


def test_sms_examples(ann: TestUser) -> None:
    phone = {**ann.named_with_client, "phone_number": some_phone()}
    done(ann.api.post("/webauthn/sms/beginSetup", phone))
    confirmed = done(ann.api.post("/webauthn/sms/confirmSetup", {**phone, "code": code_to(phone["phone_number"])}))
    assert (set(confirmed), confirmed["success"]) == ({"message", "phone_display", "success"}, True)
    ann.minutes_pass(2)
    sent = done(ann.api.post("/webauthn/sms/requestCode", ann.named_with_client))
    assert set(sent) == {"attempts_remaining", "expires_in_minutes", "message", "phone_display", "success"}
    body = {**ann.named_with_client, "code": code_to(phone["phone_number"])}
    verified = done(ann.api.post("/webauthn/sms/verify", body))
    assert set(verified) == {"email", "message", "method", "success", "tenant_id"}
    assert (verified["method"], verified["success"]) == ("sms", True)


def test_passkey_examples(ann: TestUser) -> None:
    passkey = new_authenticator()
    options = done(ann.api.post("/webauthn/enduser/beginRegistration", ann.name))
    body = {**ann.name, "credential": passkey.create(options)}
    registered = done(ann.api.post("/webauthn/enduser/finishRegistration", body))
    assert (set(registered), registered["success"]) == ({"credential_id", "message", "success"}, True)
    options = done(ann.api.post("/webauthn/enduser/beginAuthentication", ann.name))
    finished = done(
        ann.api.post("/webauthn/enduser/finishAuthentication", {**ann.name, "response": passkey.get(options)})
    )
    assert (finished["success"], finished["user_id"]) == (True, str(ann.id))


def test_general_registration_example_issues_tokens(tenant: TestTenant) -> None:
    ann = freshly_registered(tenant)
    options = done(ann.api.post("/webauthn/enduser/beginRegistration", ann.name))
    body = {**ann.name, "credential": new_authenticator().create(options)}
    registered = done(ann.api.post("/webauthn/finishRegistration", body))
    assert {"access_token", "credential_id", "message", "refresh_token", "success"} <= set(registered)
    assert Api(token=registered["access_token"]).get("/authmgr/profile").json()["email"] == ann.email


def new_admin(tenant: TestTenant, api: Api) -> str:
    """Create an admin user from the address of `door`; return the e-mail address."""
    name = f"admin-{secrets.token_hex(5)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD}
    made = api.post("/uflow/admin/users", {**body, "first_name": "A", "last_name": "B"}, token=tenant.api.token)
    assert made.status_code == 201, made.content
    return body["email"]


@pytest.mark.parametrize("situation", ["created", "signed in"])
def test_admin_passkey_examples(settings: Any, tenant: TestTenant, situation: str) -> None:
    settings.EMBEDDED = True  # elsewhere admin users have no windows
    creator = Api()
    email = new_admin(tenant, creator)
    api = creator
    if situation == "signed in":
        api = Api()
        login = {"username": email, "password": PASSWORD}
        assert api.post("/uflow/admin/auth/login", login).status_code == 200
    passkey = new_authenticator()
    options = done(api.post("/webauthn/admin/beginRegistration", {"email": email}))
    body = {"email": email, "credential": passkey.create(options)}
    registered = done(api.post("/webauthn/admin/finishRegistration", body))
    assert (set(registered), registered["success"]) == ({"credential_id", "message", "success"}, True)
    options = done(api.post("/webauthn/admin/beginAuthentication", {"email": email}))
    body = {"email": email, "response": passkey.get(options)}
    assert done(api.post("/webauthn/admin/finishAuthentication", body))["success"] is True


def test_examples_reach_no_one_from_another_address(ann: TestUser) -> None:
    elsewhere = Api()
    assert elsewhere.post("/webauthn/totp/beginSetup", ann.name).status_code == 401
    phone = {**ann.named_with_client, "phone_number": some_phone()}
    assert elsewhere.post("/webauthn/sms/beginSetup", phone).status_code == 401
    assert elsewhere.post("/webauthn/enduser/beginRegistration", ann.name).status_code == 401
    assert ann.row().mfa_methods == []
