"""Sign-ins that must enroll a first factor: the factor completes them, without the password again."""

import secrets
from datetime import timedelta
from typing import Any
from uuid import UUID

import pyotp
import pytest
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.copies import change_client, change_tenant
from tests.mfa.people import TestUser, code_to, new_user, some_phone
from tests.mfa.signin.test_admins import Admin
from tests.mfa.signin.test_races import one_winner, post, statuses_of
from tests.mfa.signin.test_two_steps import claims
from tests.mfa.webauthn.passkeys import end_users_of, new_authenticator
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant, User, build_tenant
from userflow.admins.actions import create_admin_user

TOTP = "/webauthn/totp"


@pytest.fixture(scope="module")
def strict(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant that requires a factor of all its users."""
    with django_db_blocker.unblock():
        tenant = build_tenant("strict")
        change_tenant(tenant.id, settings={"mfa_policy": "required"})
        return tenant


@pytest.fixture
def ann(strict: TestTenant) -> TestUser:
    """Registered long ago, without a factor."""
    person = new_user(strict)
    person.minutes_pass(60)
    return person


def begin(person: TestUser, login: dict[str, Any]) -> dict[str, Any]:
    """The body that confirms an authenticator and completes the login."""
    headers = {"X-Enrollment-Ticket": login["enrollment_ticket"]}
    begun = Api().post(f"{TOTP}/beginSetup", person.name, headers=headers)
    assert begun.status_code == 200, begun.content
    person.secret = begun.json()["secret"]
    return {**person.name, "secret": person.secret, "code": person.code(), "mfa_token": login["mfa_token"]}


def confirm(body: dict[str, Any], login: dict[str, Any]) -> Any:
    headers = {"X-Enrollment-Ticket": login["enrollment_ticket"]}
    return Api().post(f"{TOTP}/confirmSetup", body, headers=headers)


def enroll(person: TestUser, login: dict[str, Any]) -> None:
    person.enrol_totp(headers={"X-Enrollment-Ticket": login["enrollment_ticket"]})


def verify_login(person: TestUser, login: dict[str, Any], **code: str) -> Any:
    return Api().post(f"{TOTP}/verifyLogin", {**person.name, "mfa_token": login["mfa_token"], **code})


def test_totp_confirmation_completes_login(ann: TestUser) -> None:
    login = ann.sign_in().json()
    done = confirm(begin(ann, login), login)
    assert (done.status_code, len(done.json()["backup_codes"])) == (200, 10)
    assert (done.json()["token_type"], done.headers["Cache-Control"]) == ("Bearer", "no-store")
    said = claims(done.json()["access_token"])
    assert (said["amr"], said["acr"], said["sub"]) == (["pwd", "otp"], "aal2", str(ann.id))
    assert Api(token=done.json()["access_token"]).get("/authmgr/profile").status_code == 200
    body = {"grant_type": "refresh_token", "refresh_token": done.json()["refresh_token"]}
    assert Api().post("/authmgr/token", body).status_code == 200


def test_verify_login_completes_after_enrollment(ann: TestUser) -> None:
    login = ann.sign_in().json()
    enroll(ann, login)
    done = verify_login(ann, login, code=ann.code(1))
    assert (done.status_code, claims(done.json()["access_token"])["amr"]) == (200, ["pwd", "otp"])


def test_confirmed_code_is_used_up(ann: TestUser) -> None:
    login = ann.sign_in().json()
    body = begin(ann, login)
    assert confirm(body, login).status_code == 200
    again = ann.sign_in().json()
    assert again["methods"] == ["totp", "backup_code"]
    assert verify_login(ann, again, code=body["code"]).status_code == 400


def test_sms_confirmation_completes_login(ann: TestUser) -> None:
    login, phone = ann.sign_in().json(), some_phone()
    headers = {"X-Enrollment-Ticket": login["enrollment_ticket"]}
    body = {**ann.named_with_client, "phone_number": phone}
    assert Api().post("/webauthn/sms/beginSetup", body, headers=headers).status_code == 200
    body |= {"code": code_to(phone), "mfa_token": login["mfa_token"]}
    done = Api().post("/webauthn/sms/confirmSetup", body, headers=headers)
    assert (done.status_code, claims(done.json()["access_token"])["amr"]) == (200, ["pwd", "sms"])


def test_sms_verify_completes_after_enrollment(ann: TestUser) -> None:
    login = ann.sign_in().json()
    ann.enrol_phone(headers={"X-Enrollment-Ticket": login["enrollment_ticket"]})
    named = {**ann.named_with_client, "mfa_token": login["mfa_token"]}
    assert Api().post("/webauthn/sms/requestCode", named).status_code == 200
    done = Api().post("/webauthn/sms/verify", {**named, "code": code_to(ann.phone)})
    assert (done.status_code, claims(done.json()["access_token"])["amr"]) == (200, ["pwd", "sms"])


def test_passkey_registration_completes_login(ann: TestUser) -> None:
    login = ann.sign_in().json()
    headers = {"X-Enrollment-Ticket": login["enrollment_ticket"]}
    begun = Api().post("/webauthn/enduser/beginRegistration", ann.name, headers=headers)
    credential = new_authenticator().create(begun.json())
    body = {**ann.name, "credential": credential, "mfa_token": login["mfa_token"]}
    done = Api().post("/webauthn/enduser/finishRegistration", body, headers=headers)
    assert (done.status_code, claims(done.json()["access_token"])["amr"]) == (200, ["pwd", "pop"])


def test_passkey_authentication_completes_after_enrollment(strict: TestTenant, ann: TestUser) -> None:
    login, home = ann.sign_in().json(), end_users_of(strict)
    headers, key = {"X-Enrollment-Ticket": login["enrollment_ticket"]}, new_authenticator()
    begun = Api().post("/webauthn/enduser/beginRegistration", ann.name, headers=headers)
    body = {**ann.name, "credential": key.create(begun.json())}
    assert Api().post("/webauthn/enduser/finishRegistration", body, headers=headers).status_code == 200
    person = User(ann.id, ann.email)
    done = home.finish_authentication(person, key.get(home.options(person)), mfa_token=login["mfa_token"])
    assert (done.status_code, claims(done.json()["access_token"])["amr"]) == (200, ["pwd", "pop"])


def new_admin(tenant_id: UUID | None) -> Admin:
    name = f"first-{secrets.token_hex(5)}"
    made, _ = create_admin_user(tenant_id=tenant_id, username=name, email=f"{name}@example.com", password=PASSWORD)
    return Admin(str(made.pk), name, made.email, "")


def complete_as_admin(eve: Admin, login: dict[str, Any], kind: str) -> Any:
    headers, named = {"X-Enrollment-Ticket": login["enrollment_ticket"]}, {"email": eve.email}
    body: dict[str, Any] = {**named, "mfa_token": login["mfa_token"]}
    if kind == "webauthn":
        begun = Api().post("/webauthn/admin/beginRegistration", named, headers=headers)
        body["credential"] = new_authenticator().create(begun.json())
        return Api().post("/webauthn/admin/finishRegistration", body, headers=headers)
    body["secret"] = Api().post("/webauthn/admin/totp/beginSetup", named, headers=headers).json()["secret"]
    body["code"] = pyotp.TOTP(body["secret"]).now()
    return Api().post("/webauthn/admin/totp/confirmSetup", body, headers=headers)


@pytest.mark.parametrize("kind", ["totp", "webauthn"])
def test_admin_enrollment_completes_login(strict: TestTenant, kind: str) -> None:
    eve = new_admin(strict.id)
    login = eve.sign_in().json()
    assert (login["enrollment_required"], login["methods"]) == (True, [])
    done = complete_as_admin(eve, login, kind)
    assert (done.status_code, claims(done.json()["access_token"])["acr"]) == (200, "aal2")
    assert Api(token=done.json()["access_token"]).get("/uflow/admin/users/me").status_code == 200


def test_operator_enrollment_completes_login(settings: Any) -> None:
    settings.OPERATORS_REQUIRE_FACTOR = True
    eve = new_admin(None)
    done = complete_as_admin(eve, eve.sign_in().json(), "totp")
    assert (done.status_code, claims(done.json()["access_token"])["kind"]) == (200, "operator")


def test_completion_requires_enrollment_proof(ann: TestUser) -> None:
    login = ann.sign_in().json()
    body = begin(ann, login)
    assert Api().post(f"{TOTP}/confirmSetup", body).status_code == 401
    assert ann.row().mfa_methods == []


def test_login_ticket_of_another_user_enrolls_nothing(strict: TestTenant, ann: TestUser) -> None:
    ben = new_user(strict)
    login, other = ann.sign_in().json(), ben.sign_in().json()
    body = begin(ann, login)
    for wrong in (other["mfa_token"], login["enrollment_ticket"], "unknown"):
        assert confirm({**body, "mfa_token": wrong}, login).status_code == 401
    assert ann.row().mfa_methods == []
    assert confirm(body, login).status_code == 200


def test_login_ticket_of_another_tenant_enrolls_nothing(
    strict: TestTenant, other_tenant: TestTenant, ann: TestUser
) -> None:
    ben = new_user(other_tenant).enrol_totp()
    login = ann.sign_in().json()
    body = begin(ann, login)
    assert confirm({**body, "mfa_token": ben.sign_in().json()["mfa_token"]}, login).status_code == 401
    assert confirm({**body, "tenant_id": str(other_tenant.id)}, login).status_code in (401, 404)
    assert ann.row().mfa_methods == []


def test_expired_login_enrolls_nothing(ann: TestUser) -> None:
    login = ann.sign_in().json()
    body = begin(ann, login)
    with in_tenant(ann.tenant.id):
        ann.row().tickets.filter(purpose="second_step").update(expires_at=now() - timedelta(seconds=1))
    assert confirm(body, login).status_code == 401
    assert ann.row().mfa_methods == []


def test_inactive_client_completes_nothing(strict: TestTenant, ann: TestUser) -> None:
    login = ann.sign_in().json()
    body = begin(ann, login)
    change_client(strict.client_id, active=False)
    assert confirm(body, login).status_code == 401
    change_client(strict.client_id, active=True)
    assert ann.row().mfa_methods == []
    assert confirm(body, login).status_code == 200


def test_password_reset_ends_enrollment_and_login(ann: TestUser) -> None:
    login = ann.sign_in().json()
    body = begin(ann, login)
    named = {"email": ann.email, "tenant_id": str(ann.tenant.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", named).status_code == 200
    token = mails_to(ann.email, "new password")[-1].body.partition("token=")[2].split()[0]
    reset = {"token": token, "password": "another horse 8 battery"}
    assert Api().post("/uflow/auth/enduser/password/reset", reset).status_code == 200
    assert confirm(body, login).status_code == 401
    assert ann.row().mfa_methods == []


def test_reset_of_factors_ends_waiting_login(ann: TestUser, operator: Api) -> None:
    login = ann.sign_in().json()
    enroll(ann, login)
    reset = {"tenant_id": str(ann.tenant.id), "user_id": str(ann.id), "reason": "lost"}
    assert operator.post("/webauthn/factors/reset", reset).status_code == 200
    assert verify_login(ann, login, code=ann.code(1)).status_code == 401


def test_other_logins_end_with_first_factor(ann: TestUser) -> None:
    other, login = ann.sign_in().json(), ann.sign_in().json()
    enroll(ann, login)
    assert verify_login(ann, other, code=ann.code(1)).status_code == 401
    headers = {"X-Enrollment-Ticket": other["enrollment_ticket"]}
    assert Api().post("/webauthn/enduser/beginRegistration", ann.name, headers=headers).status_code == 401
    assert verify_login(ann, login, code=ann.code(1)).status_code == 200


def test_login_completes_once(ann: TestUser) -> None:
    login = ann.sign_in().json()
    assert confirm(begin(ann, login), login).status_code == 200
    assert verify_login(ann, login, code=ann.code(1)).status_code == 401


def test_parallel_completions_open_one_session(strict: TestTenant) -> None:
    for _ in range(5):
        ann = new_user(strict)
        login = ann.sign_in().json()
        body, headers = begin(ann, login), {"X-Enrollment-Ticket": login["enrollment_ticket"]}
        assert one_winner(statuses_of([post(f"{TOTP}/confirmSetup", body, headers=headers) for _ in range(4)]))
        with in_tenant(strict.id):
            assert ann.row().sessions.filter(ended_at=None).count() == 1


def test_parallel_second_steps_open_one_session(strict: TestTenant) -> None:
    for _ in range(5):
        ann = new_user(strict)
        login = ann.sign_in().json()
        enroll(ann, login)
        body = {**ann.name, "mfa_token": login["mfa_token"], "code": ann.code(1)}
        assert one_winner(statuses_of([post(f"{TOTP}/verifyLogin", body) for _ in range(4)]))
        with in_tenant(strict.id):
            assert ann.row().sessions.filter(ended_at=None).count() == 1
