"""Keys of providers: cached, and fetched again once for an unknown key, but not more often than the bound."""

import json
from typing import Any

import jwt
import pytest

from federation.upstream import keys
from federation.upstream.cached_documents import AGAIN_SECONDS, FAILED_SECONDS, FRESH_SECONDS
from federation.upstream.errors import Reason
from tests.federation.upstream.provider import SUBJECT, Provider, Response
from tests.federation.upstream.visits import client_of, failure, let_time_pass, reason, sign_in
from tests.parallel import run_concurrently
from tests.userflow.clients.keys import key_set, new_key, public_jwk


def fetches(provider: Provider) -> int:
    return provider.paths().count("/jwks")


def test_keys_are_fetched_once_an_hour(provider: Provider) -> None:
    client = client_of(provider)
    for _ in range(3):
        assert sign_in(provider, client).subject == SUBJECT
    assert fetches(provider) == 1
    let_time_pass(keys._cache, FRESH_SECONDS)
    assert sign_in(provider, client).subject == SUBJECT
    assert fetches(provider) == 2


def test_rotated_key_is_fetched_at_once(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    let_time_pass(keys._cache, AGAIN_SECONDS)
    provider.rotate("second")
    assert sign_in(provider, client).subject == SUBJECT
    assert fetches(provider) == 2


def test_rotated_key_without_kid_is_fetched_at_once(provider: Provider) -> None:
    provider.sign = lambda claims: jwt.PyJWS().encode(json.dumps(claims).encode(), provider.key, algorithm="ES256")
    client = client_of(provider)
    sign_in(provider, client)
    let_time_pass(keys._cache, AGAIN_SECONDS)
    provider.rotate("second")
    assert sign_in(provider, client).subject == SUBJECT


def test_unknown_keys_are_fetched_once_in_30_seconds(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    let_time_pass(keys._cache, AGAIN_SECONDS)
    provider.kid = "invented"
    for _ in range(3):
        error = failure(provider, client)
        assert (error.reason, error.expected, error.received) == (Reason.KEY_UNKNOWN, "first", "invented")
    assert fetches(provider) == 2


def test_removed_key_no_longer_verifies(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    let_time_pass(keys._cache, FRESH_SECONDS)
    provider.jwks = key_set(public_jwk(new_key(), kid="second"))
    assert reason(provider, client) == Reason.KEY_UNKNOWN


def test_keys_from_before_work_while_the_host_fails(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    provider.responses["/jwks"] = Response(500)
    let_time_pass(keys._cache, AGAIN_SECONDS)
    known, provider.kid = provider.kid, "invented"
    assert reason(provider, client) == Reason.KEY_UNKNOWN
    provider.kid = known
    assert sign_in(provider, client).subject == SUBJECT


def test_keys_that_are_too_old_do_not_work_while_the_host_fails(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    provider.responses["/jwks"] = Response(500)
    let_time_pass(keys._cache, FRESH_SECONDS)
    assert reason(provider, client) == Reason.STATUS_UNEXPECTED


def test_keys_of_one_connection_do_not_verify_for_another(provider: Provider) -> None:
    sign_in(provider)
    provider.jwks = key_set(public_jwk(new_key(), kid="second"))
    assert reason(provider) == Reason.KEY_UNKNOWN


def test_parallel_sign_ins_fetch_keys_once(provider: Provider) -> None:
    client = client_of(provider)
    identities = run_concurrently([lambda: sign_in(provider, client)] * 4)
    assert [identity.subject for identity in identities] == [SUBJECT] * 4
    assert fetches(provider) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<html>", Reason.RESPONSE_NOT_JSON),
        (b"[]", Reason.KEYS_INVALID),
        (b'{"keys": []}', Reason.KEYS_INVALID),
        (b'{"keys": {}}', Reason.KEYS_INVALID),
        (b'{"keys": [1, null, {}]}', Reason.KEYS_INVALID),
        (b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "first"}]}', Reason.KEYS_INVALID),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "first"}]}', Reason.KEYS_INVALID),
        (b'{"keys": [{"kty": ["EC"], "crv": {}}]}', Reason.KEYS_INVALID),
    ],
)
def test_unusable_key_set_is_rejected(provider: Provider, body: bytes, expected: Reason) -> None:
    provider.responses["/jwks"] = Response(200, body)
    assert reason(provider) == expected


def test_keys_of_other_kinds_are_passed_over(provider: Provider) -> None:
    others: list[dict[str, Any]] = [
        {"kty": "oct", "k": "AAAA"},
        {"kty": "RSA", "use": "enc"},
        {"kty": "EC", "crv": "P-521"},
    ]
    provider.jwks = key_set(*others, *provider.jwks["keys"])
    assert sign_in(provider).subject == SUBJECT


def test_failed_fetch_is_tried_again_soon(provider: Provider) -> None:
    client = client_of(provider)
    provider.responses["/jwks"] = Response(500)
    assert reason(provider, client) == Reason.STATUS_UNEXPECTED
    del provider.responses["/jwks"]
    let_time_pass(keys._cache, FAILED_SECONDS)
    assert sign_in(provider, client).subject == SUBJECT
