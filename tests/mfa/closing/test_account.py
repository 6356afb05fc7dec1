"""POST /authmgr/profile/delete: end users delete their own account where the tenant allows it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from identity_platform.audit.models import TenantEvent
from tenants.context import in_tenant
from tests.mfa.people import Somebody, code_to, somebody, wrong_code
from tests.mfa.webauthn.authenticator import Authenticator
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, House, build_house
from userflow.accounts.models import EndUser

PATH = "/authmgr/profile/delete"
BY_PASSWORD = {"current_password": PASSWORD}


@pytest.fixture(scope="module")
def open_house(django_db_setup: None, django_db_blocker: Any) -> Iterator[House]:
    """A tenant whose users can delete their accounts; one user stays active throughout."""
    with django_db_blocker.unblock():
        made = build_house("open")
        allow(made)
        made.register()
        yield made


def allow(house: House) -> None:
    path = f"/uflow/admin/tenants/{house.id}/settings"
    assert house.api.patch(path, {"settings": {"account_deletion": "on"}}).status_code == 200


def is_there(house: House, user_id: Any) -> bool:
    with in_tenant(house.id):
        return EndUser.objects.filter(pk=user_id).exists()


def two_steps(person: Somebody) -> Api:
    """The door after password and authenticator."""
    body = {**person.name, "mfa_token": person.sign_in().json()["mfa_token"], "code": person.code(1)}
    return Api(token=Api().post("/webauthn/totp/verifyLogin", body).json()["access_token"])


def test_delete_account_erases_the_user(open_house: House) -> None:
    person = open_house.register()
    signed_in = open_house.sign_in(person)
    door = Api(token=signed_in["access_token"])
    answer = door.post(PATH, BY_PASSWORD)
    assert (answer.status_code, answer.json()["user_id"]) == (200, str(person.id))
    assert not is_there(open_house, person.id)
    assert door.get("/authmgr/validate").status_code == 401
    body = {"grant_type": "refresh_token", "refresh_token": signed_in["refresh_token"]}
    assert Api().post("/authmgr/token", body).json()["error"] == "invalid_grant"
    with in_tenant(open_house.id):
        event = TenantEvent.objects.get(action="end_user.erased", target_id=person.id)
        assert (event.actor_kind, event.actor_id) == ("end_user", str(person.id))


def test_delete_account_is_off_by_default(new_house: Callable[[], House]) -> None:
    house = new_house()
    house.register()
    person = house.register()
    answer = house.as_user(person).post(PATH, BY_PASSWORD)
    assert (answer.status_code, "administrator" in answer.json()["message"]) == (403, True)
    assert is_there(house, person.id)


def test_delete_account_is_for_end_users_only(open_house: House, operator: Api) -> None:
    client = Api(token=own_token(make_client(open_house, scopes=["endusers:delete"])))
    for door in (open_house.api, operator, client):
        assert door.post(PATH, BY_PASSWORD).status_code == 403
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
def test_delete_account_needs_a_proof(open_house: House, proof: dict[str, str], status: int) -> None:
    person = open_house.register()
    assert open_house.as_user(person).post(PATH, proof).status_code == status
    assert is_there(open_house, person.id)


def test_delete_account_counts_wrong_passwords(open_house: House) -> None:
    door = open_house.as_user(open_house.register())
    answers = [door.post(PATH, {"current_password": "wrong horse 9 battery"}).status_code for _ in range(6)]
    assert answers == [400] * 5 + [429]
    assert door.post(PATH, BY_PASSWORD).status_code == 429


def test_delete_account_needs_a_recent_sign_in(open_house: House) -> None:
    person = open_house.register()
    old = Api(token=aged(open_house.sign_in(person)["access_token"], 16))
    answer = old.post(PATH, BY_PASSWORD)
    assert (answer.status_code, "15 minutes" in answer.json()["message"]) == (401, True)
    assert is_there(open_house, person.id)


def test_delete_account_needs_the_factor_in_the_session(open_house: House) -> None:
    person = somebody(open_house)
    before = Api(token=person.token())
    person.enrol_totp()
    assert before.post(PATH, BY_PASSWORD).status_code == 401
    assert before.post(PATH, {"backup_code": person.backup_codes[0]}).status_code == 401
    assert is_there(open_house, person.id)
    assert two_steps(person).post(PATH, BY_PASSWORD).status_code == 200


def test_delete_account_takes_codes_of_the_user(open_house: House) -> None:
    ann, ben = somebody(open_house).enrol_totp(), somebody(open_house).enrol_totp()
    door = two_steps(ann)
    assert door.post(PATH, {"code": wrong_code(ann.secret)}).status_code == 400
    assert door.post(PATH, {"backup_code": ben.backup_codes[0]}).status_code == 400
    assert door.post(PATH, {"backup_code": ann.backup_codes[0]}).status_code == 200
    assert (is_there(open_house, ann.id), is_there(open_house, ben.id)) == (False, True)


def test_delete_account_takes_a_code_by_sms(open_house: House) -> None:
    ann = somebody(open_house).enrol_phone()
    Api().post("/webauthn/sms/requestCode", ann.named_with_client)
    body = {**ann.named_with_client, "mfa_token": ann.sign_in().json()["mfa_token"], "code": code_to(ann.phone)}
    door = Api(token=Api().post("/webauthn/sms/verify", body).json()["access_token"])
    ann.minutes_pass(2)
    assert door.post("/webauthn/sms/requestCode", ann.named_with_client).status_code == 200
    assert door.post(PATH, {"sms_code": code_to(ann.phone)}).status_code == 200
    assert not is_there(open_house, ann.id)


def test_delete_account_takes_a_passkey(open_house: House) -> None:
    ann, key = somebody(open_house), Authenticator(origin="http://localhost:8000")
    options = ann.api.post("/webauthn/enduser/beginRegistration", ann.name).json()
    ann.api.post("/webauthn/enduser/finishRegistration", {**ann.name, "credential": key.create(options)})

    def use() -> dict[str, Any]:
        return key.get(Api().post("/webauthn/enduser/beginAuthentication", ann.name).json())

    body = {**ann.name, "mfa_token": ann.sign_in().json()["mfa_token"], "response": use()}
    door = Api(token=Api().post("/webauthn/enduser/finishAuthentication", body).json()["access_token"])
    spoiled = use()
    spoiled["response"]["signature"] = key.get({"challenge": "AAAA", "rpId": "localhost"})["response"]["signature"]
    assert door.post(PATH, {"response": spoiled}).status_code == 401
    assert door.post(PATH, {"response": json.dumps(use())}).status_code == 200
    assert not is_there(open_house, ann.id)


def test_delete_account_keeps_the_last_active_user(new_house: Callable[[], House]) -> None:
    house = new_house()
    allow(house)
    person = house.register()
    answer = house.as_user(person).post(PATH, BY_PASSWORD)
    assert (answer.status_code, "last active user" in answer.json()["message"]) == (400, True)
    assert is_there(house, person.id)


def test_delete_account_stays_in_the_tenant(open_house: House, other_house: House) -> None:
    person = open_house.register()
    foreign = other_house.as_user(other_house.register())
    body = {**BY_PASSWORD, "tenant_id": str(open_house.id), "user_id": str(person.id)}
    assert foreign.post(PATH, body).status_code == 403
    assert is_there(open_house, person.id)
