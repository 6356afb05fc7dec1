"""Ticket and window of a sign-in are columns of its session: no rows before they are used, and nothing that outlives it."""

from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user, old_user
from tests.userflow.sessions.aged import proof_token, strong
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser

BEGIN = "/webauthn/totp/beginSetup"


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return old_user(tenant)


def ticket_of(login: Any) -> dict[str, str]:
    return {"X-Enrollment-Ticket": login.headers["X-Enrollment-Ticket"]}


def begins(person: TestUser, login: Any = None, api: Api | None = None) -> bool:
    """Return whether the ticket of a sign-in, or without one the window, lets a setup begin."""
    headers = ticket_of(login) if login is not None else {}
    return bool((api or person.api).post(BEGIN, person.name, headers=headers).status_code == 200)


def sign_out(login: Any) -> None:
    assert Api(token=login.json()["access_token"]).post("/authmgr/logout").status_code == 200


def rows(person: TestUser) -> tuple[int, int]:
    with in_tenant(person.tenant.id):
        user = EndUser.objects.get(pk=person.id)
        return user.tickets.count(), user.enrollment_windows.count()


def test_sign_in_adds_no_ticket_and_no_window(ann: TestUser) -> None:
    before = rows(ann)
    login = ann.sign_in(ann.api)
    assert begins(ann, login)
    assert begins(ann)
    assert rows(ann) == before


def test_ticket_of_sign_in_adds_two_kinds_of_factors(ann: TestUser) -> None:
    used, other = ann.sign_in(), ann.sign_in()
    ann.enrol_totp(headers=ticket_of(used))
    passkey = "/webauthn/enduser/beginRegistration"
    assert Api().post(passkey, ann.name, headers=ticket_of(other)).status_code == 401
    ann.enrol_phone(headers=ticket_of(used))
    assert Api().post(passkey, ann.name, headers=ticket_of(used)).status_code == 401


def test_ticket_is_of_one_user(tenant: TestTenant, ann: TestUser) -> None:
    assert not begins(new_user(tenant), ann.sign_in())


def test_ticket_and_window_end_with_their_session(ann: TestUser) -> None:
    login = ann.sign_in(ann.api)
    sign_out(login)
    assert not begins(ann, login)
    assert not begins(ann)


def test_setup_that_has_begun_ends_with_the_session(ann: TestUser) -> None:
    login = ann.sign_in()
    begun = Api().post(BEGIN, ann.name, headers=ticket_of(login)).json()
    sign_out(login)
    ann.secret = begun["secret"]
    body = {**ann.name, "secret": ann.secret, "code": ann.code()}
    assert Api().post("/webauthn/totp/confirmSetup", body, headers=ticket_of(login)).status_code == 401
    assert ann.row().mfa_methods == []


def test_end_of_another_session_ends_neither(ann: TestUser) -> None:
    first, second = ann.sign_in(ann.api), ann.sign_in(ann.api)
    sign_out(first)
    assert not begins(ann, first)
    assert begins(ann, second)
    assert begins(ann)


def test_end_of_later_session_elsewhere_opens_no_window_again(ann: TestUser) -> None:
    elsewhere = Api()
    ann.sign_in(ann.api)
    sign_out(ann.sign_in(elsewhere))
    assert not begins(ann)
    assert not begins(ann, api=elsewhere)


def test_ticket_and_window_last_fifteen_minutes(ann: TestUser) -> None:
    login = ann.sign_in(ann.api)
    ann.minutes_pass(14)
    assert begins(ann, login)
    assert begins(ann)
    ann.minutes_pass(2)
    assert not begins(ann, login)
    assert not begins(ann)


def test_new_password_ends_ticket_and_window_of_the_session_that_stays(ann: TestUser) -> None:
    login = ann.sign_in(ann.api)
    api = Api(token=login.json()["access_token"])
    body = {"current_password": PASSWORD, "new_password": "another horse 8 battery"}
    assert api.post("/authmgr/profile/password", body).status_code == 200
    assert api.get("/authmgr/validate").status_code == 200
    assert not begins(ann, login)
    assert not begins(ann)


def test_ticket_that_has_expired_by_another_clock_ends_too(ann: TestUser) -> None:
    login = ann.sign_in(ann.api)
    # By the clock of the instance that ends it, which is ahead.
    ann.minutes_pass(20)
    api = Api(token=login.json()["access_token"])
    body = {"current_password": PASSWORD, "new_password": "another horse 8 battery"}
    assert api.post("/authmgr/profile/password", body).status_code == 200
    ann.minutes_pass(-20)
    assert not begins(ann, login)
    assert not begins(ann)


def test_earlier_sign_in_of_a_clock_that_is_ahead_keeps_no_window(ann: TestUser) -> None:
    elsewhere = Api()
    ann.sign_in(ann.api)
    # By the clock of the instance of the first one it is the newer one.
    ann.minutes_pass(-2)
    ann.sign_in(elsewhere)
    assert not begins(ann)
    assert begins(ann, api=elsewhere)


def test_removed_factor_leaves_no_ticket_and_no_window(ann: TestUser) -> None:
    login = ann.sign_in(ann.api)
    token = login.json()["access_token"]
    ann.enrol_totp(token=token)
    body = {**ann.name, "proof_token": proof_token(token)}
    assert ann.api.post("/webauthn/totp/disable", body, token=strong(token)).status_code == 200
    assert Api(token=token).get("/authmgr/validate").status_code == 200
    assert ann.row().mfa_methods == []
    assert not begins(ann, login)
    assert not begins(ann)


def test_waiting_sign_in_elsewhere_closes_the_window(new_tenant: Any, operator: Api) -> None:
    own, elsewhere = new_tenant(), Api()
    ann = old_user(own)
    ann.sign_in(ann.api)
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"settings": {"mfa_policy": "required"}}).status_code == 200
    assert begins(ann)
    assert ann.sign_in(elsewhere).json()["enrollment_required"] is True
    assert not begins(ann)
    assert begins(ann, api=elsewhere)
