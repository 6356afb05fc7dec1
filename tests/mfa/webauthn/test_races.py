"""One challenge, one winner, however many come at once."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, new_authenticator, somebody_with_passkey
from tests.parallel import at_once
from tests.world import Api, House, Person

AT_ONCE = 8
ROUNDS = 50


def _together(calls: list[Callable[[], Any]]) -> Counter[int]:
    """Statuses of calls that all start at the same moment, each in a thread of its own."""
    return Counter(int(answer.status_code) for answer in at_once(calls))


@pytest.fixture
def not_counting(house: House) -> tuple[Person, Authenticator]:
    """Somebody whose authenticator does not count: only the challenge stands between one use and the next."""
    return somebody_with_passkey(house, counting=False)


def test_one_assertion_many_times(home: Home, not_counting: tuple[Person, Authenticator]) -> None:
    _person, authenticator = not_counting
    for _ in range(ROUNDS):
        response = authenticator.get(home.options())
        statuses = _together([lambda sent=response: home.finish_authentication(None, sent)] * AT_ONCE)
        assert statuses == {200: 1, 401: AT_ONCE - 1}


def test_one_challenge_many_assertions(home: Home, house: House) -> None:
    _person, authenticator = somebody_with_passkey(house)
    for _ in range(ROUNDS):
        options = home.options()
        responses = [authenticator.get(options) for _ in range(AT_ONCE)]
        statuses = _together([lambda sent=sent: home.finish_authentication(None, sent) for sent in responses])
        assert statuses == {200: 1, 401: AT_ONCE - 1}


def test_one_counter_many_challenges(home: Home, house: House) -> None:
    _, authenticator = somebody_with_passkey(house)
    for count in range(1, ROUNDS + 1):
        responses = [authenticator.get(home.options(), sign_count=count) for _ in range(AT_ONCE)]
        statuses = _together([lambda sent=sent: home.finish_authentication(None, sent) for sent in responses])
        assert statuses == {200: 1, 401: AT_ONCE - 1}


def test_one_ticket_many_assertions(home: Home, house: House) -> None:
    person, authenticator = somebody_with_passkey(house, counting=False)
    ticket = house.sign_in(person)["mfa_token"]
    responses = [authenticator.get(home.options(person)) for _ in range(4)]
    statuses = _together(
        [lambda sent=sent: home.finish_authentication(person, sent, mfa_token=ticket) for sent in responses]
    )
    assert statuses == {200: 1, 401: 3}


def test_one_registration_challenge(home: Home, house: House) -> None:
    person = house.register()
    door = house.as_user(person)
    options = home.begin_registration(door, person).json()
    credentials = [new_authenticator().create(options) for _ in range(AT_ONCE)]
    statuses = _together(
        [lambda sent=sent: home.finish_registration(Api(token=door.token), person, sent) for sent in credentials]
    )
    assert statuses == {200: 1, 400: AT_ONCE - 1}


def test_one_window_many_challenges(home: Home, house: House) -> None:
    door = Api()
    email = f"window-race-{secrets.token_hex(4)}@example.com"
    body = {"tenant_id": str(house.id), "client_id": str(house.client_id), "email": email, "password": "a long one 9"}
    person = Person(door.post("/uflow/user/clients/register", body).json()["user_id"], email)
    credentials = [new_authenticator().create(home.begin_registration(door, person).json()) for _ in range(AT_ONCE)]
    statuses = _together(
        [lambda sent=sent: home.finish_registration(Api(address=door.address), person, sent) for sent in credentials]
    )
    assert statuses == {200: 1, 401: AT_ONCE - 1}
