"""An admin whose tenant lets nobody in gets one answer, whether or not the password, token or passkey is right."""

import re
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tenants.models import TenantDatabase
from tests.console.staff import new_tenant_admin
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, House, sign_in_admin

LOGIN = "/uflow/admin/auth/login"
CLOSED = ["suspended", "failed", "provisioning", "deleting"]


def set_state(house: House, state: str) -> None:
    TenantDatabase.objects.filter(pk=house.id).update(status=state)


def login(username: str, password: str = PASSWORD) -> Any:
    return Api().post(LOGIN, {"username": username, "password": password})


@pytest.mark.parametrize("state", CLOSED)
def test_login_tells_no_right_password_from_a_wrong_one(
    state: str, new_house: Callable[[], House], other_house: House
) -> None:
    house = new_house()
    unknown = login(f"nobody-{secrets.token_hex(4)}")
    set_state(house, state)
    answers = [login(house.admin.username), login(house.admin.username, "wrong " + PASSWORD), login(house.admin.email)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(401, unknown.json())] * 3
    assert sign_in_admin(other_house.admin.username)["access_token"]


def test_right_passwords_count_as_tries_too(new_house: Callable[[], House]) -> None:
    one, other = new_house(), new_house()
    for house in (one, other):
        set_state(house, "suspended")
    right = [login(one.admin.username).status_code for _ in range(12)]
    wrong = [login(other.admin.username, "wrong " + PASSWORD).status_code for _ in range(12)]
    assert right == wrong
    assert right[-1] == 429


@pytest.mark.parametrize("state", ["migrating", "moving"])
def test_admins_sign_in_while_their_tenant_moves(state: str, new_house: Callable[[], House]) -> None:
    house = new_house()
    set_state(house, state)
    assert login(house.admin.username).status_code == 200


@pytest.mark.parametrize("state", CLOSED)
def test_password_reset_tells_no_good_token_from_a_bad_one(state: str, new_house: Callable[[], House]) -> None:
    house = new_house()
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": house.admin.email}).status_code == 200
    found = re.search(r"token=(\S+)", mails_to(house.admin.email)[-1].body)
    assert found
    token = found[1]
    set_state(house, state)
    path, new = "/uflow/auth/admin/password/reset", "another horse 7 battery"
    answers = [Api().post(path, {"token": sent, "password": new}) for sent in (token, token[:-4] + "AAAA")]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].json() == answers[1].json()
    set_state(house, "active")
    assert Api().post(path, {"token": token, "password": new}).status_code == 200


def test_console_sign_in_tells_no_right_password_from_a_wrong_one(new_house: Callable[[], House]) -> None:
    house = new_house()
    staff = new_tenant_admin(house)
    set_state(house, "suspended")
    right, wrong = staff.send_password(), staff.send_password(password="wrong " + PASSWORD)
    assert right.status_code == wrong.status_code == 400
    assert "suspended" not in right.content.decode()
    assert "That did not match" in right.content.decode()
    assert "That did not match" in wrong.content.decode()
