"""Events that end a user's tickets and enrollment windows, and those of no other user."""

from collections.abc import Callable

import pytest

from tests.mfa.people import TestUser, new_user
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant

NEW = "another horse 8 battery"
BEGIN = "/webauthn/totp/beginSetup"


def deactivation(person: TestUser) -> None:
    path = f"/uflow/user/enduser/{person.tenant.id}/{person.id}/status"
    for active in (False, True):
        assert person.tenant.api.put(path, {"active": active}).status_code == 200


def password_change(person: TestUser) -> None:
    body = {"current_password": PASSWORD, "new_password": NEW}
    token = Api().post("/uflow/auth/enduser/login", login(person)).json()["access_token"]
    assert Api(token=token).post("/authmgr/profile/password", body).status_code == 200


def password_reset(person: TestUser) -> None:
    Api().post("/uflow/auth/enduser/password/forgot", person.name)
    token = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
    body = {"token": token, "password": NEW}
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 200


def login(person: TestUser) -> dict[str, str]:
    return {"client_id": str(person.tenant.client_id), "email": person.email, "password": PASSWORD}


def begun(person: TestUser) -> list[int]:
    """By the window of the registration's address, and elsewhere by the ticket."""
    by_ticket = Api().post(BEGIN, person.name, headers={"X-Enrollment-Ticket": person.ticket})
    return [person.api.post(BEGIN, person.name).status_code, by_ticket.status_code]


@pytest.mark.parametrize("event", [deactivation, password_change, password_reset])
def test_event_ends_ticket_and_window(tenant: TestTenant, event: Callable[[TestUser], None]) -> None:
    ann, ben = new_user(tenant), new_user(tenant)
    event(ann)
    assert begun(ann) == [401, 401]
    assert begun(ben) == [200, 200]


@pytest.mark.parametrize("event", [deactivation, password_reset])
def test_event_ends_waiting_login(tenant: TestTenant, event: Callable[[TestUser], None]) -> None:
    ann, ben = new_user(tenant).enrol_totp(), new_user(tenant).enrol_totp()
    waiting = {person.email: person.sign_in().json()["mfa_token"] for person in (ann, ben)}
    event(ann)
    for person, expected in ((ann, 401), (ben, 200)):
        body = {**person.name, "code": person.code(1), "mfa_token": waiting[person.email]}
        assert Api().post("/webauthn/totp/verifyLogin", body).status_code == expected
