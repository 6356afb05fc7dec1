"""Of parallel uses of a challenge, one succeeds."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, new_authenticator, user_with_passkey
from tests.parallel import ROUNDS, run_concurrently
from tests.world import Api, TestTenant, User

AT_ONCE = 8


def _together(calls: list[Callable[[], Any]]) -> Counter[int]:
    """Statuses of calls that all start at the same moment, each in a thread of its own."""
    return Counter(int(response.status_code) for response in run_concurrently(calls))


@pytest.fixture
def not_counting(tenant: TestTenant) -> tuple[User, Authenticator]:
    """A user whose authenticator has no counter: only the challenge prevents a second use."""
    return user_with_passkey(tenant, counting=False)


def test_assertion_has_one_winner(home: Home, not_counting: tuple[User, Authenticator]) -> None:
    _person, authenticator = not_counting
    for _ in range(ROUNDS):
        response = authenticator.get(home.options())
        statuses = _together([lambda sent=response: home.finish_authentication(None, sent)] * AT_ONCE)
        assert statuses == {200: 1, 401: AT_ONCE - 1}


def test_challenge_has_one_winner(home: Home, tenant: TestTenant) -> None:
    _person, authenticator = user_with_passkey(tenant)
    for _ in range(ROUNDS):
        options = home.options()
        responses = [authenticator.get(options) for _ in range(AT_ONCE)]
        statuses = _together([lambda sent=sent: home.finish_authentication(None, sent) for sent in responses])
        assert statuses == {200: 1, 401: AT_ONCE - 1}


def test_counter_has_one_winner(home: Home, tenant: TestTenant) -> None:
    _, authenticator = user_with_passkey(tenant)
    for count in range(1, ROUNDS + 1):
        responses = [authenticator.get(home.options(), sign_count=count) for _ in range(AT_ONCE)]
        statuses = _together([lambda sent=sent: home.finish_authentication(None, sent) for sent in responses])
        assert statuses == {200: 1, 401: AT_ONCE - 1}


def test_ticket_has_one_winner(home: Home, tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant, counting=False)
    ticket = tenant.sign_in(person)["mfa_token"]
    responses = [authenticator.get(home.options(person)) for _ in range(4)]
    statuses = _together(
        [lambda sent=sent: home.finish_authentication(person, sent, mfa_token=ticket) for sent in responses]
    )
    assert statuses == {200: 1, 401: 3}


def test_registration_challenge_has_one_winner(home: Home, tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    options = home.begin_registration(api, person).json()
    credentials = [new_authenticator().create(options) for _ in range(AT_ONCE)]
    statuses = _together(
        [lambda sent=sent: home.finish_registration(Api(token=api.token), person, sent) for sent in credentials]
    )
    # A request that arrives after the first passkey is stored must prove more than the password first: 401.
    assert statuses[200] == 1
    assert statuses[400] + statuses[401] == AT_ONCE - 1


def test_window_has_one_winner(home: Home, tenant: TestTenant) -> None:
    api = Api()
    email = f"window-race-{secrets.token_hex(4)}@example.com"
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": "a long one 9"}
    person = User(api.post("/uflow/user/clients/register", body).json()["user_id"], email)
    credentials = [new_authenticator().create(home.begin_registration(api, person).json()) for _ in range(AT_ONCE)]
    statuses = _together(
        [lambda sent=sent: home.finish_registration(Api(address=api.address), person, sent) for sent in credentials]
    )
    assert statuses == {200: 1, 401: AT_ONCE - 1}
