"""Logout tokens that a provider sends (OpenID Connect Back-Channel Logout 1.0)."""

from typing import Any

import pytest

from federation.upstream import keys
from federation.upstream.cached_documents import AGAIN_SECONDS
from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.keys import read_logout_token
from tests.federation.upstream.provider import SUBJECT, Provider
from tests.federation.upstream.visits import begin, client_of, let_time_pass, sign_in
from tests.userflow.sessions.foreign import segment


def logout_reason(provider: Provider, token: str) -> Reason:
    with pytest.raises(UpstreamError) as caught:
        read_logout_token(client_of(provider), token)
    return caught.value.reason


def test_logout_token_names_the_subject_of_the_sign_in(provider: Provider) -> None:
    client = client_of(provider)
    provider.claims = {"sid": "s-1"}
    identity = sign_in(provider, client)
    logout = read_logout_token(client, provider.logout_token(sid="s-1", jti="j-1"))
    assert (logout.subject, logout.session, logout.token_id) == (identity.subject, identity.sid, "j-1")


def test_logout_token_of_a_rotated_key_is_accepted(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    provider.rotate("second")
    let_time_pass(keys._cache, AGAIN_SECONDS)
    assert read_logout_token(client, provider.logout_token()).subject == SUBJECT


def test_unsigned_logout_token_is_rejected(provider: Provider) -> None:
    payload = provider.logout_token().split(".")[1]
    assert logout_reason(provider, f"{segment({'alg': 'none'})}.{payload}.") == Reason.ALGORITHM_NOT_ALLOWED


def test_id_token_is_no_logout_token(provider: Provider) -> None:
    request = begin(client_of(provider))
    token = provider.signed(provider.id_token_claims(request.nonce))
    assert logout_reason(provider, token) == Reason.LOGOUT_EVENT_MISSING


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"nonce": "n"}, Reason.LOGOUT_NONCE_PRESENT),
        ({"events": None}, Reason.LOGOUT_EVENT_MISSING),
        ({"jti": None}, Reason.TOKEN_ID_INVALID),
        ({"sub": None}, Reason.SUBJECT_EMPTY),
        ({"aud": "another-client"}, Reason.AUDIENCE_MISMATCH),
        ({"iss": "https://attacker.example"}, Reason.ISSUER_MISMATCH),
        ({"iat": 1}, Reason.TOKEN_EXPIRED),
    ],
)
def test_logout_token_with_wrong_claim_is_rejected(
    provider: Provider, changes: dict[str, Any], expected: Reason
) -> None:
    assert logout_reason(provider, provider.logout_token(**changes)) == expected
