"""The server accepts every request example of the document."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pyotp
import pytest
from django.utils.timezone import now

from mfa.api_part import CREATED, PHONE, SMS_CODE, TOTP_SECRET
from openid.api_part import AUTHORIZATION_CODE, VERIFIER
from tests.mfa.people import a_step_lasts, code_to, new_user, some_phone
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.openapi.example_calls import OPERATIONS, ExampleCalls
from tests.openid.relying_party import Application
from tests.userflow.directory.entra import APPLICATION, DIRECTORY, SECRET, Entra
from tests.userflow.domains.dns_server import serve
from tests.userflow.mailbox import mails_to
from tests.userflow.sessions.aged import proof_token, strong
from tests.world import Api, TestTenant, assert_created, sign_in_admin
from userflow.api_part.example_values import (
    ACCESS_TOKEN,
    ADMIN_EMAIL,
    ASSERTED,
    CLIENT_ID,
    CLIENT_SECRET,
    CODE,
    MAIL_TOKEN,
    MFA_TOKEN,
    PROOF_TOKEN,
    REFRESH_TOKEN,
    VALUES,
    WEBHOOK,
)


def _mailed_token(address: str, about: str = "") -> str:
    return str(mails_to(address, about)[-1].body.partition("token=")[2].split()[0])


def end_users(calls: ExampleCalls) -> None:
    admin = calls.tenant.api
    email = f"ada-{secrets.token_hex(4)}@example.com"
    calls.stands_for(VALUES["email"], email)
    calls.is_user(calls.accept("registerEndUser")["user_id"], email)
    for operation in (
        "listEndUsersWithBody",
        "listEndUsersOfProject",
        "updateEndUser",
        "exportEndUsers",
        "importEndUsers",
    ):
        calls.accept(operation, admin)
    for operation in ("setEndUserStatus", "setEndUserActive"):
        calls.accept(operation, admin)
    user = Api(token=calls.accept("login")["access_token"])
    calls.accept("stepUp", user)
    calls.accept("updateProfile", user)
    calls.accept("changePassword", user)
    calls.accept("logout", user)
    calls.accept("requestPasswordReset")
    calls.stands_for(MAIL_TOKEN, _mailed_token(email, "password"))
    calls.accept("resetPassword")
    calls.accept("deactivateEndUserWithBody", admin)
    calls.accept("eraseEndUser", admin)
    calls.accept("updateTenantSettings", admin)
    leaving = calls.new_user()
    calls.accept("deleteAccount", calls.tenant.as_user(leaving))


def addresses(calls: ExampleCalls) -> None:
    user = calls.new_user()
    calls.accept("resendEmailVerification")
    calls.stands_for(MAIL_TOKEN, _mailed_token(user.email, "e-mail"))
    calls.accept("verifyEmail")
    new = f"new-{user.email}"
    path = f"/uflow/user/enduser/{calls.tenant.id}/{user.id}"
    assert calls.tenant.api.put(path, {"email": new}).status_code == 200
    calls.stands_for(MAIL_TOKEN, _mailed_token(user.email, "address is changing"))
    calls.accept("undoEmailChange")


def roles_and_groups(calls: ExampleCalls) -> None:
    admin = calls.tenant.api
    calls.new_user()
    calls.ids["role_id"] = calls.accept("createRole", admin)["id"]
    calls.ids["group_id"] = calls.accept("createGroup", admin)["id"]
    for operation in ("updateRole", "bindRole", "unbindRole", "updateGroup", "addGroupMembers", "removeGroupMembers"):
        calls.accept(operation, admin)
    calls.accept("checkPermissions", admin)
    calls.accept("createInvitation", admin)
    calls.stands_for(MAIL_TOKEN, _mailed_token("mina.sato@example.com"))
    calls.accept("acceptInvitation")


def registry(calls: ExampleCalls) -> None:
    admin = calls.tenant.api
    calls.ids["service_id"] = calls.accept("createService", admin)["id"]
    calls.accept("updateService", admin)
    calls.ids["credential_id"] = calls.accept("createServiceCredential", admin)["id"]
    calls.accept("updateServiceCredential", admin)


def clients_and_tokens(calls: ExampleCalls) -> None:
    user, admin = calls.new_user(), calls.tenant.api
    calls.stands_for(REFRESH_TOKEN, calls.tenant.sign_in(user)["refresh_token"])
    calls.accept("requestToken")

    client = calls.accept("createClient", admin)
    calls.ids["client_id"] = client["id"]
    calls.accept("updateClient", admin)
    calls.accept("patchClient", admin)
    calls.stands_for(CLIENT_ID, client["id"])
    calls.stands_for(CLIENT_SECRET, calls.accept("rotateClientSecret", admin)["client_secret"])
    calls.accept("pushAuthorizationRequest")

    # No page that asks for consent.
    path = f"/clientms/tenants/{calls.tenant.id}/clients/{client['id']}"
    assert admin.patch(path, {"first_party": True}).status_code == 200
    application = Application(calls.tenant, client, verifier=VERIFIER)
    application.sign_in(user)
    calls.stands_for(AUTHORIZATION_CODE, application.code(scope="openid profile"))
    tokens = calls.accept("requestOpenidToken")
    calls.stands_for(ACCESS_TOKEN, tokens["access_token"])
    calls.stands_for(REFRESH_TOKEN, tokens["refresh_token"])
    for operation in (
        "getUserinfoByPost",
        "introspectOpenidToken",
        "introspectToken",
        "revokeOpenidToken",
        "revokeToken",
    ):
        calls.accept(operation)

    grant = {"name": "Television", "grant_types": ["urn:ietf:params:oauth:grant-type:device_code"]}
    device = assert_created(admin.post(f"/clientms/tenants/{calls.tenant.id}/clients", grant))
    calls.stands_for(CLIENT_ID, device["id"])
    calls.accept("beginDeviceAuthorization")
    calls.stands_for(CLIENT_ID, str(calls.tenant.client_id))


def totp(calls: ExampleCalls) -> None:
    user = calls.new_user()
    caller = calls.tenant.as_user(user)
    secret = calls.accept("beginTotpSetup", caller)["secret"]
    calls.stands_for(TOTP_SECRET, secret)
    calls.stands_for(CODE, pyotp.TOTP(secret).at(now()))
    calls.accept("confirmTotpSetup", caller)
    for operation in ("verifyTotp", "verifyTotpLogin", "regenerateBackupCodes", "disableTotp", "removeFactor"):
        person = new_user(calls.tenant)
        token = person.token()
        person.enrol_totp(token=token)
        caller = Api(token=strong(token))
        calls.is_user(person.id, person.email)
        calls.ids["factor_id"] = _factor_of(caller)
        # The code of now is used up by the enrollment.
        calls.stands_for(CODE, person.code(1))
        if operation == "verifyTotpLogin":
            calls.stands_for(MFA_TOKEN, person.sign_in().json()["mfa_token"])
        calls.accept(operation, caller)


def _factor_of(caller: Api) -> str:
    response = caller.get("/webauthn/factors")
    assert response.status_code == 200, response.content
    return str(response.json()["factors"][0]["id"])


def sms(calls: ExampleCalls) -> None:
    person = new_user(calls.tenant)
    calls.is_user(person.id, person.email)
    caller, phone = Api(token=person.token()), some_phone()
    calls.stands_for(PHONE, phone)
    calls.accept("beginSmsSetup", caller)
    calls.stands_for(SMS_CODE, code_to(phone))
    calls.accept("confirmSmsSetup", caller)
    person.minutes_pass(2)
    calls.accept("requestSmsCode")
    calls.stands_for(SMS_CODE, code_to(phone))
    calls.accept("verifySmsCode")


def passkeys(calls: ExampleCalls) -> None:
    for finish in ("finishPasskeyRegistration", "finishPasskeySignUp"):
        caller, authenticator = calls.tenant.as_user(calls.new_user()), new_authenticator()
        calls.stands_for(CREATED, authenticator.create(calls.accept("beginPasskeyRegistration", caller)))
        calls.accept(finish, caller)
    calls.ids["factor_id"] = _factor_of(caller)
    calls.accept("renamePasskey", caller)
    calls.stands_for(ASSERTED, authenticator.get(calls.accept("beginPasskeyAuthentication")))
    calls.accept("finishPasskeyAuthentication")


def recovery(calls: ExampleCalls) -> None:
    person = new_user(calls.tenant).enrol_totp()
    calls.is_user(person.id, person.email)
    calls.accept("resetFactors", calls.tenant.api)
    calls.accept("issueEnrollmentPass", calls.tenant.api)


def admin_users(calls: ExampleCalls) -> None:
    admin = calls.tenant.api
    calls.is_admin(calls.accept("createAdminUser", admin)["id"])
    email = calls.real_of(ADMIN_EMAIL)
    calls.accept("updateAdminUser", admin)
    calls.accept("setAdminUserActive", admin)
    calls.accept("requestAdminPasswordReset")
    calls.stands_for(MAIL_TOKEN, _mailed_token(email, "password"))
    calls.accept("resetAdminPassword")

    caller, authenticator = Api(token=calls.accept("loginAdmin")["access_token"]), new_authenticator()
    secret = calls.accept("beginAdminTotpSetup", caller)["secret"]
    a_step_lasts()
    codes = [pyotp.TOTP(secret).at(now(), counter_offset=steps) for steps in (-1, 0, 1)]
    calls.stands_for(TOTP_SECRET, secret)
    calls.stands_for(CODE, codes[0])
    calls.accept("confirmAdminTotpSetup", caller)
    calls.stands_for(CODE, codes[1])
    calls.stands_for(MFA_TOKEN, sign_in_admin(email)["mfa_token"])
    caller = Api(token=calls.accept("verifyAdminTotpLogin")["access_token"])
    calls.stands_for(PROOF_TOKEN, proof_token(str(caller.token)))
    calls.accept("regenerateAdminBackupCodes", caller)
    calls.stands_for(PROOF_TOKEN, proof_token(str(caller.token)))
    calls.stands_for(CREATED, authenticator.create(calls.accept("beginAdminPasskeyRegistration", caller)))
    calls.accept("finishAdminPasskeyRegistration", caller)
    calls.stands_for(ASSERTED, authenticator.get(calls.accept("beginAdminPasskeyAuthentication")))
    calls.accept("finishAdminPasskeyAuthentication")
    calls.stands_for(CODE, codes[2])
    calls.accept("disableAdminTotp", caller)
    calls.accept("resetAdminFactors", admin)
    calls.accept("issueAdminEnrollmentPass", admin)


def directories(calls: ExampleCalls) -> None:
    admin, example = calls.tenant.api, OPERATIONS["createDirectory"][3]
    calls.stands_for(example["directory_tenant_id"], DIRECTORY)
    calls.stands_for(example["application_id"], APPLICATION)
    calls.stands_for(example["secret"], SECRET)
    calls.ids["config_id"] = calls.accept("createDirectory", admin)["id"]
    calls.accept("updateDirectory", admin)
    calls.accept("syncDirectory", admin)


def webhooks(calls: ExampleCalls) -> None:
    admin = calls.tenant.api
    calls.stands_for(WEBHOOK, "http://127.0.0.1:9/hooks")
    calls.ids["endpoint_id"] = calls.accept("createWebhookEndpoint", admin)["id"]
    for operation in ("updateWebhookEndpoint", "rotateWebhookSecret", "testWebhookEndpoint", "replayWebhookMessages"):
        calls.accept(operation, admin)


def tenants(calls: ExampleCalls, operator: Api) -> None:
    calls.accept("updateTenantBranding", calls.tenant.api)
    mark = secrets.token_hex(4)
    calls.stands_for("acme", f"acme-{mark}")
    calls.ids["tenant_id"] = calls.accept("createTenant", operator)["tenant_id"]
    calls.accept("updateTenant", operator)
    calls.accept("deleteTenant", operator)


def domains(calls: ExampleCalls, records: dict[str, list[str]]) -> None:
    admin = calls.tenant.api
    calls.stands_for(VALUES["domain"], f"login-{secrets.token_hex(4)}.example.com")
    added = calls.accept("addDomain", admin)
    calls.ids["domain_id"] = added["id"]
    records[added["record"]["name"]] = [added["record"]["value"]]
    calls.accept("verifyDomain", admin)
    calls.accept("updateDomain", admin)
    # The domain of passkeys is the platform's again.
    assert admin.patch(f"/uflow/federation/domains/{added['id']}", {"sign_in": False}).status_code == 200


@pytest.fixture
def entra() -> Iterator[Entra]:
    """A stand-in for the Entra ID of the examples."""
    standing_in = Entra()
    yield standing_in
    standing_in.end()


def test_request_examples_are_accepted(
    new_tenant: Callable[[], TestTenant], operator: Api, entra: Entra, settings: Any
) -> None:
    calls = ExampleCalls(new_tenant())
    settings.DIRECTORY_CLOUDS = {"global": (entra.base, entra.base)}
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    with serve() as name_server:
        settings.DNS_RESOLVERS = [name_server.address]
        domains(calls, name_server.records)
    for area in (end_users, addresses, roles_and_groups, registry, clients_and_tokens, totp, sms, passkeys, recovery):
        area(calls)
    for area in (admin_users, directories, webhooks):
        area(calls)
    tenants(calls, operator)
    assert set(OPERATIONS) - calls.accepted == set()
