"""A session makes no proof for itself: what was set up in it, or with its token, proves nothing in it.

The attacker holds an access token of the last minutes, of the highest level that the user's sessions have, and nothing else.
"""

import secrets
from collections.abc import Callable
from typing import Any

import pyotp
import pytest
from django.utils.timezone import now

from tests.mfa.people import code_to, new_user, some_phone
from tests.mfa.stepup.members import REALMS, STEP_UP, Member, member, realm_name
from tests.mfa.webauthn.passkeys import ADMIN_USERS, end_users_of, new_authenticator
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.admins.actions import create_admin_user

TICKET = "X-Enrollment-Ticket"
both_realms = pytest.mark.parametrize("realm", REALMS, ids=realm_name)


def stored(user: Member) -> Any:
    """Return what proves who the user is."""
    row = user.row()
    with user.entered():
        phones = [phone.pk for phone in row.phones.all()] if user.realm is END_USERS else []
        apps = sorted(str(secret.pk) for secret in row.totp_secrets.exclude(confirmed_at=None))
        codes = sorted(bytes(code.digest).hex() for code in row.backup_codes.filter(used_at=None))
        passkeys = sorted(str(passkey.pk) for passkey in row.passkeys.all())
    return row.email, row.password, row.mfa_methods, apps, codes, passkeys, phones


def code_of_response(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def two_factors(realm: Realm, tenant: TestTenant) -> Member:
    """Return a user with an app in a session that has just proven it: the token that is stolen."""
    user = member(realm, tenant).enrol()
    assert user.step_up().status_code == 200
    return user


def confirm_app(user: Member, **proof: Any) -> Any:
    """Begin and confirm an app in the session of the user."""
    begun = user.api.post(f"{user.totp}/beginSetup", user.named)
    assert begun.status_code == 200, begun.content
    secret = begun.json()["secret"]
    body = {**user.named, **proof, "secret": secret, "code": pyotp.TOTP(secret).at(now())}
    response = user.api.post(f"{user.totp}/confirmSetup", body)
    if response.status_code == 200:
        user.secret, user.backup_codes = secret, response.json()["backup_codes"]
    return response


def sign_in_again(user: Member, *, password: str = PASSWORD, **second: str) -> None:
    """Open a new session with password and second step, which the member goes on with."""
    if user.realm is ADMINS:
        done = Api().post("/uflow/admin/auth/login", {"username": user.username, "password": password})
    else:
        body = {"client_id": str(user.tenant.client_id), "email": user.email, "password": password}
        done = Api().post("/uflow/auth/enduser/login", body)
    assert done.status_code == 200, done.content
    if second:
        done = Api().post(f"{user.totp}/verifyLogin", {**user.named, **second, "mfa_token": done.json()["mfa_token"]})
        assert done.status_code == 200, done.content
    user.api.token, user.refresh_token = done.json()["access_token"], done.json()["refresh_token"]


# --- backup codes ----------------------------------------------------------------------------------------------------


@both_realms
def test_token_alone_creates_no_backup_codes(tenant: TestTenant, realm: Realm) -> None:
    user = two_factors(realm, tenant)
    before, path = stored(user), f"{user.totp}/regenerateBackupCodes"
    response = user.api.post(path, user.named)
    assert (response.status_code, response.json()["details"].keys()) == (400, {"current_password"})
    assert code_of_response(user.api.post(path, {**user.named, "current_password": PASSWORD})) == (
        400,
        "factor_required",
    )
    assert stored(user) == before
    response = user.api.post(path, {**user.named, "backup_code": user.backup_codes.pop()})
    assert (response.status_code, len(response.json()["backup_codes"])) == (200, 10)


@both_realms
def test_new_backup_codes_prove_nothing_in_their_session(tenant: TestTenant, realm: Realm) -> None:
    user = two_factors(realm, tenant)
    path = f"{user.totp}/regenerateBackupCodes"
    new = user.api.post(path, {**user.named, "code": user.code()}).json()["backup_codes"]
    before = stored(user)
    for response in (
        user.api.post("/authmgr/profile/password", {"new_password": "stolen horse 7", "backup_code": new[0]}),
        user.api.put("/authmgr/profile", {"email": f"{secrets.token_hex(6)}@example.com", "backup_code": new[0]}),
        user.api.post(f"{user.totp}/disable", {**user.named, "backup_code": new[0]}),
        user.api.post(path, {**user.named, "backup_code": new[0]}),
        user.api.post(STEP_UP, {"backup_code": new[0]}),
    ):
        assert code_of_response(response) == (400, "proof_too_new")
    assert stored(user) == before
    # After a proof from before they count, in this session too.
    assert user.step_up(code=user.code()).status_code == 200
    assert user.step_up(backup_code=new[0]).status_code == 200


@both_realms
def test_new_backup_codes_count_in_a_new_sign_in(tenant: TestTenant, realm: Realm) -> None:
    user = two_factors(realm, tenant)
    body = {**user.named, "code": user.code()}
    user.backup_codes = user.api.post(f"{user.totp}/regenerateBackupCodes", body).json()["backup_codes"]
    sign_in_again(user, backup_code=user.backup_codes.pop())
    assert user.step_up().status_code == 200


# --- the first factor ------------------------------------------------------------------------------------------------


@both_realms
def test_token_alone_enrolls_no_first_factor(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    assert confirm_app(user).json()["details"].keys() == {"current_password"}
    assert code_of_response(confirm_app(user, current_password="wrong")) == (400, "current_password_wrong")
    home = ADMIN_USERS if realm is ADMINS else end_users_of(tenant)
    options = user.api.post(f"{home.prefix}/beginRegistration", user.named).json()
    body = {**user.named, "credential": new_authenticator().create(options)}
    assert user.api.post(f"{home.prefix}/finishRegistration", body).status_code == 400
    assert stored(user)[2:] == ([], [], [], [], [])
    # The challenge was not used up by the request without a proof.
    assert user.api.post(f"{home.prefix}/finishRegistration", {**body, "current_password": PASSWORD}).status_code == 200


@both_realms
def test_first_factor_proves_nothing_in_its_session(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    before = user.session()
    assert confirm_app(user, current_password=PASSWORD).status_code == 200
    for proof in ({"code": user.code()}, {"backup_code": user.backup_codes[0]}):
        assert code_of_response(user.step_up(**proof)) == (400, "proof_too_new")
    session = user.session()
    assert (session.auth_time, session.amr, session.acr) == (before.auth_time, ["pwd"], "aal1")
    # The password is from before; it raises no level, but the factor counts from then on.
    assert user.step_up(password="wrong").status_code == 400
    assert user.step_up(password=PASSWORD).json()["acr"] == "aal1"
    assert user.step_up(code=user.code()).json()["acr"] == "aal2"
    assert code_of_response(user.step_up(password=PASSWORD)) == (400, "factor_required")


@both_realms
def test_ticket_of_the_sign_in_stands_for_the_password(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    if realm is ADMINS:
        done = Api().post("/uflow/admin/auth/login", {"username": user.username, "password": PASSWORD})
    else:
        body = {"client_id": str(tenant.client_id), "email": user.email, "password": PASSWORD}
        done = Api().post("/uflow/auth/enduser/login", body)
    user.api.token = done.json()["access_token"]
    begun = user.api.post(f"{user.totp}/beginSetup", user.named).json()
    body = {**user.named, "secret": begun["secret"], "code": pyotp.TOTP(begun["secret"]).at(now())}
    response = user.api.post(f"{user.totp}/confirmSetup", body, headers={TICKET: done.headers[TICKET]})
    assert response.status_code == 200, response.content
    codes = response.json()["backup_codes"]
    assert code_of_response(user.api.post(STEP_UP, {"backup_code": codes[0]})) == (400, "proof_too_new")


def test_token_enrolls_no_phone_of_its_own(tenant: TestTenant) -> None:
    for user in (member(END_USERS, tenant), two_factors(END_USERS, tenant)):
        before, number = stored(user), some_phone()
        named = {**user.named, "client_id": str(tenant.client_id), "phone_number": number}
        assert user.api.post("/webauthn/sms/beginSetup", named).status_code == 200
        body = {**named, "code": code_to(number)}
        assert user.api.post("/webauthn/sms/confirmSetup", body).json()["details"].keys() == {"current_password"}
        assert stored(user) == before
        honest = {"backup_code": user.backup_codes.pop()} if user.secret else {"current_password": PASSWORD}
        assert user.api.post("/webauthn/sms/confirmSetup", {**body, **honest}).status_code == 200


def test_phone_proves_nothing_in_the_session_that_added_it(tenant: TestTenant) -> None:
    user, number = two_factors(END_USERS, tenant), some_phone()
    named = {**user.named, "client_id": str(tenant.client_id), "phone_number": number}
    user.api.post("/webauthn/sms/beginSetup", named)
    body = {**named, "code": code_to(number), "backup_code": user.backup_codes.pop()}
    assert user.api.post("/webauthn/sms/confirmSetup", body).status_code == 200
    age_messages(user)
    del named["phone_number"]
    assert user.api.post("/webauthn/sms/requestCode", named).status_code == 200
    sent = code_to(number)
    assert code_of_response(user.step_up(sms_code=sent)) == (400, "proof_too_new")
    assert user.step_up(code=user.code()).status_code == 200
    assert user.step_up(sms_code=sent).status_code == 200


def age_messages(user: Member) -> None:
    """Move the messages of the user into the past: one is sent in a minute at most."""
    with user.entered():
        user.row().sms_messages.all().delete()


@both_realms
def test_passkey_proves_nothing_in_the_session_that_added_it(tenant: TestTenant, realm: Realm) -> None:
    user = two_factors(realm, tenant)
    prefix = "/webauthn/admin" if realm is ADMINS else "/webauthn/enduser"
    before, key = stored(user), new_authenticator()
    options = user.api.post(f"{prefix}/beginRegistration", user.named).json()
    body = {**user.named, "credential": key.create(options)}
    for proof in ({}, {"current_password": PASSWORD}, {"proof_token": "x" * 43}):
        assert user.api.post(f"{prefix}/finishRegistration", {**body, **proof}).status_code == 400
    assert stored(user) == before
    options = user.api.post(f"{prefix}/beginRegistration", user.named).json()
    body = {**user.named, "credential": key.create(options), "backup_code": user.backup_codes.pop()}
    assert user.api.post(f"{prefix}/finishRegistration", body).status_code == 200
    response = key.get(user.api.post(f"{STEP_UP}/options").json())
    assert code_of_response(user.step_up(response=response)) == (400, "proof_too_new")
    assert user.step_up(code=user.code()).status_code == 200
    assert user.step_up(response=key.get(user.api.post(f"{STEP_UP}/options").json())).status_code == 200


@both_realms
def test_proof_of_the_password_adds_no_factor(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    assert confirm_app(user, current_password=PASSWORD).status_code == 200
    by_password = user.step_up(password=PASSWORD).json()["proof_token"]
    assert user.step_up(code=user.code()).status_code == 200
    before, path = stored(user), f"{user.totp}/regenerateBackupCodes"
    assert code_of_response(user.api.post(path, {**user.named, "proof_token": by_password})) == (400, "factor_required")
    assert stored(user) == before
    assert user.api.post(path, {**user.named, "proof_token": user.proof_token()}).status_code == 200


# --- password, ticket, policy, account -------------------------------------------------------------------------------


@both_realms
def test_password_proves_nothing_in_the_session_that_changed_it(tenant: TestTenant, realm: Realm) -> None:
    user, new = member(realm, tenant), f"battery {secrets.token_hex(8)}"
    body = {"new_password": new, "current_password": PASSWORD}
    assert user.api.post("/authmgr/profile/password", body).status_code == 200
    before = stored(user)
    address = {"email": f"{secrets.token_hex(6)}@example.com", "current_password": new}
    for response in (
        user.api.put("/authmgr/profile", address),
        user.api.post(STEP_UP, {"password": new}),
        confirm_app(user, current_password=new),
    ):
        assert code_of_response(response) == (400, "proof_too_new")
    assert stored(user) == before
    sign_in_again(user, password=new)
    assert user.api.put("/authmgr/profile", address).status_code == 200


def test_ticket_that_adds_one_more_kind_makes_no_proof(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    body = {**ann.name, "mfa_token": ann.sign_in().json()["mfa_token"], "code": ann.code(1)}
    session = Api(token=Api().post("/webauthn/totp/verifyLogin", body).json()["access_token"])
    ann.enrol_phone()
    assert session.post("/webauthn/sms/requestCode", ann.named_with_client).status_code == 200
    sent = code_to(ann.phone)
    for response in (
        session.post(STEP_UP, {"sms_code": sent}),
        session.post("/authmgr/profile/password", {"new_password": "stolen horse 7", "sms_code": sent}),
    ):
        assert code_of_response(response) == (400, "proof_too_new")
    assert session.post(STEP_UP, {"backup_code": ann.backup_codes.pop()}).status_code == 200
    assert session.post(STEP_UP, {"sms_code": sent}).status_code == 200


def test_further_factor_completes_no_sign_in(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    waiting, phone = ann.sign_in().json()["mfa_token"], some_phone()
    headers = {TICKET: ann.ticket}
    named = {**ann.named_with_client, "phone_number": phone}
    assert Api().post("/webauthn/sms/beginSetup", named, headers=headers).status_code == 200
    body = {**named, "code": code_to(phone), "mfa_token": waiting}
    assert Api().post("/webauthn/sms/confirmSetup", body, headers=headers).status_code == 401
    assert ann.row().mfa_methods == ["totp", "backup_code"]
    body = {**ann.name, "mfa_token": waiting, "backup_code": ann.backup_codes.pop()}
    assert "access_token" in Api().post("/webauthn/totp/verifyLogin", body).json()


def test_bearer_mode_takes_no_token_alone(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"enrollment_mode": "bearer"}}).status_code == 200
    user = member(END_USERS, tenant)
    assert confirm_app(user).status_code == 400
    assert stored(user)[2] == []
    assert confirm_app(user, current_password=PASSWORD).status_code == 200
    assert user.step_up().json()["code"] == "proof_too_new"


def test_account_is_not_closed_by_a_factor_of_its_session(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"account_deletion": "on"}}).status_code == 200
    tenant.register()
    user = two_factors(END_USERS, tenant)
    body = {**user.named, "code": user.code()}
    new = user.api.post(f"{user.totp}/regenerateBackupCodes", body).json()["backup_codes"]
    response = user.api.post("/authmgr/profile/delete", {"backup_code": new[0]})
    assert code_of_response(response) == (400, "proof_too_new")
    assert user.row().active
    assert user.api.post("/authmgr/profile/delete", {"code": user.code()}).status_code == 200


def test_waiting_sign_in_is_completed_by_its_first_factor(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    ann = new_user(tenant)
    assert tenant.api.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    login = ann.sign_in()
    headers, named = {TICKET: login.headers[TICKET]}, ann.name
    begun = Api().post("/webauthn/totp/beginSetup", named, headers=headers).json()
    code = pyotp.TOTP(begun["secret"]).at(now())
    body = {**named, "secret": begun["secret"], "code": code, "mfa_token": login.json()["mfa_token"]}
    done = Api().post("/webauthn/totp/confirmSetup", body, headers=headers).json()
    # The factor is older than this session.
    response = Api(token=done["access_token"]).post(STEP_UP, {"backup_code": done["backup_codes"][0]})
    assert (response.status_code, response.json()["acr"]) == (200, "aal2")


def test_operators_token_takes_over_nothing(tenant: TestTenant) -> None:
    name = f"operator-{secrets.token_hex(5)}"
    operator, _ = create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    tokens = sign_in_admin(name)
    api = Api(token=tokens["access_token"])
    user = Member(ADMINS, tenant, str(operator.pk), operator.email, name, api, tokens["refresh_token"]).enrol()
    assert user.step_up().status_code == 200
    before = stored(user)
    for path in ("totp/regenerateBackupCodes", "totp/disable"):
        assert user.api.post(f"/webauthn/admin/{path}", user.named).status_code == 400
    assert confirm_app(user).status_code == 400
    assert stored(user) == before
    assert sign_in_admin(user.username)["mfa_required"] is True
