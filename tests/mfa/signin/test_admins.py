"""Admin users: the same mechanism, in the global database."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyotp
import pytest
from django.utils.timezone import now

from tests.mfa.signin.test_two_steps import claims
from tests.userflow.sessions.aged import proof_token, strong
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import AdminRole, AdminUser
from userflow.admins.actions import create_admin_user


@dataclass
class Admin:
    """An admin user created over HTTP, with an API client and address of their own."""

    id: str
    username: str
    email: str
    ticket: str
    secret: str = ""

    def sign_in(self) -> Any:
        response = Api().post("/uflow/admin/auth/login", {"username": self.username, "password": PASSWORD})
        assert response.status_code == 200, response.content
        return response

    def enrol(self, **how: Any) -> Any:
        begun = Api().post("/webauthn/admin/totp/beginSetup", {"email": self.email}, **how)
        if begun.status_code != 200:
            return begun
        self.secret = begun.json()["secret"]
        # The password is the proof of a token.
        body = {"email": self.email, "secret": self.secret, "code": self.code(), "current_password": PASSWORD}
        return Api().post("/webauthn/admin/totp/confirmSetup", body, **how)

    def code(self, steps: int = 0) -> str:
        return pyotp.TOTP(self.secret).at(now(), counter_offset=steps)


def new_admin(tenant: TestTenant, *roles: str) -> Admin:
    name = f"second-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "A", "last_name": "B"}
    made = tenant.api.post("/uflow/admin/users", {**body, **({"roles": list(roles)} if roles else {})})
    assert made.status_code == 201, made.content
    return Admin(made.json()["id"], name, f"{name}@example.com", made.headers["X-Enrollment-Ticket"])


@pytest.fixture
def eve(tenant: TestTenant) -> Admin:
    return new_admin(tenant)


def test_admin_enrolls_with_ticket_and_signs_in_with_code(eve: Admin) -> None:
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    waiting = eve.sign_in().json()
    assert (waiting["mfa_required"], waiting["methods"]) == (True, ["totp", "backup_code"])
    body = {"email": eve.email, "code": eve.code(1), "mfa_token": waiting["mfa_token"]}
    done = Api().post("/webauthn/admin/totp/verifyLogin", body)
    assert done.status_code == 200
    assert set(done.json()) >= {"email", "message", "method", "success", "access_token", "refresh_token"}
    assert claims(done.json()["access_token"])["amr"] == ["pwd", "otp"]
    me = Api(token=done.json()["access_token"]).get("/uflow/admin/users/me")
    assert me.json()["mfa_methods"] == ["totp", "backup_code"]
    assert Api().post("/webauthn/admin/totp/verifyLogin", body).status_code == 401


def test_begin_for_admin_requires_proof(tenant: TestTenant, eve: Admin) -> None:
    assert eve.enrol().status_code == 401
    assert eve.enrol(headers={"X-Enrollment-Ticket": new_admin(tenant).ticket}).status_code == 401
    assert eve.enrol(token="nonsense").status_code == 401
    assert AdminUser.objects.get(pk=eve.id).mfa_methods == []


@pytest.mark.parametrize(("embedded", "expected"), [(True, 200), (False, 401)])
def test_admin_windows_exist_in_embedded_mode_only(settings: Any, eve: Admin, embedded: bool, expected: int) -> None:
    api, settings.EMBEDDED = Api(), embedded
    api.post("/uflow/admin/auth/login", {"username": eve.username, "password": PASSWORD})
    assert api.post("/webauthn/admin/totp/beginSetup", {"email": eve.email}).status_code == expected
    # Nor is a window accepted that was opened before.
    settings.EMBEDDED = False
    assert api.post("/webauthn/admin/totp/beginSetup", {"email": eve.email}).status_code == 401
    settings.EMBEDDED = embedded
    assert Api().post("/webauthn/admin/totp/beginSetup", {"email": eve.email}).status_code == 401


def test_admin_cannot_enroll_another_admin(
    tenant: TestTenant, other_tenant: TestTenant, operator: Api, eve: Admin
) -> None:
    for api in (tenant.api, other_tenant.api, operator):
        refused = eve.enrol(token=api.token)
        assert (refused.status_code, "enrollment pass" in refused.json()["message"]) == (403, True)


@pytest.mark.parametrize("lacks", ["rank", "permission"])
def test_admin_reset_requires_rank_and_permission(tenant: TestTenant, lacks: str) -> None:
    everything = set(AdminRole.objects.get(name="tenant-admin").permissions)
    held = {"admins:read", "admins:write"} if lacks == "rank" else everything - {"admins:write"}
    role = AdminRole.objects.create(name=f"clerk-{secrets.token_hex(4)}", permissions=sorted(held))
    token = new_admin(tenant, role.name).sign_in().json()["access_token"]
    other = new_admin(tenant, "auditor")
    reset = {"user_id": other.id, "reason": "lost the phone"}
    assert Api(token=token).post("/webauthn/admin/factors/reset", reset).status_code == 403


def test_deactivation_ends_ticket_and_window_of_admin(settings: Any, tenant: TestTenant) -> None:
    eve, ben, home = new_admin(tenant), new_admin(tenant), Api()
    settings.EMBEDDED = True
    home.post("/uflow/admin/auth/login", {"username": eve.username, "password": PASSWORD})
    assert home.post("/webauthn/admin/totp/beginSetup", {"email": eve.email}).status_code == 200
    for active in (False, True):
        body = {"user_id": eve.id, "active": active}
        assert tenant.api.post("/uflow/admin/users/active", body).status_code == 200
    assert home.post("/webauthn/admin/totp/beginSetup", {"email": eve.email}).status_code == 401
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 401
    assert ben.enrol(headers={"X-Enrollment-Ticket": ben.ticket}).status_code == 200


def test_tenant_admin_enrolls_no_factor_for_operator(tenant: TestTenant) -> None:
    name = f"op-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    begun = tenant.api.post("/webauthn/admin/totp/beginSetup", {"email": f"{name}@example.com"})
    assert begun.status_code == 403


def test_end_user_token_is_rejected_for_admin(tenant: TestTenant, eve: Admin) -> None:
    from tests.mfa.people import new_user

    assert eve.enrol(token=new_user(tenant).token()).status_code == 403
    assert eve.enrol(headers={"X-Enrollment-Ticket": new_user(tenant).ticket}).status_code == 401


def test_verify_rejects_admin_of_suspended_tenant(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own = new_tenant()
    eve = new_admin(own)
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    body = {"email": eve.email, "code": eve.code(1)}
    for status, expected in (("suspended", 403), ("active", 200)):
        assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": status}).status_code == 200
        # Without the ticket of a login, which would be rejected by itself.
        assert Api().post("/webauthn/admin/totp/verifyLogin", body).status_code == expected


def test_unknown_admin_is_404(tenant: TestTenant) -> None:
    for path in ("beginSetup", "disable"):
        response = Api().post(f"/webauthn/admin/totp/{path}", {"email": "unknown@example.com"})
        assert response.status_code == 404


def test_disable_requires_own_fresh_token(eve: Admin) -> None:
    token = eve.sign_in().json()["access_token"]
    assert eve.enrol(token=token).status_code == 200
    body = {"email": eve.email}
    assert Api().post("/webauthn/admin/totp/disable", body).status_code == 401
    assert Api().post("/webauthn/admin/totp/disable", body, token=token).status_code == 401
    assert Api().post("/webauthn/admin/totp/disable", body, token=strong(token)).status_code == 400
    body["proof_token"] = proof_token(token)
    assert Api().post("/webauthn/admin/totp/disable", body, token=strong(token)).status_code == 200
    assert eve.sign_in().json()["mfa_required"] is False


def test_admin_lists_and_operator_resets_factors(
    operator: Api, tenant: TestTenant, other_tenant: TestTenant, eve: Admin
) -> None:
    token = eve.sign_in().json()["access_token"]
    eve.enrol(token=token)
    listed = Api(token=token).get("/webauthn/factors").json()
    assert [factor["kind"] for factor in listed["factors"]] == ["totp"]
    body = {"user_id": eve.id, "reason": "lost the phone"}
    assert other_tenant.api.post("/webauthn/admin/factors/reset", body).status_code == 404
    done = operator.post("/webauthn/admin/factors/reset", body)
    assert done.status_code == 200
    assert done.json()["removed"] == {"webauthn": 0, "totp": 1, "backup_code": 10}
    assert eve.sign_in().json()["mfa_required"] is False
