"""The general finishRegistration, which issues tokens and is therefore stricter."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.mfa.people import new_user
from tests.mfa.webauthn.authenticator import UP
from tests.mfa.webauthn.passkeys import Home, new_authenticator, user_with_passkey
from tests.world import PASSWORD, Api, TestTenant, User

PATH = "/webauthn/finishRegistration"


@pytest.fixture
def newcomer(tenant: TestTenant) -> tuple[Api, User, str]:
    """A newly registered user with API client and enrollment ticket."""
    api = Api()
    email = f"newcomer-{uuid4()}@example.com"
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    response = api.post("/uflow/user/clients/register", body)
    return api, User(UUID(response.json()["user_id"]), email), response.headers["X-Enrollment-Ticket"]


def _finish(home: Home, api: Api, person: User, credential: Any, **how: Any) -> Any:
    body = {"email": person.email, "credential": credential, **home.naming}
    return api.post(PATH, body, **how)


def test_sign_up_signs_new_user_in(home: Home, tenant: TestTenant, newcomer: tuple[Api, User, str]) -> None:
    api, person, _ = newcomer
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    response = _finish(home, api, person, credential)
    assert response.status_code == 200
    members = {"access_token", "refresh_token", "token_type", "expires_in", "credential_id", "message", "success"}
    assert set(response.json()) == members
    assert (response.json()["success"], response.headers["Cache-Control"]) == (True, "no-store")
    claims = Api(token=response.json()["access_token"]).get("/exsvc/debug/auth").json()["claims"]
    assert (claims["sub"], claims["client_id"]) == (str(person.id), str(tenant.client_id))
    refreshed = Api().post(
        "/authmgr/token", {"grant_type": "refresh_token", "refresh_token": response.json()["refresh_token"]}
    )
    assert refreshed.status_code == 200


def test_sign_up_through_a_window_is_not_enough_where_two_factors_are_required(new_tenant: Any) -> None:
    own = new_tenant()
    changed = {"settings": {"mfa_policy": "required"}}
    assert own.api.patch(f"/uflow/admin/tenants/{own.id}/settings", changed).status_code == 200
    home, api, email = Home("/webauthn/enduser", {"tenant_id": str(own.id)}), Api(), f"newcomer-{uuid4()}@example.com"
    body = {"tenant_id": str(own.id), "client_id": str(own.client_id), "email": email, "password": PASSWORD}
    registered = api.post("/uflow/user/clients/register", body)
    person, proof = (
        User(UUID(registered.json()["user_id"]), email),
        {"X-Enrollment-Ticket": registered.headers["X-Enrollment-Ticket"]},
    )
    key = new_authenticator()
    rejected = _finish(home, api, person, key.create(home.begin_registration(api, person).json()))
    assert (rejected.status_code, rejected.json()["code"]) == (401, "insufficient_user_authentication")
    # Nothing was stored, and the ticket, which proves more than the address, signs in.
    begun = api.post(f"{home.prefix}/beginRegistration", {"email": email, **home.naming}, headers=proof)
    assert _finish(home, api, person, key.create(begun.json()), headers=proof).status_code == 200


def test_sign_up_by_ticket_from_another_address(home: Home, newcomer: tuple[Api, User, str]) -> None:
    _, person, ticket = newcomer
    elsewhere, proof = Api(), {"X-Enrollment-Ticket": ticket}
    begun = elsewhere.post(f"{home.prefix}/beginRegistration", {"email": person.email, **home.naming}, headers=proof)
    credential = new_authenticator().create(begun.json())
    assert _finish(home, elsewhere, person, credential).status_code == 401
    begun = elsewhere.post(f"{home.prefix}/beginRegistration", {"email": person.email, **home.naming}, headers=proof)
    credential = new_authenticator().create(begun.json())
    assert _finish(home, elsewhere, person, credential, headers=proof).status_code == 200


def test_sign_up_requires_user_verification(home: Home, newcomer: tuple[Api, User, str]) -> None:
    api, person, _ = newcomer
    credential = new_authenticator(flags=UP).create(home.begin_registration(api, person).json())
    response = _finish(home, api, person, credential)
    assert (response.status_code, "access_token" in response.json()) == (401, False)
    assert home.begin_authentication(person).status_code == 400  # nothing was stored


def test_sign_up_rejects_another_address(home: Home, tenant: TestTenant, newcomer: tuple[Api, User, str]) -> None:
    api, person, _ = newcomer
    other_caller = Api()
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    assert (
        other_caller.post(f"{home.prefix}/beginRegistration", {"email": person.email, **home.naming}).status_code == 401
    )
    assert _finish(home, other_caller, person, credential).status_code == 401
    other = tenant.register()
    assert _finish(home, tenant.as_user(other), person, credential).status_code == 403
    assert _finish(home, Api(token="nonsense"), person, credential).status_code == 401
    assert home.begin_authentication(person).status_code == 400


def test_sign_up_hides_unknown_users_and_tenants(home: Home, tenant: TestTenant) -> None:
    person = tenant.register()
    credential = new_authenticator().create(home.begin_registration(tenant.as_user(person), person).json())
    unknown = _finish(home, Api(), User(person.id, "unknown@example.com"), credential)
    nowhere = Home(home.prefix, {"tenant_id": "00000000-0000-4000-8000-000000000000"})
    elsewhere = _finish(nowhere, Api(), person, credential)
    assert (unknown.status_code, elsewhere.status_code) == (401, 401)
    assert unknown.json() == elsewhere.json()


def test_sign_up_hides_unknown_tenants_from_operators(
    home: Home, operator: Api, newcomer: tuple[Api, User, str]
) -> None:
    api, person, _ = newcomer
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    nowhere = Home(home.prefix, {"tenant_id": "00000000-0000-4000-8000-000000000000"})
    assert _finish(nowhere, operator, person, credential).status_code == 401
    assert nowhere.finish_authentication(person, credential, api=operator).status_code == 401


def test_confirmed_factor_closes_window(home: Home, newcomer: tuple[Api, User, str]) -> None:
    api, person, _ = newcomer
    first, second = (new_authenticator().create(home.begin_registration(api, person).json()) for _ in range(2))
    assert _finish(home, api, person, first).status_code == 200
    assert _finish(home, api, person, second).status_code == 401
    assert home.begin_registration(api, person).status_code == 401


def test_factor_of_another_kind_closes_window(home: Home, tenant: TestTenant) -> None:
    person = new_user(tenant)
    named = User(person.id, person.email)
    general, plain = (new_authenticator().create(home.begin_registration(person.api, named).json()) for _ in range(2))
    person.enrol_totp(headers={})
    assert _finish(home, person.api, named, general).status_code == 401
    assert home.finish_registration(person.api, named, plain).status_code == 401
    assert home.begin_registration(person.api, named).status_code == 401


def test_sign_up_with_wrong_response_is_400(home: Home, newcomer: tuple[Api, User, str]) -> None:
    api, person, _ = newcomer
    credential = new_authenticator().create(home.begin_registration(api, person).json(), origin="https://evil.example")
    assert _finish(home, api, person, credential).status_code == 400


def test_sign_up_is_for_the_first_factor(home: Home, tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant)
    ticket = tenant.sign_in(person)["mfa_token"]
    signed_in = home.finish_authentication(person, authenticator.get(home.options(person)), mfa_token=ticket).json()
    api = Api(token=signed_in["access_token"])
    credential = new_authenticator().create(home.begin_registration(api, person).json())
    assert _finish(home, Api(), person, credential).status_code == 401
    assert _finish(home, api, person, credential).status_code == 409
