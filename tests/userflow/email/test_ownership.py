"""Verification and password reset by mail end what was set up before the address was verified."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import change_tenant
from tests.mfa.people import TestUser, new_user
from tests.mfa.signin.test_admins import Admin, new_admin
from tests.mfa.signin.test_races import statuses_of
from tests.mfa.webauthn.passkeys import end_users_of
from tests.userflow.mailbox import code_in, mails_to, token_in
from tests.world import PASSWORD, Api, TestTenant, User, build_tenant
from userflow.accounts.models import AdminUser, EndUser

VERIFY, NEW = "/uflow/user/email/verify", "another horse 8 battery"
FORGOT, RESET = "/uflow/auth/enduser/password/forgot", "/uflow/auth/enduser/password/reset"
PROOF, ENDED = "verify your e-mail address", "your address is verified"


@pytest.fixture(scope="module")
def strict(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant that requires verified addresses."""
    with django_db_blocker.unblock():
        tenant = build_tenant("verified")
        change_tenant(tenant.id, settings={"email_verification": "required"})
        return tenant


def token_to(email: str) -> str:
    return token_in(mails_to(email, PROOF)[-1])


def sign_in(person: Any, tenant: TestTenant, password: str = PASSWORD) -> Any:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": password}
    return Api().post("/uflow/auth/enduser/login", body)


def verify(person: Any, *, token: str | None = None, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    return Api(token=token).post(VERIFY, {"token": token_to(person.email), **fields}, headers=headers)


def reset(person: Any, tenant: TestTenant) -> Any:
    assert Api().post(FORGOT, {"email": person.email, "tenant_id": str(tenant.id)}).status_code == 200
    token = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
    done = Api().post(RESET, {"token": token, "password": NEW})
    assert done.status_code == 200, done.content
    return sign_in(person, tenant, NEW)


def is_signed_in(token: str) -> bool:
    return bool(Api(token=token).get("/authmgr/profile").status_code == 200)


def squat(tenant: TestTenant) -> tuple[TestUser, str]:
    """Register an address of someone else, enroll an authenticator and stay signed in."""
    person = new_user(tenant)
    token = person.token()
    person.enrol_totp(token=token)
    return person, token


def by_passkey(tenant: TestTenant, person: Any, key: Any) -> Any:
    home = end_users_of(tenant)
    return home.finish_authentication(None, key.get(home.options()))


# --- the attacks -----------------------------------------------------------------------------------------------------


def test_reset_removes_factors_of_a_foreign_registrant(tenant: TestTenant) -> None:
    person, token = squat(tenant)
    again = reset(person, tenant).json()
    assert (again["mfa_required"], person.row().mfa_methods) == (False, [])
    assert person.row().email_verified_at is not None
    assert not is_signed_in(token)
    assert len(mails_to(person.email, "the way you sign in has changed")) == 2


def test_attackers_passkey_ends_at_verification_and_reset(tenant: TestTenant) -> None:
    person = tenant.register()
    key = end_users_of(tenant).enrol(tenant.as_user(person), person)
    assert verify(person).status_code == 200
    assert by_passkey(tenant, person, key).status_code == 401
    assert reset(person, tenant).json()["mfa_required"] is False


def test_registrants_session_ends_with_verification(tenant: TestTenant) -> None:
    person, token = squat(tenant)
    assert verify(person).status_code == 200
    assert (is_signed_in(token), person.row().mfa_methods) == (False, [])
    (told,) = mails_to(person.email, ENDED)
    assert "another person has chosen the password" in told.body


def test_registrants_ticket_and_window_end_with_verification(tenant: TestTenant) -> None:
    person = new_user(tenant)
    assert verify(person).status_code == 200
    for headers in ({"X-Enrollment-Ticket": person.ticket}, {}):
        assert person.api.post("/webauthn/totp/beginSetup", person.name, headers=headers).status_code == 401
    assert mails_to(person.email, ENDED) == []


def test_registrants_unconfirmed_secret_ends_with_reset(tenant: TestTenant) -> None:
    person = new_user(tenant)
    headers = {"X-Enrollment-Ticket": person.ticket}
    secret = person.api.post("/webauthn/totp/beginSetup", person.name, headers=headers).json()["secret"]
    own = reset(person, tenant).json()["access_token"]
    person.secret = secret
    body = {**person.name, "secret": secret, "code": person.code()}
    assert Api(token=own).post("/webauthn/totp/confirmSetup", body).status_code == 400


def test_foreign_provider_does_not_keep_the_owner_out(tenant: TestTenant) -> None:
    email = f"owner-{secrets.token_hex(5)}@example.com"
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "provider": "google"}
    assert tenant.api.post("/uflow/user/clients/register", body).status_code == 201
    person = User(tenant.admin.id, email)
    assert reset(person, tenant).status_code == 200
    with in_tenant(tenant.id):
        assert EndUser.objects.get(email=email).provider == "local"


def test_reset_of_an_admin_removes_factors_from_before(tenant: TestTenant) -> None:
    eve = new_admin(tenant)
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    AdminUser.objects.filter(pk=eve.id).update(email_verified_at=None)
    assert reset_admin(eve)["mfa_required"] is False
    assert AdminUser.objects.get(pk=eve.id).email_verified_at is not None


def test_reset_of_a_verified_admin_keeps_factors(tenant: TestTenant) -> None:
    eve = new_admin(tenant)
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    AdminUser.objects.filter(pk=eve.id).update(email_verified_at=now())
    assert reset_admin(eve)["mfa_required"] is True


def reset_admin(eve: Admin) -> dict[str, Any]:
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": eve.email}).status_code == 200
    token = mails_to(eve.email, "new password")[-1].body.partition("token=")[2].split()[0]
    assert Api().post("/uflow/auth/admin/password/reset", {"token": token, "password": NEW}).status_code == 200
    return dict(Api().post("/uflow/admin/auth/login", {"username": eve.username, "password": NEW}).json())


# --- the registrant --------------------------------------------------------------------------------------------------


def with_session(person: TestUser, token: str) -> dict[str, Any]:
    return {"token": token}


def with_password(person: TestUser, token: str) -> dict[str, Any]:
    return {"current_password": PASSWORD}


@pytest.mark.parametrize("proof", [with_session, with_password])
def test_registrant_keeps_session_and_factors(tenant: TestTenant, proof: Callable[..., dict[str, Any]]) -> None:
    person, token = squat(tenant)
    sent = proof(person, token)
    done = Api(token=sent.pop("token", None)).post(VERIFY, {"token": token_to(person.email), **sent})
    assert done.status_code == 200, done.content
    assert (is_signed_in(token), person.row().mfa_methods) == (True, ["totp", "backup_code"])
    assert mails_to(person.email, ENDED) == []
    assert reset(person, tenant).json()["mfa_required"] is True


def test_registrant_goes_on_with_the_enrollment_ticket(tenant: TestTenant) -> None:
    person = new_user(tenant)
    sent, headers = mails_to(person.email, PROOF)[-1], {"X-Enrollment-Ticket": person.ticket}
    body = {"tenant_id": str(tenant.id), "email": person.email, "code": code_in(sent)}
    assert Api().post(VERIFY, body, headers=headers).status_code == 200
    assert person.enrol_totp().row().mfa_methods == ["totp", "backup_code"]


def test_proof_of_another_user_verifies_nothing(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, other, twin = new_user(tenant), new_user(tenant), new_user(other_tenant)
    for attacker in (other, twin):
        assert verify(person, headers={"X-Enrollment-Ticket": attacker.ticket}).status_code == 401
        assert Api(token=attacker.token()).post(VERIFY, {"token": token_to(person.email)}).status_code == 403
    assert Api(token=tenant.api.token).post(VERIFY, {"token": token_to(person.email)}).status_code == 403
    assert verify(person, headers={"X-Enrollment-Ticket": "unknown"}).status_code == 401
    assert Api(token="unknown").post(VERIFY, {"token": token_to(person.email)}).status_code == 401
    assert person.row().email_verified_at is None
    assert verify(person).status_code == 200


def test_wrong_password_verifies_nothing_and_is_counted(tenant: TestTenant) -> None:
    person, token = squat(tenant)
    statuses = [verify(person, current_password="wrong").status_code for _ in range(6)]
    assert statuses == [400] * 5 + [429]
    assert (person.row().email_verified_at, is_signed_in(token)) == (None, True)


def test_ended_session_is_no_proof(tenant: TestTenant) -> None:
    person = new_user(tenant)
    token = person.token()
    assert Api(token=token).post("/authmgr/logout").status_code == 200
    assert Api(token=token).post(VERIFY, {"token": token_to(person.email)}).status_code == 401


def test_factor_of_a_verified_address_guards_against_the_mailbox(tenant: TestTenant) -> None:
    person = new_user(tenant)
    assert verify(person).status_code == 200
    person.enrol_totp(token=person.token())
    assert reset(person, tenant).json()["mfa_required"] is True
    assert person.row().mfa_methods == ["totp", "backup_code"]


def test_parallel_resets_and_verification_leave_no_factor(tenant: TestTenant) -> None:
    for _ in range(5):
        person, _ = squat(tenant)
        assert Api().post(FORGOT, {"email": person.email, "tenant_id": str(tenant.id)}).status_code == 200
        link = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
        token = token_to(person.email)
        statuses = statuses_of(
            [
                lambda link=link: Api().post(RESET, {"token": link, "password": NEW}),  # type: ignore[misc]
                lambda token=token: Api().post(VERIFY, {"token": token}),  # type: ignore[misc]
            ]
        )
        assert statuses[0] == 200
        assert statuses[1] in (200, 400)
        assert person.row().mfa_methods == []


def test_audit_says_how_an_address_was_verified(tenant: TestTenant) -> None:
    person, _ = squat(tenant)
    assert verify(person).status_code == 200
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(target_id=str(person.id), action="email.proven")
        removed = TenantEvent.objects.get(target_id=str(person.id), action="factor.removed")
    assert event.details == {"changed": False, "registrant": False, "sessions": 1, "factors": 11}
    assert removed.details["rung"] == "first_link"


# --- verification required -------------------------------------------------------------------------------------------


def test_registration_opens_nothing_before_verification(strict: TestTenant) -> None:
    api, email = Api(), f"first-{secrets.token_hex(5)}@example.com"
    body = {"tenant_id": str(strict.id), "client_id": str(strict.client_id), "email": email, "password": PASSWORD}
    for opener in (api, strict.api):
        response = opener.post("/uflow/user/clients/register", {**body, "email": f"{secrets.token_hex(3)}{email}"})
        assert (response.status_code, "X-Enrollment-Ticket" in response.headers) == (201, False)
    assert api.post("/uflow/user/clients/register", body).status_code == 201
    named = {"tenant_id": str(strict.id), "email": email}
    # A registration is no user before its address is verified.
    assert api.post("/webauthn/totp/beginSetup", named).status_code == 404
    assert api.post("/webauthn/enduser/beginRegistration", named).status_code == 404
    assert Api().post(VERIFY, {"token": token_to(email)}).status_code == 200
    assert api.post("/webauthn/totp/beginSetup", named).status_code == 401


def test_setting_holds_for_open_sessions_and_refresh(new_tenant: Any) -> None:
    tenant = new_tenant()
    person, pair = squat_with_refresh(tenant)
    change_tenant(tenant.id, settings={"email_verification": "required"})
    rejected = Api(token=pair["access_token"]).get("/authmgr/profile")
    assert (rejected.status_code, "Verify your e-mail address" in rejected.json()["message"]) == (403, True)
    body = {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]}
    assert Api().post("/authmgr/token", body).json()["error"] == "invalid_grant"
    assert Api(token=pair["access_token"]).post("/webauthn/totp/beginSetup", person.name).status_code == 403
    done = Api(token=pair["access_token"]).post(VERIFY, {"token": token_to(person.email)})
    assert (done.status_code, is_signed_in(pair["access_token"])) == (200, True)


def squat_with_refresh(tenant: TestTenant) -> tuple[TestUser, dict[str, Any]]:
    person = new_user(tenant)
    return person, dict(person.sign_in().json())


def test_setting_holds_for_second_steps_and_passkeys(new_tenant: Any) -> None:
    tenant = new_tenant()
    person = new_user(tenant).enrol_totp()
    key = end_users_of(tenant).enrol(
        Api(token=completed(person)), User(person.id, person.email), backup_code=person.backup_codes.pop()
    )
    waiting = person.sign_in().json()["mfa_token"]
    change_tenant(tenant.id, settings={"email_verification": "required"})
    body = {**person.name, "mfa_token": waiting, "code": person.code(1)}
    assert Api().post("/webauthn/totp/verifyLogin", body).status_code == 403
    assert by_passkey(tenant, person, key).status_code == 403


def completed(person: TestUser) -> str:
    body = {"mfa_token": person.sign_in().json()["mfa_token"], "backup_code": person.backup_codes.pop()}
    return str(Api().post("/webauthn/totp/verifyLogin", {**person.name, **body}).json()["access_token"])


def test_reset_verifies_where_it_is_required(strict: TestTenant) -> None:
    person = strict.register()
    assert sign_in(person, strict).status_code == 403
    assert reset(person, strict).status_code == 200


def test_resend_serves_unverified_users_of_every_tenant(tenant: TestTenant) -> None:
    person = tenant.register()
    named = {"tenant_id": str(tenant.id), "email": person.email}
    assert Api().post("/uflow/user/email/resend", named).status_code == 200
    assert len(mails_to(person.email, PROOF)) == 2
    assert verify(person).status_code == 200
    assert Api().post("/uflow/user/email/resend", named).status_code == 200
    assert len(mails_to(person.email, PROOF)) == 2
