"""Backup codes as people type them: with any dash, at every endpoint and form that takes one."""

from collections.abc import Callable

import pytest

from tests.console.staff import new_operator
from tests.mfa.people import new_user
from tests.world import PASSWORD, Api, TestTenant

# An en dash, as word processors make of a hyphen.
DASH = "\u2013"


def typed(codes: list[str]) -> str:
    """Return a code with other dashes, in lower case."""
    code = codes.pop().lower()
    assert "-" in code
    return code.replace("-", DASH)


def step_up(tenant: TestTenant) -> int:
    ann = new_user(tenant).enrol_totp()
    token = ann.second_step_token()
    return int(Api().post("/authmgr/step-up", {"backup_code": typed(ann.backup_codes)}, token=token).status_code)


def turn_off_the_app(tenant: TestTenant) -> int:
    ann = new_user(tenant).enrol_totp()
    token, body = ann.second_step_token(), {**ann.name, "backup_code": typed(ann.backup_codes)}
    return int(Api().post("/webauthn/totp/disable", body, token=token).status_code)


def sign_in_admin_over_api(_tenant: TestTenant) -> int:
    staff = new_operator().enrol_totp()
    login = {"username": staff.username, "password": PASSWORD}
    ticket = Api().post("/uflow/admin/auth/login", login).json()["mfa_token"]
    body = {"email": staff.email, "mfa_token": ticket, "backup_code": typed(staff.backup_codes)}
    return int(Api().post("/webauthn/admin/totp/verifyLogin", body).status_code)


def sign_in_at_console(_tenant: TestTenant) -> int:
    staff = new_operator().enrol_totp()
    staff.send_password()
    staff.post("/admin/second-step/", {"backup_code": typed(staff.backup_codes)})
    return int(staff.get("/admin/").status_code)


@pytest.mark.parametrize("send", [step_up, turn_off_the_app, sign_in_admin_over_api, sign_in_at_console])
def test_backup_code_takes_any_dash(tenant: TestTenant, send: Callable[[TestTenant], int]) -> None:
    assert send(tenant) == 200
