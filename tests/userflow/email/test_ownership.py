"""What is set up for an address before its owner has verified it: a verification and a reset by mail end it."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from tenants.context import in_tenant
from tenants.models import Tenant
from tests.mfa.people import Somebody, somebody
from tests.mfa.signin.test_admins import Admin, new_admin
from tests.mfa.signin.test_races import statuses_of
from tests.mfa.webauthn.passkeys import end_users_of
from tests.userflow.mailbox import code_in, mails_to, token_in
from tests.world import PASSWORD, Api, House, Person, build_house
from userflow.accounts.models import AdminUser, EndUser

VERIFY, NEW = "/uflow/user/email/verify", "another horse 8 battery"
FORGOT, RESET = "/uflow/auth/enduser/password/forgot", "/uflow/auth/enduser/password/reset"
PROOF, ENDED = "is this your address", "your address is verified"


@pytest.fixture(scope="module")
def strict(django_db_setup: None, django_db_blocker: Any) -> House:
    """A tenant that requires verified addresses."""
    with django_db_blocker.unblock():
        house = build_house("verified")
        Tenant.objects.filter(pk=house.id).update(settings={"email_verification": "required"})
        return house


def token_to(email: str) -> str:
    return token_in(mails_to(email, PROOF)[-1])


def sign_in(person: Any, house: House, password: str = PASSWORD) -> Any:
    body = {"client_id": str(house.client_id), "email": person.email, "password": password}
    return Api().post("/uflow/auth/enduser/login", body)


def verify(person: Any, *, token: str | None = None, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    return Api(token=token).post(VERIFY, {"token": token_to(person.email), **fields}, headers=headers)


def reset(person: Any, house: House) -> Any:
    assert Api().post(FORGOT, {"email": person.email, "tenant_id": str(house.id)}).status_code == 200
    token = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
    done = Api().post(RESET, {"token": token, "password": NEW})
    assert done.status_code == 200, done.content
    return sign_in(person, house, NEW)


def is_signed_in(token: str) -> bool:
    return bool(Api(token=token).get("/authmgr/profile").status_code == 200)


def squat(house: House) -> tuple[Somebody, str]:
    """A stranger registers the address, enrolls an authenticator and stays signed in."""
    person = somebody(house)
    token = person.token()
    person.enrol_totp(token=token)
    return person, token


def by_passkey(house: House, person: Any, key: Any) -> Any:
    home = end_users_of(house)
    return home.finish_authentication(None, key.get(home.options()))


# --- the attacks -----------------------------------------------------------------------------------------------------


def test_reset_removes_what_a_stranger_has_set_up(house: House) -> None:
    person, token = squat(house)
    again = reset(person, house).json()
    assert (again["mfa_required"], person.row().mfa_methods) == (False, [])
    assert person.row().email_verified_at is not None
    assert not is_signed_in(token)
    assert len(mails_to(person.email, "the way you sign in has changed")) == 2


def test_strangers_passkey_survives_neither_verification_nor_reset(house: House) -> None:
    person = house.register()
    key = end_users_of(house).enrol(house.as_user(person), person)
    assert verify(person).status_code == 200
    assert by_passkey(house, person, key).status_code == 401
    assert reset(person, house).json()["mfa_required"] is False


def test_strangers_session_ends_with_verification(house: House) -> None:
    person, token = squat(house)
    assert verify(person).status_code == 200
    assert (is_signed_in(token), person.row().mfa_methods) == (False, [])
    (told,) = mails_to(person.email, ENDED)
    assert "somebody else has chosen the password" in told.body


def test_strangers_ticket_and_window_end_with_verification(house: House) -> None:
    person = somebody(house)
    assert verify(person).status_code == 200
    for headers in ({"X-Enrollment-Ticket": person.ticket}, {}):
        assert person.api.post("/webauthn/totp/beginSetup", person.name, headers=headers).status_code == 401
    assert mails_to(person.email, ENDED) == []


def test_strangers_unconfirmed_secret_ends_with_reset(house: House) -> None:
    person = somebody(house)
    headers = {"X-Enrollment-Ticket": person.ticket}
    secret = person.api.post("/webauthn/totp/beginSetup", person.name, headers=headers).json()["secret"]
    own = reset(person, house).json()["access_token"]
    person.secret = secret
    body = {**person.name, "secret": secret, "code": person.code()}
    assert Api(token=own).post("/webauthn/totp/confirmSetup", body).status_code == 400


def test_foreign_provider_does_not_keep_the_owner_out(house: House) -> None:
    email = f"owner-{secrets.token_hex(5)}@example.com"
    body = {"tenant_id": str(house.id), "client_id": str(house.client_id), "email": email, "provider": "google"}
    assert house.api.post("/uflow/user/clients/register", body).status_code == 201
    person = Person(house.admin.id, email)
    assert reset(person, house).status_code == 200
    with in_tenant(house.id):
        assert EndUser.objects.get(email=email).provider == "local"


def test_reset_of_an_admin_removes_factors_from_before(house: House) -> None:
    eve = new_admin(house)
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    AdminUser.objects.filter(pk=eve.id).update(email_verified_at=None)
    assert reset_admin(eve)["mfa_required"] is False
    assert AdminUser.objects.get(pk=eve.id).email_verified_at is not None


def test_reset_of_a_verified_admin_keeps_factors(house: House) -> None:
    eve = new_admin(house)
    assert eve.enrol(headers={"X-Enrollment-Ticket": eve.ticket}).status_code == 200
    AdminUser.objects.filter(pk=eve.id).update(email_verified_at=now())
    assert reset_admin(eve)["mfa_required"] is True


def reset_admin(eve: Admin) -> dict[str, Any]:
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": eve.email}).status_code == 200
    token = mails_to(eve.email, "new password")[-1].body.partition("token=")[2].split()[0]
    assert Api().post("/uflow/auth/admin/password/reset", {"token": token, "password": NEW}).status_code == 200
    return dict(Api().post("/uflow/admin/auth/login", {"username": eve.username, "password": NEW}).json())


# --- the registrant --------------------------------------------------------------------------------------------------


def with_session(person: Somebody, token: str) -> dict[str, Any]:
    return {"token": token}


def with_password(person: Somebody, token: str) -> dict[str, Any]:
    return {"current_password": PASSWORD}


@pytest.mark.parametrize("proof", [with_session, with_password])
def test_registrant_keeps_session_and_factors(house: House, proof: Callable[..., dict[str, Any]]) -> None:
    person, token = squat(house)
    sent = proof(person, token)
    done = Api(token=sent.pop("token", None)).post(VERIFY, {"token": token_to(person.email), **sent})
    assert done.status_code == 200, done.content
    assert (is_signed_in(token), person.row().mfa_methods) == (True, ["totp", "backup_code"])
    assert mails_to(person.email, ENDED) == []
    assert reset(person, house).json()["mfa_required"] is True


def test_registrant_goes_on_with_the_enrollment_ticket(house: House) -> None:
    person = somebody(house)
    sent, headers = mails_to(person.email, PROOF)[-1], {"X-Enrollment-Ticket": person.ticket}
    body = {"tenant_id": str(house.id), "email": person.email, "code": code_in(sent)}
    assert Api().post(VERIFY, body, headers=headers).status_code == 200
    assert person.enrol_totp().row().mfa_methods == ["totp", "backup_code"]


def test_proof_of_another_user_verifies_nothing(house: House, other_house: House) -> None:
    person, other, twin = somebody(house), somebody(house), somebody(other_house)
    for stranger in (other, twin):
        assert verify(person, headers={"X-Enrollment-Ticket": stranger.ticket}).status_code == 401
        assert Api(token=stranger.token()).post(VERIFY, {"token": token_to(person.email)}).status_code == 403
    assert Api(token=house.api.token).post(VERIFY, {"token": token_to(person.email)}).status_code == 403
    assert verify(person, headers={"X-Enrollment-Ticket": "unknown"}).status_code == 401
    assert Api(token="unknown").post(VERIFY, {"token": token_to(person.email)}).status_code == 401
    assert person.row().email_verified_at is None
    assert verify(person).status_code == 200


def test_wrong_password_verifies_nothing_and_is_counted(house: House) -> None:
    person, token = squat(house)
    statuses = [verify(person, current_password="wrong").status_code for _ in range(6)]
    assert statuses == [400] * 5 + [429]
    assert (person.row().email_verified_at, is_signed_in(token)) == (None, True)


def test_ended_session_is_no_proof(house: House) -> None:
    person = somebody(house)
    token = person.token()
    assert Api(token=token).post("/authmgr/logout").status_code == 200
    assert Api(token=token).post(VERIFY, {"token": token_to(person.email)}).status_code == 401


def test_factor_of_a_verified_address_guards_against_the_mailbox(house: House) -> None:
    person = somebody(house)
    assert verify(person).status_code == 200
    person.enrol_totp(token=person.token())
    assert reset(person, house).json()["mfa_required"] is True
    assert person.row().mfa_methods == ["totp", "backup_code"]


def test_parallel_resets_and_verification_leave_no_factor(house: House) -> None:
    for _ in range(5):
        person, _ = squat(house)
        assert Api().post(FORGOT, {"email": person.email, "tenant_id": str(house.id)}).status_code == 200
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


def test_audit_says_how_an_address_was_verified(house: House) -> None:
    person, _ = squat(house)
    assert verify(person).status_code == 200
    with in_tenant(house.id):
        event = TenantEvent.objects.get(target_id=str(person.id), action="email.proven")
        removed = TenantEvent.objects.get(target_id=str(person.id), action="factor.removed")
    assert event.details == {"changed": False, "registrant": False, "sessions": 1, "factors": 11}
    assert removed.details["rung"] == "first_link"


# --- verification required -------------------------------------------------------------------------------------------


def test_registration_opens_nothing_before_verification(strict: House) -> None:
    door, email = Api(), f"first-{secrets.token_hex(5)}@example.com"
    body = {"tenant_id": str(strict.id), "client_id": str(strict.client_id), "email": email, "password": PASSWORD}
    for opener in (door, strict.api):
        answer = opener.post("/uflow/user/clients/register", {**body, "email": f"{secrets.token_hex(3)}{email}"})
        assert (answer.status_code, "X-Enrollment-Ticket" in answer.headers) == (201, False)
    assert door.post("/uflow/user/clients/register", body).status_code == 201
    named = {"tenant_id": str(strict.id), "email": email}
    assert door.post("/webauthn/totp/beginSetup", named).status_code == 401
    assert door.post("/webauthn/enduser/beginRegistration", named).status_code == 401
    assert Api().post(VERIFY, {"token": token_to(email)}).status_code == 200
    assert door.post("/webauthn/totp/beginSetup", named).status_code == 401


def test_setting_holds_for_open_sessions_and_refresh(new_house: Any) -> None:
    house = new_house()
    person, pair = squat_with_refresh(house)
    Tenant.objects.filter(pk=house.id).update(settings={"email_verification": "required"})
    refused = Api(token=pair["access_token"]).get("/authmgr/profile")
    assert (refused.status_code, "Verify your e-mail address" in refused.json()["message"]) == (403, True)
    body = {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]}
    assert Api().post("/authmgr/token", body).json()["error"] == "invalid_grant"
    assert Api(token=pair["access_token"]).post("/webauthn/totp/beginSetup", person.name).status_code == 403
    done = Api(token=pair["access_token"]).post(VERIFY, {"token": token_to(person.email)})
    assert (done.status_code, is_signed_in(pair["access_token"])) == (200, True)


def squat_with_refresh(house: House) -> tuple[Somebody, dict[str, Any]]:
    person = somebody(house)
    return person, dict(person.sign_in().json())


def test_setting_holds_for_second_steps_and_passkeys(new_house: Any) -> None:
    house = new_house()
    person = somebody(house).enrol_totp()
    key = end_users_of(house).enrol(Api(token=completed(person)), Person(person.id, person.email))
    waiting = person.sign_in().json()["mfa_token"]
    Tenant.objects.filter(pk=house.id).update(settings={"email_verification": "required"})
    body = {**person.name, "mfa_token": waiting, "code": person.code(1)}
    assert Api().post("/webauthn/totp/verifyLogin", body).status_code == 403
    assert by_passkey(house, person, key).status_code == 403


def completed(person: Somebody) -> str:
    body = {"mfa_token": person.sign_in().json()["mfa_token"], "backup_code": person.backup_codes.pop()}
    return str(Api().post("/webauthn/totp/verifyLogin", {**person.name, **body}).json()["access_token"])


def test_reset_verifies_where_it_is_required(strict: House) -> None:
    person = strict.register()
    assert sign_in(person, strict).status_code == 403
    assert reset(person, strict).status_code == 200


def test_resend_serves_unverified_users_of_every_tenant(house: House) -> None:
    person = house.register()
    named = {"tenant_id": str(house.id), "email": person.email}
    assert Api().post("/uflow/user/email/resend", named).status_code == 200
    assert len(mails_to(person.email, PROOF)) == 2
    assert verify(person).status_code == 200
    assert Api().post("/uflow/user/email/resend", named).status_code == 200
    assert len(mails_to(person.email, PROOF)) == 2
