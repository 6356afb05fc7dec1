"""Signing in through a confidential client needs the client's own secret."""

from typing import Any

import pytest

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.mfa.people import new_user
from tests.mfa.webauthn.passkeys import end_users_of, new_authenticator, user_with_passkey
from tests.userflow.sessions.clients import basic, make_client
from tests.world import PASSWORD, Api, TestTenant, User, capture_statements

LOGIN = "/uflow/auth/enduser/login"


def login(client: dict[str, Any], email: str, **how: Any) -> Any:
    members = how.pop("members", {})
    return Api().post(LOGIN, {"client_id": client["client_id"], "email": email, "password": PASSWORD, **members}, **how)


def assert_rejected(response: Any) -> None:
    assert (response.status_code, response.json()["code"]) == (401, "invalid_client")
    assert response.headers["WWW-Authenticate"].startswith("Basic ")
    assert "access_token" not in response.json()


def test_login_accepts_secret_by_basic_or_in_body(tenant: TestTenant) -> None:
    client, person = make_client(tenant, first_party=True), tenant.register()
    assert login(client, person.email, headers=basic(client)).status_code == 200
    body = login(client, person.email, members={"client_secret": client["client_secret"]})
    assert (body.status_code, body.json()["client_id"]) == (200, client["client_id"])


def test_login_rejects_and_audits_wrong_secret(tenant: TestTenant, other_tenant: TestTenant) -> None:
    client, foreign, person = make_client(tenant, first_party=True), make_client(other_tenant), tenant.register()
    assert_rejected(login(client, person.email))
    assert_rejected(login(client, person.email, members={"client_secret": "ics_wrong"}))
    assert_rejected(login(client, person.email, headers=basic(client, foreign["client_secret"])))
    assert_rejected(login(client, person.email, headers=basic(foreign)))
    assert_rejected(login(client, "unknown@example.com"))
    with in_tenant(tenant.id):
        assert TenantEvent.objects.filter(action="client.refused", target_id=client["client_id"]).count() == 5


def test_login_rejects_two_secrets(tenant: TestTenant) -> None:
    client, person = make_client(tenant, first_party=True), tenant.register()
    response = login(client, person.email, headers=basic(client), members={"client_secret": client["client_secret"]})
    assert (response.status_code, set(response.json()["details"])) == (400, {"client_secret"})


def test_login_through_public_client_rejects_secret(tenant: TestTenant) -> None:
    person, public = tenant.register(), {"client_id": str(tenant.client_id)}
    assert_rejected(login(public, person.email, members={"client_secret": "ics_any"}))
    proxy = {"Authorization": "Basic c3RhZ2luZzpzZWNyZXQ="}
    assert login(public, person.email, headers=proxy).status_code == 200


def test_rotated_secret_works_during_overlap_only(tenant: TestTenant) -> None:
    client, person = make_client(tenant, first_party=True), tenant.register()
    path = f"/clientms/tenants/{tenant.id}/clients/{client['id']}/secret"
    tenant.api.post(path, {"overlap_seconds": 60})
    assert login(client, person.email, headers=basic(client)).status_code == 200
    tenant.api.post(path, {"overlap_seconds": 0})
    assert_rejected(login(client, person.email, headers=basic(client)))


def test_wrong_client_secrets_limit_the_address(tenant: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "wrong_secret": (3, 600)}
    client, person, api = make_client(tenant, first_party=True), tenant.register(), Api()
    sent = {"client_id": client["client_id"], "email": person.email, "password": PASSWORD}
    statuses = [api.post(LOGIN, sent).status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 401, 429] or statuses == [401, 401, 401, 429, 429]


def test_second_step_needs_no_secret(tenant: TestTenant) -> None:
    client, person = make_client(tenant, first_party=True), new_user(tenant).enrol_totp()
    ticket = login(client, person.email, headers=basic(client)).json()["mfa_token"]
    response = Api().post("/webauthn/totp/verifyLogin", {**person.name, "code": person.code(1), "mfa_token": ticket})
    assert (response.status_code, "access_token" in response.json()) == (200, True)


def test_passkey_sign_in_needs_client_secret(tenant: TestTenant) -> None:
    client, home = make_client(tenant, first_party=True), end_users_of(tenant)
    person, authenticator = user_with_passkey(tenant)

    def finish(**members: Any) -> Any:
        begun = home.begin_authentication(client_id=client["client_id"])
        sent = {"tenant_id": str(tenant.id), "response": authenticator.get(begun.json()), **members}
        return Api().post("/webauthn/enduser/finishAuthentication", sent)

    assert_rejected(finish())
    assert_rejected(finish(client_secret="ics_wrong"))
    signed_in = finish(client_secret=client["client_secret"])
    assert (signed_in.status_code, signed_in.json()["user_id"]) == (200, str(person.id))


def test_passkey_sign_up_needs_client_secret(tenant: TestTenant) -> None:
    client, api = make_client(tenant, self_registration=True, first_party=True), Api()
    members = {"tenant_id": str(tenant.id), "client_id": client["client_id"], "password": PASSWORD}
    made = api.post("/uflow/user/clients/register", {**members, "email": f"{client['id']}@example.com"}).json()
    home, person = end_users_of(tenant), User(made["user_id"], made["email"])

    def finish(**members: Any) -> Any:
        credential = new_authenticator().create(home.begin_registration(api, person).json())
        sent = {"email": person.email, "tenant_id": str(tenant.id), "credential": credential, **members}
        return api.post("/webauthn/finishRegistration", sent)

    assert_rejected(finish())
    response = finish(client_secret=client["client_secret"])
    assert (response.status_code, "access_token" in response.json()) == (200, True)


@pytest.mark.parametrize("confidential", [False, True])
def test_client_secret_costs_no_statement(tenant: TestTenant, confidential: bool) -> None:
    client = (
        make_client(tenant, first_party=True)
        if confidential
        else {"client_id": str(tenant.client_id), "client_secret": ""}
    )
    how = {"headers": basic(client)} if confidential else {}
    person = tenant.register()
    login(client, person.email, **how)
    with capture_statements() as seen:
        assert login(client, person.email, **how).status_code == 200
    assert seen.counts == (0, 3)
