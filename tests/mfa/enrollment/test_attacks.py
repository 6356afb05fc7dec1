"""Attacks on users without a factor, or with their first one: by callers at the same address, by older proofs, by admins."""

import secrets
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyotp
import pytest

from tests.mfa.enrollment.calls import enrol_passkey
from tests.mfa.people import TestUser, code_to, new_user, some_phone
from tests.mfa.signin.test_admins import Admin, new_admin
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.parallel import run_concurrently
from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import AdminUser
from userflow.admins.actions import create_admin_user

TOTP = "/webauthn/totp/beginSetup"
SMS = "/webauthn/sms/beginSetup"
PASSKEY = "/webauthn/enduser/beginRegistration"


def invited(tenant: TestTenant) -> TestUser:
    """A user who has accepted an invitation."""
    email, api = f"invited-{secrets.token_hex(6)}@example.com", Api()
    asked = {"kind": "end_user", "email": email, "client_id": str(tenant.client_id)}
    assert tenant.api.post("/uflow/admin/invitations", asked).status_code == 201
    body = {"token": token_in(mails_to(email)[-1]), "password": PASSWORD}
    done = api.post("/uflow/invitations/accept", body)
    assert done.status_code == 201, done.content
    return TestUser(tenant, email, UUID(done.json()["user_id"]), api, done.headers["X-Enrollment-Ticket"])


def statuses(person: TestUser, api: Api, **how: Any) -> list[int]:
    """Begins of every kind."""
    phone = {**person.named_with_client, "phone_number": some_phone()}
    calls = [(TOTP, person.name), (PASSKEY, person.name), (SMS, phone)]
    return [int(api.post(path, body, **how).status_code) for path, body in calls]


KINDS = pytest.mark.parametrize("first", [TestUser.enrol_totp, TestUser.enrol_phone, enrol_passkey])
VICTIMS = pytest.mark.parametrize("victim", [new_user, invited])


@VICTIMS
@KINDS
def test_same_address_adds_nothing_after_first_factor(
    tenant: TestTenant, victim: Callable[[TestTenant], TestUser], first: Callable[..., TestUser]
) -> None:
    ann = victim(tenant)
    attacker = Api(address=ann.api.address)
    begun = attacker.post(PASSKEY, ann.name)
    assert begun.status_code == 200
    first(ann, headers={"X-Enrollment-Ticket": ann.ticket})
    credential = new_authenticator().create(begun.json())
    for path in ("enduser/finishRegistration", "finishRegistration"):
        assert attacker.post(f"/webauthn/{path}", {**ann.name, "credential": credential}).status_code == 401
    assert statuses(ann, attacker) == [401, 401, 401]


@KINDS
def test_older_ticket_adds_nothing_after_first_factor(tenant: TestTenant, first: Callable[..., TestUser]) -> None:
    ann = new_user(tenant)
    stolen = {"X-Enrollment-Ticket": ann.sign_in().headers["X-Enrollment-Ticket"]}
    assert statuses(ann, Api(), headers=stolen) == [200, 200, 200]
    ann.minutes_pass(2)
    first(ann, headers={"X-Enrollment-Ticket": ann.ticket})
    assert statuses(ann, Api(), headers=stolen) == [401, 401, 401]


@KINDS
def test_password_session_before_factor_replaces_nothing(tenant: TestTenant, first: Callable[..., TestUser]) -> None:
    ann = new_user(tenant)
    token = ann.token()
    first(ann, token=token)
    ann.minutes_pass(2)
    assert statuses(ann, Api(), token=token) == [401, 401, 401]
    factor = Api(token=token).get("/webauthn/factors").json()["factors"][0]["id"]
    assert Api(token=token).delete(f"/webauthn/factors/{factor}").status_code == 401


def test_admins_enroll_no_factor_for_end_user(tenant: TestTenant, operator: Api) -> None:
    ann = new_user(tenant)
    credential = new_authenticator().create(ann.api.post(PASSKEY, ann.name).json())
    for api in (tenant.api, operator):
        assert statuses(ann, api) == [403, 403, 403]
        for path in ("enduser/finishRegistration", "finishRegistration"):
            refused = api.post(f"/webauthn/{path}", {**ann.name, "credential": credential})
            assert (refused.status_code, "enrollment pass" in refused.json()["message"]) == (403, True)
    assert ann.row().mfa_methods == []


def test_phone_begun_at_same_address_is_not_confirmed(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    attacker, phone = Api(address=ann.api.address), some_phone()
    body = {**ann.named_with_client, "phone_number": phone}
    assert attacker.post(SMS, body).status_code == 200
    ann.enrol_totp()
    response = attacker.post("/webauthn/sms/confirmSetup", {**body, "code": code_to(phone)})
    assert (response.status_code, ann.row().mfa_methods) == (401, ["totp", "backup_code"])


# --- admin users and operators ---------------------------------------------------------------------------------------


def new_operator() -> Admin:
    name = f"op-{secrets.token_hex(4)}"
    user, ticket = create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    return Admin(str(user.pk), name, f"{name}@example.com", ticket or "")


@pytest.mark.parametrize("kind", ["admin", "operator"])
def test_caller_at_an_admins_address_adds_no_passkey(settings: Any, tenant: TestTenant, kind: str) -> None:
    # The windows of embedded mode, where a password login opens one.
    settings.EMBEDDED, settings.OPERATORS_REQUIRE_FACTOR = True, False
    eve = new_admin(tenant) if kind == "admin" else new_operator()
    api = Api()
    api.post("/uflow/admin/auth/login", {"username": eve.username, "password": PASSWORD})
    begun = api.post("/webauthn/admin/beginRegistration", {"email": eve.email})
    assert begun.status_code == 200
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    body = {"email": eve.email, "credential": new_authenticator().create(begun.json())}
    assert api.post("/webauthn/admin/finishRegistration", body).status_code == 401
    assert AdminUser.objects.get(pk=eve.id).mfa_methods == ["totp", "backup_code"]


@pytest.mark.parametrize("kind", ["admin", "operator"])
def test_older_ticket_and_session_of_an_admin_add_nothing(settings: Any, tenant: TestTenant, kind: str) -> None:
    settings.OPERATORS_REQUIRE_FACTOR = False
    eve = new_admin(tenant) if kind == "admin" else new_operator()
    earlier = eve.sign_in()
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    proofs: list[dict[str, Any]] = [
        {"headers": {"X-Enrollment-Ticket": earlier.headers["X-Enrollment-Ticket"]}},
        {"token": earlier.json()["access_token"]},
    ]
    for how in proofs:
        assert Api().post("/webauthn/admin/beginRegistration", {"email": eve.email}, **how).status_code == 401


# --- at the same moment ----------------------------------------------------------------------------------------------


def test_one_of_ticket_window_session_enrolls_first_factor(tenant: TestTenant) -> None:
    for _ in range(5):
        ann = new_user(tenant)
        token = str(ann.sign_in(ann.api).json()["access_token"])
        other = {"X-Enrollment-Ticket": ann.sign_in(ann.api).headers["X-Enrollment-Ticket"]}
        proofs: list[dict[str, Any]] = [
            {"headers": {"X-Enrollment-Ticket": ann.ticket}},
            {"headers": other},
            {"token": token},
        ]
        calls = []
        for how in proofs:
            secret = ann.api.post(TOTP, ann.name, **how).json()["secret"]
            calls.append(_confirmation(ann, secret, how))
        options = ann.api.post(PASSKEY, ann.name).json()
        body = {**ann.name, "credential": new_authenticator().create(options)}
        calls.append(lambda body=body, ann=ann: ann.api.post("/webauthn/enduser/finishRegistration", body))
        found = [int(response.status_code) for response in run_concurrently(calls)]
        # A secret that was begun beside the confirmed one is gone with it.
        assert found.count(200) == 1, found
        assert set(found) <= {200, 400, 401}, found
        assert len(set(ann.row().mfa_methods) & {"totp", "webauthn"}) == 1


def _confirmation(ann: TestUser, secret: str, how: dict[str, Any]) -> Callable[[], Any]:
    body = {**ann.name, "secret": secret, "code": pyotp.TOTP(secret).now()}
    return lambda: Api(address=ann.api.address).post("/webauthn/totp/confirmSetup", body, **how)
