"""Enrollment windows: which address may enroll without a header, what closes them, and what they enroll."""

from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user
from tests.mfa.signin.test_admins import new_admin
from tests.mfa.signin.test_two_steps import claims
from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, end_users_of, new_authenticator
from tests.userflow.mailbox import code_in, mails_to
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.models import EndUser

BEGIN = "/webauthn/totp/beginSetup"
FINISH = "/webauthn/finishRegistration"


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant)


def begun(person: TestUser, api: Api | None = None, **headers: str) -> int:
    return int((api or person.api).post(BEGIN, person.name, headers=headers).status_code)


def home_of(person: TestUser) -> tuple[Home, User]:
    return end_users_of(person.tenant), User(person.id, person.email)


def signed_up(person: TestUser, api: Api | None = None, **how: Any) -> Any:
    """The general finishRegistration."""
    home, _ = home_of(person)
    api = api or person.api
    begun = api.post(f"{home.prefix}/beginRegistration", person.name, **how)
    assert begun.status_code == 200, begun.content
    body = {**person.name, **person.proof(), "credential": new_authenticator().create(begun.json())}
    return api.post(FINISH, body, **how)


def alone(person: TestUser, key: Authenticator) -> Any:
    """A sign-in with the passkey alone."""
    home, _ = home_of(person)
    return home.finish_authentication(None, key.get(home.options()))


def after_password(person: TestUser, key: Authenticator) -> Any:
    home, named = home_of(person)
    mfa_token = person.sign_in().json()["mfa_token"]
    return home.finish_authentication(named, key.get(home.options(named)), mfa_token=mfa_token)


def test_sign_in_from_another_address_closes_the_window(ann: TestUser) -> None:
    ann.sign_in(ann.api)
    assert begun(ann) == 200
    elsewhere = Api()
    ann.sign_in(elsewhere)
    assert (begun(ann), begun(ann, elsewhere)) == (401, 200)


def test_login_awaiting_factor_closes_other_windows(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"settings": {"mfa_policy": "required"}}).status_code == 200
    ann, elsewhere = new_user(own), Api()
    assert ann.sign_in(elsewhere).json()["enrollment_required"] is True
    assert (begun(ann), begun(ann, elsewhere)) == (401, 200)


def test_sign_in_of_another_user_closes_nothing(tenant: TestTenant, ann: TestUser) -> None:
    new_user(tenant).sign_in()
    assert begun(ann) == 200


def test_admin_sign_in_from_another_address_closes_the_window(settings: Any, tenant: TestTenant) -> None:
    settings.EMBEDDED = True
    eve, first, second = new_admin(tenant), Api(), Api()
    for api in (first, second):
        api.post("/uflow/admin/auth/login", {"username": eve.username, "password": PASSWORD})
    tried = [api.post("/webauthn/admin/totp/beginSetup", {"email": eve.email}).status_code for api in (first, second)]
    assert tried == [401, 200]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_forwarding_header_opens_and_uses_no_window(tenant: TestTenant, ann: TestUser, name: str) -> None:
    # A proxy that is not configured: all its callers have its address.
    assert (begun(ann, **{name: "192.0.2.1"}), begun(ann)) == (401, 200)
    login = {"client_id": str(tenant.client_id), "email": ann.email, "password": PASSWORD}
    proxy = Api()
    assert proxy.post("/uflow/auth/enduser/login", login, headers={name: "192.0.2.1"}).status_code == 200
    # The address is not that of the other window, so that one is closed.
    assert (begun(ann, proxy), begun(ann)) == (401, 401)


def test_behind_a_proxy_the_window_is_the_callers(settings: Any, tenant: TestTenant) -> None:
    settings.TRUSTED_PROXY_HOPS, proxy = 1, Api()
    forwarded = {"X-Forwarded-For": "192.0.2.77"}
    email = f"behind-{proxy.address}@example.com"
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    assert proxy.post("/uflow/user/clients/register", body, headers=forwarded).status_code == 201
    named = {"email": email, "tenant_id": str(tenant.id)}
    tried = [proxy.post(BEGIN, named, headers=headers).status_code for headers in (forwarded, {})]
    # Without the header the address is the proxy's.
    assert (tried, proxy.post("/uflow/user/clients/register", {**body, "email": f"x-{email}"}).status_code) == (
        [200, 401],
        201,
    )
    assert proxy.post(BEGIN, {**named, "email": f"x-{email}"}).status_code == 401


# --- what a window enrolls -------------------------------------------------------------------------------------------


def test_passkey_of_a_window_needs_the_password_once(ann: TestUser) -> None:
    home, named = home_of(ann)
    key = home.enrol(ann.api, named)
    refused = alone(ann, key)
    assert (refused.status_code, "Sign in once with your password" in refused.json()["message"]) == (401, True)
    assert after_password(ann, key).status_code == 200
    assert alone(ann, key).status_code == 200


def test_passkey_of_a_ticket_signs_in_alone(ann: TestUser) -> None:
    home, _ = home_of(ann)
    proof, key = {"X-Enrollment-Ticket": ann.ticket}, new_authenticator()
    options = Api().post(f"{home.prefix}/beginRegistration", ann.name, headers=proof).json()
    body = {**ann.name, "credential": key.create(options)}
    assert Api().post(f"{home.prefix}/finishRegistration", body, headers=proof).status_code == 200
    assert alone(ann, key).status_code == 200


def test_unknown_and_second_step_passkeys_open_no_session(ann: TestUser) -> None:
    home, named = home_of(ann)
    key = home.enrol(ann.api, named)
    for _ in range(2):
        assert "access_token" not in alone(ann, key).json()
    with in_tenant(ann.tenant.id):
        assert not EndUser.objects.get(pk=ann.id).sessions.exists()


def test_sign_up_in_a_window_is_one_factor(ann: TestUser) -> None:
    response = signed_up(ann)
    assert response.status_code == 200, response.content
    said = claims(response.json()["access_token"])
    assert (said["amr"], said["acr"]) == (["pop"], "aal1")


@pytest.mark.parametrize("proof", ["ticket", "bearer"])
def test_sign_up_by_ticket_or_session_is_two_factors(ann: TestUser, proof: str) -> None:
    how: dict[str, Any] = (
        {"headers": {"X-Enrollment-Ticket": ann.ticket}} if proof == "ticket" else {"token": ann.token()}
    )
    said = claims(signed_up(ann, Api(), **how).json()["access_token"])
    assert (said["amr"], said["acr"]) == (["pop", "mfa"], "aal2")


def test_sign_up_in_window_rejects_users_who_signed_in(ann: TestUser) -> None:
    ann.sign_in(ann.api)
    home, named = home_of(ann)
    credential = new_authenticator().create(home.begin_registration(ann.api, named).json())
    assert ann.api.post(FINISH, {**ann.name, "credential": credential}).status_code == 401
    assert ann.row().mfa_methods == []


def test_sign_up_adds_no_second_factor(ann: TestUser) -> None:
    ann.enrol_totp()
    proof = {"X-Enrollment-Ticket": ann.ticket}
    home, _ = home_of(ann)
    options = Api().post(f"{home.prefix}/beginRegistration", ann.name, headers=proof).json()
    response = Api().post(FINISH, {**ann.name, "credential": new_authenticator().create(options)}, headers=proof)
    assert (response.status_code, "enduser/finishRegistration" in response.json()["message"]) == (409, True)
    assert "webauthn" not in ann.row().mfa_methods


# --- where the address must be verified first ------------------------------------------------------------------------


@pytest.fixture
def strict(new_tenant: Any, operator: Api) -> TestTenant:
    own: TestTenant = new_tenant()
    changed = {"settings": {"email_verification": "required"}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", changed).status_code == 200
    return own


def test_unverified_users_get_neither_ticket_nor_window(strict: TestTenant) -> None:
    api, email = Api(), "strict@example.com"
    body = {"tenant_id": str(strict.id), "client_id": str(strict.client_id), "email": email, "password": PASSWORD}
    registered = api.post("/uflow/user/clients/register", body)
    assert (registered.status_code, "X-Enrollment-Ticket" in registered.headers) == (201, False)
    named = {"email": email, "tenant_id": str(strict.id)}
    # A registration is no user before its address is verified.
    assert api.post(BEGIN, named).status_code == 404
    verified = {**named, "code": code_in(mails_to(email)[-1])}
    assert Api().post("/uflow/user/email/verify", verified).status_code == 200
    signed_in = api.post("/uflow/auth/enduser/login", {key: body[key] for key in ("client_id", "email", "password")})
    assert signed_in.headers["X-Enrollment-Ticket"]
    assert api.post(BEGIN, named).status_code == 200


def test_proofs_from_before_the_rule_enroll_nothing(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    ann = new_user(own)
    token = str(ann.sign_in(ann.api).json()["access_token"])
    changed = {"settings": {"email_verification": "required"}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", changed).status_code == 200
    proofs: list[dict[str, Any]] = [{}, {"headers": {"X-Enrollment-Ticket": ann.ticket}}, {"token": token}]
    assert [ann.api.post(BEGIN, ann.name, **how).status_code for how in proofs] == [403, 403, 403]
    passed = {"tenant_id": str(own.id), "user_id": str(ann.id), "reason": "lost", "delivery": "mail"}
    response = own.api.post("/webauthn/enrollment-passes", passed)
    assert (response.status_code, "verified" in response.json()["message"]) == (409, True)
