"""An admin of a closed tenant gets the same response whether or not the password, token or passkey is right."""

import re
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.staff import new_tenant_admin
from tests.copies import change_mapping
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin

LOGIN = "/uflow/admin/auth/login"
CLOSED = ["suspended", "failed", "provisioning", "deleting"]


def set_state(tenant: TestTenant, state: str) -> None:
    change_mapping(tenant.id, status=state)


def login(username: str, password: str = PASSWORD) -> Any:
    return Api().post(LOGIN, {"username": username, "password": password})


@pytest.mark.parametrize("state", CLOSED)
def test_login_does_not_tell_right_from_wrong_password(
    state: str, new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant = new_tenant()
    unknown = login(f"unknown-{secrets.token_hex(4)}")
    set_state(tenant, state)
    responses = [
        login(tenant.admin.username),
        login(tenant.admin.username, "wrong " + PASSWORD),
        login(tenant.admin.email),
    ]
    assert [(response.status_code, response.json()) for response in responses] == [(401, unknown.json())] * 3
    assert sign_in_admin(other_tenant.admin.username)["access_token"]


def test_right_passwords_count_as_attempts(new_tenant: Callable[[], TestTenant]) -> None:
    one, other = new_tenant(), new_tenant()
    for tenant in (one, other):
        set_state(tenant, "suspended")
    right = [login(one.admin.username).status_code for _ in range(12)]
    wrong = [login(other.admin.username, "wrong " + PASSWORD).status_code for _ in range(12)]
    assert right == wrong
    assert right[-1] == 429


@pytest.mark.parametrize("state", ["migrating", "moving"])
def test_admins_sign_in_while_their_tenant_moves(state: str, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    set_state(tenant, state)
    assert login(tenant.admin.username).status_code == 200


@pytest.mark.parametrize("state", CLOSED)
def test_reset_does_not_tell_valid_from_invalid_token(state: str, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": tenant.admin.email}).status_code == 200
    found = re.search(r"token=(\S+)", mails_to(tenant.admin.email)[-1].body)
    assert found
    token = found[1]
    set_state(tenant, state)
    path, new = "/uflow/auth/admin/password/reset", "another horse 7 battery"
    responses = [Api().post(path, {"token": sent, "password": new}) for sent in (token, token[:-4] + "AAAA")]
    assert [response.status_code for response in responses] == [400, 400]
    assert responses[0].json() == responses[1].json()
    set_state(tenant, "active")
    assert Api().post(path, {"token": token, "password": new}).status_code == 200


def test_console_does_not_tell_right_from_wrong_password(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    staff = new_tenant_admin(tenant)
    set_state(tenant, "suspended")
    right, wrong = staff.send_password(), staff.send_password(password="wrong " + PASSWORD)
    assert right.status_code == wrong.status_code == 400
    assert "suspended" not in right.content.decode()
    assert "The username or password is incorrect" in right.content.decode()
    assert "The username or password is incorrect" in wrong.content.decode()
