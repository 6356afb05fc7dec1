"""POST /authmgr/profile/delete: end users delete their own account where the tenant allows it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, code_to, new_user, wrong_code
from tests.mfa.webauthn.authenticator import Authenticator
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, build_tenant
from userflow.accounts.models import EndUser

PATH = "/authmgr/profile/delete"
BY_PASSWORD = {"current_password": PASSWORD}


@pytest.fixture(scope="module")
def open_tenant(django_db_setup: None, django_db_blocker: Any) -> Iterator[TestTenant]:
    """A tenant whose users can delete their accounts; one user stays active throughout."""
    with django_db_blocker.unblock():
        made = build_tenant("open")
        allow(made)
        made.register()
        yield made


def allow(tenant: TestTenant) -> None:
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"account_deletion": "on"}}).status_code == 200


def is_there(tenant: TestTenant, user_id: Any) -> bool:
    with in_tenant(tenant.id):
        return EndUser.objects.filter(pk=user_id).exists()


def two_steps(person: TestUser) -> Api:
    """The door after password and authenticator."""
    body = {**person.name, "mfa_token": person.sign_in().json()["mfa_token"], "code": person.code(1)}
    return Api(token=Api().post("/webauthn/totp/verifyLogin", body).json()["access_token"])


def test_delete_account_erases_the_user(open_tenant: TestTenant) -> None:
    person = open_tenant.register()
    signed_in = open_tenant.sign_in(person)
    api = Api(token=signed_in["access_token"])
    response = api.post(PATH, BY_PASSWORD)
    assert (response.status_code, response.json()["user_id"]) == (200, str(person.id))
    assert not is_there(open_tenant, person.id)
    assert api.get("/authmgr/validate").status_code == 401
    body = {"grant_type": "refresh_token", "refresh_token": signed_in["refresh_token"]}
    assert Api().post("/authmgr/token", body).json()["error"] == "invalid_grant"
    with in_tenant(open_tenant.id):
        event = TenantEvent.objects.get(action="end_user.erased", target_id=person.id)
        assert (event.actor_kind, event.actor_id) == ("end_user", str(person.id))


def test_last_user_who_stays_keeps_the_proof(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    allow(tenant)
    api = Api(token=tenant.sign_in(tenant.register())["access_token"])
    token = api.post("/authmgr/step-up", {"password": PASSWORD}).json()["proof_token"]
    assert api.post(PATH, {"proof_token": token}).status_code == 400
    tenant.register()
    assert api.post(PATH, {"proof_token": token}).status_code == 200


def test_delete_account_is_off_by_default(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.register()
    person = tenant.register()
    response = tenant.as_user(person).post(PATH, BY_PASSWORD)
    assert (response.status_code, "administrator" in response.json()["message"]) == (403, True)
    assert is_there(tenant, person.id)


def test_delete_account_is_for_end_users_only(open_tenant: TestTenant, operator: Api) -> None:
    client = Api(token=own_token(make_client(open_tenant, scopes=["endusers:delete"])))
    for api in (open_tenant.api, operator, client):
        assert api.post(PATH, BY_PASSWORD).status_code == 403
    assert Api().post(PATH, BY_PASSWORD).status_code == 401


@pytest.mark.parametrize(
    ("proof", "status"),
    [
        ({}, 400),
        ({"current_password": "wrong horse 9 battery"}, 400),
        ({"code": "12345"}, 400),
        ({"code": "123456"}, 400),
    ],
)
def test_delete_account_needs_a_proof(open_tenant: TestTenant, proof: dict[str, str], status: int) -> None:
    person = open_tenant.register()
    assert open_tenant.as_user(person).post(PATH, proof).status_code == status
    assert is_there(open_tenant, person.id)


def test_delete_account_counts_wrong_passwords(open_tenant: TestTenant) -> None:
    api = open_tenant.as_user(open_tenant.register())
    responses = [api.post(PATH, {"current_password": "wrong horse 9 battery"}).status_code for _ in range(6)]
    assert responses == [400] * 5 + [429]
    assert api.post(PATH, BY_PASSWORD).status_code == 429


def test_delete_account_needs_a_recent_sign_in(open_tenant: TestTenant) -> None:
    person = open_tenant.register()
    old = Api(token=aged(open_tenant.sign_in(person)["access_token"], 16))
    response = old.post(PATH, BY_PASSWORD)
    assert (response.status_code, "15 minutes" in response.json()["message"]) == (401, True)
    assert is_there(open_tenant, person.id)


def test_delete_account_needs_the_factor_in_the_session(open_tenant: TestTenant) -> None:
    person = new_user(open_tenant)
    before = Api(token=person.token())
    person.enrol_totp()
    assert before.post(PATH, BY_PASSWORD).status_code == 401
    assert before.post(PATH, {"backup_code": person.backup_codes[0]}).status_code == 401
    assert is_there(open_tenant, person.id)
    api = two_steps(person)
    assert api.post(PATH, BY_PASSWORD).json()["code"] == "factor_required"
    assert api.post(PATH, {"backup_code": person.backup_codes[-1]}).status_code == 200


def test_delete_account_takes_codes_of_the_user(open_tenant: TestTenant) -> None:
    ann, ben = new_user(open_tenant).enrol_totp(), new_user(open_tenant).enrol_totp()
    api = two_steps(ann)
    assert api.post(PATH, {"code": wrong_code(ann.secret)}).status_code == 400
    assert api.post(PATH, {"backup_code": ben.backup_codes[0]}).status_code == 400
    assert api.post(PATH, {"backup_code": ann.backup_codes[0]}).status_code == 200
    assert (is_there(open_tenant, ann.id), is_there(open_tenant, ben.id)) == (False, True)


def test_delete_account_takes_a_code_by_sms(open_tenant: TestTenant) -> None:
    ann = new_user(open_tenant).enrol_phone()
    Api().post("/webauthn/sms/requestCode", ann.named_with_client)
    body = {**ann.named_with_client, "mfa_token": ann.sign_in().json()["mfa_token"], "code": code_to(ann.phone)}
    api = Api(token=Api().post("/webauthn/sms/verify", body).json()["access_token"])
    ann.minutes_pass(2)
    assert api.post("/webauthn/sms/requestCode", ann.named_with_client).status_code == 200
    assert api.post(PATH, {"sms_code": code_to(ann.phone)}).status_code == 200
    assert not is_there(open_tenant, ann.id)


def test_delete_account_takes_a_passkey(open_tenant: TestTenant) -> None:
    ann, key = new_user(open_tenant), Authenticator(origin="http://localhost:8000")
    options = ann.api.post("/webauthn/enduser/beginRegistration", ann.name).json()
    ann.api.post("/webauthn/enduser/finishRegistration", {**ann.name, "credential": key.create(options)})

    def use() -> dict[str, Any]:
        return key.get(Api().post("/webauthn/enduser/beginAuthentication", ann.name).json())

    body = {**ann.name, "mfa_token": ann.sign_in().json()["mfa_token"], "response": use()}
    api = Api(token=Api().post("/webauthn/enduser/finishAuthentication", body).json()["access_token"])
    spoiled = use()
    spoiled["response"]["signature"] = key.get({"challenge": "AAAA", "rpId": "localhost"})["response"]["signature"]
    assert api.post(PATH, {"response": spoiled}).status_code == 401
    assert api.post(PATH, {"response": json.dumps(use())}).status_code == 200
    assert not is_there(open_tenant, ann.id)


def test_delete_account_keeps_the_last_active_user(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    allow(tenant)
    person = tenant.register()
    response = tenant.as_user(person).post(PATH, BY_PASSWORD)
    assert (response.status_code, "last active user" in response.json()["message"]) == (400, True)
    assert is_there(tenant, person.id)


def test_delete_account_stays_in_the_tenant(open_tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = open_tenant.register()
    foreign = other_tenant.as_user(other_tenant.register())
    body = {**BY_PASSWORD, "tenant_id": str(open_tenant.id), "user_id": str(person.id)}
    assert foreign.post(PATH, body).status_code == 403
    assert is_there(open_tenant, person.id)
