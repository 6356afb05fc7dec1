"""Token requests: how the client authenticates, where credentials go, and what providers respond."""

from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from federation.upstream.clients import AppleKey, AssertionKey, ClientSecret
from federation.upstream.errors import Reason
from tests.federation.upstream.provider import SUBJECT, Provider, Request, Response
from tests.federation.upstream.visits import client_of, failure, reason, sign_in
from tests.userflow.clients.keys import new_key
from userflow.sessions.key_pairs import new_key_pair


def token_request(provider: Provider) -> Request:
    """Return the last token request."""
    return next(request for request in reversed(provider.requests) if request.path == "/token")


# --- authentication --------------------------------------------------------------------------------------------------


def test_secret_is_sent_in_the_header(provider: Provider) -> None:
    assert sign_in(provider).subject == SUBJECT
    request = token_request(provider)
    assert request.headers["authorization"].startswith("Basic ")
    assert "client_secret" not in request.form


def test_secret_is_sent_in_the_body(provider: Provider) -> None:
    client = client_of(provider, credential=ClientSecret(provider.client_secret, in_body=True))
    assert sign_in(provider, client).subject == SUBJECT
    request = token_request(provider)
    assert "authorization" not in request.headers
    assert request.form["client_secret"] == provider.client_secret


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256"])
@pytest.mark.parametrize("for_token_endpoint", [False, True])
def test_assertion_is_signed_for_the_provider(provider: Provider, algorithm: str, for_token_endpoint: bool) -> None:
    pair = new_key_pair("ES256" if algorithm == "ES256" else "RS256")
    key = AssertionKey(pair.private, pair.kid, algorithm, for_token_endpoint, certificate_thumbprint="thumbprint")
    assert sign_in(provider, client_of(provider, credential=key)).subject == SUBJECT
    form = token_request(provider).form
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    public = jwt.PyJWK({**pair.public_jwk, "alg": algorithm})
    audience = f"{provider.issuer}/token" if for_token_endpoint else provider.issuer
    claims = jwt.decode(
        form["client_assertion"], public, algorithms=[algorithm], audience=audience, issuer=provider.client_id
    )
    assert (claims["sub"], claims["exp"] - claims["iat"]) == (provider.client_id, 120)
    header = jwt.get_unverified_header(form["client_assertion"])
    assert (header["kid"], header["x5t#S256"]) == (pair.kid, "thumbprint")


def test_each_assertion_has_an_id_of_its_own(provider: Provider) -> None:
    pair = new_key_pair("ES256")
    client = client_of(provider, credential=AssertionKey(pair.private, pair.kid))
    ids = set()
    for _ in range(2):
        sign_in(provider, client)
        assertion = token_request(provider).form["client_assertion"]
        ids.add(jwt.decode(assertion, options={"verify_signature": False})["jti"])
    assert len(ids) == 2


@pytest.mark.parametrize(
    "credential",
    [
        AssertionKey(b"no key", "kid"),
        AssertionKey(new_key_pair("ES256").private, "kid", "RS256"),
        AssertionKey(new_key_pair("ES256").private, "kid", "HS256"),
        AssertionKey(new_key_pair("ES256").private, "kid", "none"),
        AppleKey("no key", "key-id", "team-id"),
        AppleKey("\u20ac", "key-id", "team-id"),
    ],
)
def test_key_that_cannot_sign_is_an_error(provider: Provider, credential: Any) -> None:
    assert reason(provider, client_of(provider, credential=credential)) == Reason.CREDENTIAL_INVALID
    assert "/token" not in provider.paths()


def test_apple_key_makes_a_client_secret_at_use(provider: Provider) -> None:
    key = new_key()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    client = client_of(provider, credential=AppleKey(pem, "key-id", "team-id"))
    assert reason(provider, client) == Reason.TOKEN_REQUEST_REJECTED  # the local provider takes its own secret only
    secret = token_request(provider).form["client_secret"]
    claims = jwt.decode(secret, key.public_key(), algorithms=["ES256"], audience="https://appleid.apple.com")
    assert (claims["iss"], claims["sub"], claims["exp"] - claims["iat"]) == ("team-id", provider.client_id, 120)
    assert jwt.get_unverified_header(secret)["kid"] == "key-id"


def test_wrong_secret_is_told(provider: Provider) -> None:
    error = failure(provider, client_of(provider, credential=ClientSecret("wrong")))
    assert (error.reason, error.received) == (Reason.TOKEN_REQUEST_REJECTED, "401 invalid_client")


# --- where the secret goes -------------------------------------------------------------------------------------------


def test_secret_is_not_sent_to_another_endpoint(provider: Provider) -> None:
    client = client_of(provider)
    provider.metadata = {"token_endpoint": f"{provider.issuer}/moved"}
    error = failure(provider, client)
    assert error.reason == Reason.TOKEN_ENDPOINT_CHANGED
    assert (error.expected, error.received) == (f"{provider.issuer}/token", f"{provider.issuer}/moved")
    assert "/moved" not in provider.paths()


def test_redirect_of_the_token_endpoint_is_not_followed(provider: Provider) -> None:
    provider.responses["/token"] = Response(307, b"", {"Location": f"{provider.issuer}/moved"})
    assert reason(provider) == Reason.REDIRECTED
    assert "/moved" not in provider.paths()


# --- responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (Response(200, b"<html>"), Reason.RESPONSE_NOT_JSON),
        (Response(200, b"access_token=a&token_type=bearer"), Reason.RESPONSE_NOT_JSON),
        (Response(400, b"<html>"), Reason.RESPONSE_NOT_JSON),
        (Response(500, b"{}"), Reason.STATUS_UNEXPECTED),
        (Response(503, b"<html>"), Reason.STATUS_UNEXPECTED),
        (Response(200, b"[]"), Reason.RESPONSE_INVALID),
        (Response(200, b"{}"), Reason.RESPONSE_INVALID),
        (Response(200, b" " * 200_000), Reason.RESPONSE_TOO_LONG),
        (Response(200, b'{"error": "bad_verification_code"}'), Reason.TOKEN_REQUEST_REJECTED),
        (Response(400, b'{"error": ["x"]}'), Reason.TOKEN_REQUEST_REJECTED),
        (Response(201, b"{}"), Reason.TOKEN_REQUEST_REJECTED),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else f"{value.status}-{len(value.body)}",
)
def test_unusable_response_is_rejected(provider: Provider, response: Response, expected: Reason) -> None:
    provider.responses["/token"] = response
    assert reason(provider) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": "a\r\nX-Header: b"},
        {"access_token": "\u20ac"},
        {"access_token": ["a"]},
        {"access_token": "a" * 40_000},
        {"id_token": None},
        {"id_token": 1},
        {"token_type": None},
        {"token_type": "DPoP"},
        {"refresh_token": {}},
    ],
)
def test_response_without_usable_tokens_is_rejected(provider: Provider, changes: dict[str, Any]) -> None:
    provider.token_response = changes
    assert reason(provider) == Reason.RESPONSE_INVALID


def test_error_repeats_nothing_of_the_response(provider: Provider) -> None:
    body = b'{"error": "invalid_client", "error_description": "secret s3cr3t is wrong"}'
    provider.responses["/token"] = Response(401, body)
    error = failure(provider)
    assert (error.reason, error.received) == (Reason.TOKEN_REQUEST_REJECTED, "401 invalid_client")
