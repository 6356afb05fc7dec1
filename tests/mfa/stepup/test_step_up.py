"""POST /authmgr/step-up: a session proves itself again, with the second factor of a user who has one."""

import time
from functools import partial
from typing import Any

import pytest

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tests.mfa.people import code_to, new_user
from tests.mfa.stepup.members import REALMS, STEP_UP, WRONG, Member, member, realm_name
from tests.mfa.webauthn.passkeys import ADMIN_USERS, end_users_of, new_authenticator
from tests.parallel import run_concurrently
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.realms import ADMINS, END_USERS, Realm

pytestmark = pytest.mark.parametrize("realm", REALMS, ids=realm_name)


def validated(api: Api) -> dict[str, Any]:
    """What the platform says of the door's token."""
    response = api.get("/authmgr/validate")
    assert response.status_code == 200, response.content
    return dict(response.json())


def test_step_up_by_password_renews_auth_time(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    before = user.api.token
    user.time_passes(20)
    response = user.step_up(password=PASSWORD)
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
    body = response.json()
    assert set(body) == {
        *("access_token", "token_type", "expires_in", "proof_token", "proof_expires_in", "acr", "amr", "auth_time")
    }
    assert (body["acr"], body["amr"], body["token_type"]) == ("aal1", ["pwd"], "Bearer")
    assert abs(body["auth_time"] - time.time()) < 60
    assert before != body["access_token"]
    assert Api(token=body["access_token"]).get("/authmgr/validate").status_code == 200


def test_step_up_by_code_raises_a_session_of_before_the_factor(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    assert user.session().acr == "aal1"
    response = user.step_up(code=user.code())
    assert (response.status_code, response.json()["acr"], response.json()["amr"]) == (200, "aal2", ["pwd", "otp"])
    assert (user.session().acr, user.session().amr) == ("aal2", ["pwd", "otp"])


def test_step_up_by_backup_code_uses_it_up(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    code = user.backup_codes[0]
    assert user.step_up(backup_code=code).status_code == 200
    assert user.step_up(backup_code=code).json()["message"] == "Invalid verification code"


def test_step_up_by_passkey(tenant: TestTenant, realm: Realm) -> None:
    user, home = member(realm, tenant), ADMIN_USERS if realm is ADMINS else end_users_of(tenant)
    assert user.api.post(f"{STEP_UP}/options").status_code == 400
    key = home.enrol(user.api, User(user.row().pk, user.email), new_authenticator())
    # It is newer than the session: the password comes first.
    assert user.step_up(password=PASSWORD).status_code == 200
    options = user.api.post(f"{STEP_UP}/options")
    assert (options.status_code, options.headers["Cache-Control"]) == (200, "no-store")
    response = key.get(options.json())
    answer = user.step_up(response=response)
    assert (answer.status_code, answer.json()["acr"], answer.json()["amr"]) == (200, "aal2", ["pwd", "pop"])
    assert user.step_up(response=response).status_code == 401


def test_step_up_by_sms(tenant: TestTenant, realm: Realm) -> None:
    if realm is ADMINS:
        assert member(realm, tenant).step_up(sms_code="123456").status_code == 400
        return
    ann = new_user(tenant)
    api = Api(token=ann.token())
    ann.enrol_phone(token=api.token)
    assert api.post(STEP_UP, {"password": PASSWORD}).status_code == 200
    assert api.post("/webauthn/sms/requestCode", ann.named_with_client).status_code == 200
    response = api.post(STEP_UP, {"sms_code": code_to(ann.phone)})
    assert (response.status_code, response.json()["amr"]) == (200, ["pwd", "sms"])


def test_step_up_by_password_rejects_user_with_factor(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    for password in (PASSWORD, WRONG):
        response = user.step_up(password=password)
        assert (response.status_code, response.json()["details"]) == (
            400,
            {"password": ["Send one of code, backup_code."]},
        )
    assert user.session().acr == "aal1"


def test_step_up_wants_exactly_one_proof(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    two = {"password": PASSWORD, "code": "123456"}
    for body in ({}, two, {"current_password": PASSWORD}, {"proof_token": "x"}, {"code": "12345"}):
        assert user.api.post(STEP_UP, body).status_code == 400
    assert user.api.post(STEP_UP, {"backup_code": "short"}).json()["details"].keys() == {"backup_code"}


@pytest.mark.parametrize("kind", ["password", "code", "backup_code"])
def test_step_up_counts_and_locks_wrong_tries(tenant: TestTenant, realm: Realm, kind: str) -> None:
    user = member(realm, tenant)
    if kind != "password":
        user.enrol()
    wrong = {"password": WRONG, "code": user.wrong_code() if user.secret else "", "backup_code": "0000-0000-0000-0000"}
    responses = [user.step_up(**{kind: wrong[kind]}).status_code for _ in range(6)]
    assert responses == [400] * 5 + [429]
    right = {"password": PASSWORD, "code": user.code() if user.secret else "", "backup_code": user.backup_codes[:1]}
    good = right[kind][0] if kind == "backup_code" else right[kind]
    assert user.step_up(**{kind: good}).status_code == 429
    user.wait_is_over()
    assert user.step_up(**{kind: good}).status_code == 200


def test_step_up_takes_no_factor_of_another_user(tenant: TestTenant, other_tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    for other in (member(realm, tenant).enrol(), member(realm, other_tenant).enrol()):
        assert user.step_up(backup_code=other.backup_codes[0]).status_code == 400
        assert user.step_up(code=other.code()).status_code == 400
    assert user.session().acr == "aal1"


def test_step_up_names_no_tenant_but_its_own(tenant: TestTenant, other_tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    body = {"password": PASSWORD, "tenant_id": str(other_tenant.id)}
    assert user.api.post(STEP_UP, body).status_code == 403
    assert user.api.post(STEP_UP, {**body, "tenant_id": str(tenant.id)}).status_code == 200


def test_step_up_is_for_users_only(tenant: TestTenant, realm: Realm) -> None:
    client = Api(token=own_token(make_client(tenant, scopes=["endusers:read"])))
    for path in (STEP_UP, f"{STEP_UP}/options"):
        assert client.post(path, {"password": PASSWORD}).status_code == 403
        assert Api().post(path, {"password": PASSWORD}).status_code == 401
        assert Api(token="nonsense").post(path, {"password": PASSWORD}).status_code == 401


def test_step_up_of_an_ended_session_is_rejected(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    assert user.api.post("/authmgr/logout").status_code < 300
    assert user.step_up(password=PASSWORD).status_code == 401


def test_raised_session_survives_refresh(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    user.time_passes(30)
    assert user.api.post(f"{user.totp}/regenerateBackupCodes", user.named).status_code == 401
    user.step_up()
    user.refresh()
    body = {**user.named, "backup_code": user.backup_codes.pop()}
    assert user.api.post(f"{user.totp}/regenerateBackupCodes", body).status_code == 200


def test_step_up_raises_its_own_session_only(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    before = user.session()
    twin = Member(realm, tenant, user.id, user.email, user.username, Api(), "")
    body = {"mfa_token": mfa_token(user), **user.named, "backup_code": user.backup_codes.pop()}
    twin.api.token = Api().post(f"{user.totp}/verifyLogin", body).json()["access_token"]
    twin.backup_codes = user.backup_codes
    assert twin.step_up().status_code == 200
    with user.entered():
        before.refresh_from_db()
    assert (before.acr, before.amr) == ("aal1", ["pwd"])


def mfa_token(user: Member) -> str:
    """The ticket of a login that waits for the second step."""
    if user.realm is ADMINS:
        path, body = "/uflow/admin/auth/login", {"username": user.username, "password": PASSWORD}
    else:
        path = "/uflow/auth/enduser/login"
        body = {"client_id": str(user.tenant.client_id), "email": user.email, "password": PASSWORD}
    return str(Api().post(path, body).json()["mfa_token"])


def test_step_up_is_audited(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    user.step_up()
    events = TenantEvent if realm is END_USERS else PlatformEvent
    with user.entered():
        details = events.objects.filter(action="session.stepped_up", actor_id=user.id).latest("id").details
    assert (details["proven"], details["amr"], details["acr"]) == (["otp"], ["pwd", "otp"], "aal2")


def test_step_up_of_twenty_at_once_uses_a_code_once(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    body = {"backup_code": user.backup_codes[0]}
    apis = [Api(token=user.api.token) for _ in range(20)]
    responses = run_concurrently([partial(api.post, STEP_UP, body) for api in apis])
    assert [response.status_code for response in responses].count(200) == 1
