"""Wrong codes with tickets of logins: they end the tickets, and lock neither the user's session nor the user at home."""

from typing import Any

import pytest

from tests.mfa.people import TestUser, code_to, new_user, wrong_code
from tests.world import Api, TestTenant

VERIFY, VERIFY_LOGIN = "/webauthn/totp/verify", "/webauthn/totp/verifyLogin"
# Five wrong codes end a ticket; five tickets lock.
TICKETS = 5


@pytest.fixture
def home() -> Api:
    """The user's own network."""
    return Api()


@pytest.fixture
def ann(tenant: TestTenant, home: Api) -> TestUser:
    """Signed in at home with an authenticator."""
    person = new_user(tenant).enrol_totp()
    home.token = signed_in(person, home).json()["access_token"]
    return person


def signed_in(person: TestUser, api: Api) -> Any:
    body = {"mfa_token": ticket_of(person, api), "backup_code": person.backup_codes.pop()}
    return Api(address=api.address).post(VERIFY_LOGIN, {**person.name, **body})


def ticket_of(person: TestUser, api: Api) -> str:
    return str(person.sign_in(Api(address=api.address)).json()["mfa_token"])


def burn(person: TestUser, thief: Api) -> list[int]:
    """Use up a ticket, which the thief gets by the password."""
    body = {**person.name, "mfa_token": ticket_of(person, thief), "code": wrong_code(person.secret)}
    return [thief.post(VERIFY_LOGIN, body).status_code for _ in range(6)]


def test_five_wrong_codes_end_the_ticket_only(ann: TestUser) -> None:
    thief = Api()
    assert burn(ann, thief) == [400] * 5 + [401]
    body = {**ann.name, "mfa_token": ticket_of(ann, thief), "code": ann.code(1)}
    assert thief.post(VERIFY_LOGIN, body).status_code == 200


def test_burned_tickets_lock_further_tickets(ann: TestUser) -> None:
    thief = Api()
    for _ in range(TICKETS):
        assert burn(ann, thief) == [400] * 5 + [401]
    body = {**ann.name, "mfa_token": ticket_of(ann, thief), "code": ann.code(1)}
    locked = thief.post(VERIFY_LOGIN, body)
    assert (locked.status_code, 0 < int(locked.headers["Retry-After"]) <= 60) == (429, True)


def test_burned_tickets_do_not_lock_own_session(ann: TestUser, home: Api) -> None:
    for _ in range(TICKETS):
        burn(ann, Api())
    assert home.post(VERIFY, {**ann.name, "code": ann.code(1)}).status_code == 200


def test_burned_tickets_do_not_lock_login_at_home(ann: TestUser, home: Api) -> None:
    for _ in range(TICKETS):
        burn(ann, Api())
    body = {**ann.name, "mfa_token": ticket_of(ann, home), "code": ann.code(1)}
    assert Api(address=home.address).post(VERIFY_LOGIN, body).status_code == 200


def test_lock_grows_to_five_wrong_codes_at_a_time(ann: TestUser) -> None:
    for _ in range(TICKETS):
        burn(ann, Api())
    ann.locks_end()
    assert burn(ann, Api()) == [400] * 5 + [401]
    body = {**ann.name, "mfa_token": ticket_of(ann, Api()), "code": ann.code(1)}
    locked = Api().post(VERIFY_LOGIN, body)
    assert (locked.status_code, 60 < int(locked.headers["Retry-After"]) <= 120) == (429, True)


def test_burned_tickets_leave_sms_codes_to_own_session(tenant: TestTenant) -> None:
    ben = new_user(tenant)
    own = Api(token=ben.token())
    ben.enrol_phone(token=own.token)
    for _ in range(TICKETS):
        body = {**ben.named_with_client, "mfa_token": ticket_of(ben, Api()), "code": "000000"}
        assert [Api().post("/webauthn/sms/verify", body).status_code for _ in range(6)] == [400] * 5 + [401]
    assert own.post("/webauthn/sms/requestCode", ben.named_with_client).status_code == 200
    body = {**ben.named_with_client, "code": code_to(ben.phone)}
    assert own.post("/webauthn/sms/verify", body).status_code == 200


def test_sms_request_shows_tries_of_the_ticket(tenant: TestTenant) -> None:
    ben = new_user(tenant).enrol_phone()
    named = {**ben.named_with_client, "mfa_token": ticket_of(ben, Api())}
    assert Api().post("/webauthn/sms/verify", {**named, "code": "000000"}).status_code == 400
    assert Api().post("/webauthn/sms/requestCode", named).json()["attempts_remaining"] == 4
