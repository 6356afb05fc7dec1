"""Logout tokens of identity providers: each attack is rejected for its own reason."""

from typing import Any

import pytest

from tests.userflow.clients.keys import new_key
from tests.userflow.sessions.foreign import (
    CLIENT,
    EVENT,
    ISSUER,
    MOMENT,
    NONCE,
    REMOVED,
    id_claims,
    keys_of,
    logout_claims,
    segment,
    token,
)
from userflow.sessions.foreign_tokens import (
    Expected,
    ForeignKeyUnknown,
    ForeignLogout,
    ForeignTokenInvalid,
    TokenProblem,
    verify_logout_token,
)


def logout(encoded: str) -> ForeignLogout:
    return verify_logout_token(encoded, keys=keys_of(), expected=Expected(ISSUER, CLIENT), moment=MOMENT)


def logout_rejection(encoded: str) -> TokenProblem:
    with pytest.raises(ForeignTokenInvalid) as caught:
        logout(encoded)
    return caught.value.problem


def test_logout_token_names_subject_and_session() -> None:
    assert logout(token(logout_claims(sid="s-1"))) == ForeignLogout(ISSUER, "248289761001", "s-1", "1", MOMENT)
    assert logout(token(logout_claims(sub=REMOVED, sid="s-1"), header={"typ": "logout+jwt"})).subject is None


def test_unsigned_logout_token_is_rejected() -> None:
    unsigned = f"{segment({'alg': 'none'})}.{segment(logout_claims())}."
    assert logout_rejection(unsigned) == TokenProblem.ALGORITHM


@pytest.mark.parametrize("nonce", [NONCE, "", None])
def test_logout_token_with_nonce_is_rejected(nonce: Any) -> None:
    assert logout_rejection(token(logout_claims(nonce=nonce))) == TokenProblem.NONCE_PRESENT


def test_id_token_is_no_logout_token() -> None:
    assert logout_rejection(token(id_claims(jti="1"))) == TokenProblem.EVENT_MISSING


@pytest.mark.parametrize("events", [REMOVED, None, {}, [EVENT], EVENT, {EVENT: None}, {EVENT: True}, {"other": {}}])
def test_logout_token_without_event_is_rejected(events: Any) -> None:
    assert logout_rejection(token(logout_claims(events=events))) == TokenProblem.EVENT_MISSING


@pytest.mark.parametrize("jti", [REMOVED, None, "", 1, "j" * 256, "a\0"])
def test_logout_token_without_id_is_rejected(jti: Any) -> None:
    assert logout_rejection(token(logout_claims(jti=jti))) == TokenProblem.TOKEN_ID


def test_logout_token_for_no_user_is_rejected() -> None:
    assert logout_rejection(token(logout_claims(sub=REMOVED))) == TokenProblem.SUBJECT_EMPTY
    assert logout_rejection(token(logout_claims(sub=None, sid="s-1"))) == TokenProblem.SUBJECT_EMPTY
    assert logout_rejection(token(logout_claims(sid=["s-1"]))) == TokenProblem.SUBJECT_INVALID


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"iss": "https://other.example"}, TokenProblem.ISSUER),
        ({"aud": "client-2"}, TokenProblem.AUDIENCE),
        ({"iat": MOMENT - 370, "exp": MOMENT + 3600}, TokenProblem.EXPIRED),
        ({"iat": MOMENT + 70}, TokenProblem.CLOCK_SKEW),
        ({"exp": MOMENT - 70}, TokenProblem.EXPIRED),
        ({"iat": REMOVED}, TokenProblem.CLAIM_MISSING),
    ],
)
def test_logout_token_for_another_time_or_client_is_rejected(changes: dict[str, Any], problem: TokenProblem) -> None:
    assert logout_rejection(token(logout_claims(**changes))) == problem


def test_logout_token_of_an_unknown_key_raises_an_error_of_its_own() -> None:
    with pytest.raises(ForeignKeyUnknown):
        logout(token(logout_claims(), key=new_key(), header={"kid": "second"}))
