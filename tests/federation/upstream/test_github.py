"""GitHub: no OpenID Connect, so PKCE and state protect the sign-in, and /user says who the user is."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from federation.upstream.clients import ClientSecret, Rules, UpstreamClient
from federation.upstream.discovery import github_metadata
from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.sign_in import complete_sign_in
from tests.federation.upstream.provider import Provider, Response
from tests.federation.upstream.visits import begin, client_of, failure, pending_of, reason, sign_in

USER, EMAILS = "/api/v3/user", "/api/v3/user/emails"


@pytest.fixture
def client(provider: Provider) -> UpstreamClient:
    """Make the provider a GitHub Enterprise Server, and return a client of it."""
    provider.token_response = {"id_token": None}
    provider.documents = {
        USER: {"id": 583231, "login": "octocat", "name": "Monalisa", "email": None},
        EMAILS: [
            {"email": "old@customer.example", "primary": False, "verified": True},
            {"email": "octocat@customer.example", "primary": True, "verified": True},
        ],
    }
    return client_of(
        provider,
        rules=Rules.GITHUB,
        scopes=("read:user", "user:email"),
        credential=ClientSecret(provider.client_secret, in_body=True),
        token_endpoint=f"{provider.issuer}/login/oauth/access_token",
    )


def test_subject_is_the_number_of_the_user(provider: Provider, client: UpstreamClient) -> None:
    identity = sign_in(provider, client)
    assert (identity.subject, identity.address, identity.address_trusted, identity.name) == (
        *("583231", "octocat@customer.example", True),
        "Monalisa",
    )
    assert identity.claims == {"login": "octocat", "name": "Monalisa"}


def test_request_has_pkce_and_state_and_no_nonce(client: UpstreamClient) -> None:
    query = dict(parse_qsl(urlsplit(begin(client).url).query))
    assert {"state", "code_challenge", "code_challenge_method"} <= query.keys()
    assert "nonce" not in query


def test_verifier_of_another_attempt_is_rejected(provider: Provider, client: UpstreamClient) -> None:
    victim, attacker = begin(client), begin(client)
    with pytest.raises(UpstreamError) as caught:
        complete_sign_in(client, pending_of(attacker), provider.authorize(victim.url))
    assert caught.value.reason == Reason.TOKEN_REQUEST_REJECTED


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, Reason.SUBJECT_EMPTY),
        ("", Reason.SUBJECT_INVALID),
        ("583231", Reason.SUBJECT_INVALID),
        (True, Reason.SUBJECT_INVALID),
        (0, Reason.SUBJECT_INVALID),
        (-1, Reason.SUBJECT_INVALID),
        (1.5, Reason.SUBJECT_INVALID),
        (2**63, Reason.SUBJECT_INVALID),
        ([1], Reason.SUBJECT_INVALID),
    ],
)
def test_user_without_number_is_rejected(
    provider: Provider, client: UpstreamClient, number: Any, expected: Reason
) -> None:
    provider.documents[USER]["id"] = number
    assert reason(provider, client) == expected


@pytest.mark.parametrize(
    "addresses",
    [
        [],
        None,
        {"email": "a@customer.example", "primary": True, "verified": True},
        [{"email": "a@customer.example", "primary": True, "verified": False}],
        [{"email": "a@customer.example", "primary": False, "verified": True}],
        [{"email": "a@customer.example", "primary": "true", "verified": "true"}],
        [{"email": None, "primary": True, "verified": True}],
        [1, None, []],
    ],
)
def test_address_that_is_not_primary_and_verified_is_none(
    provider: Provider, client: UpstreamClient, addresses: Any
) -> None:
    provider.documents[EMAILS] = addresses
    provider.documents[USER]["email"] = "victim@customer.example"
    identity = sign_in(provider, client)
    assert (identity.address, identity.address_trusted) == ("", False)


def test_error_with_status_200_is_rejected(provider: Provider, client: UpstreamClient) -> None:
    body = json.dumps({"error": "bad_verification_code", "error_description": "The code is incorrect."}).encode()
    provider.responses["/login/oauth/access_token"] = Response(200, body)
    error = failure(provider, client)
    assert (error.reason, error.received) == (Reason.TOKEN_REQUEST_REJECTED, "200 bad_verification_code")


@pytest.mark.parametrize("path", [USER, EMAILS])
def test_failure_of_the_api_is_an_error(provider: Provider, client: UpstreamClient, path: str) -> None:
    provider.responses[path] = Response(403, b"{}")
    assert reason(provider, client) == Reason.STATUS_UNEXPECTED


def test_user_that_is_no_object_is_rejected(provider: Provider, client: UpstreamClient) -> None:
    provider.responses[USER] = Response(200, b"[]")
    assert reason(provider, client) == Reason.RESPONSE_INVALID


def test_addresses_of_github_itself() -> None:
    metadata = github_metadata()
    assert metadata.token_endpoint == "https://github.com/login/oauth/access_token"
    assert metadata.userinfo_endpoint == "https://api.github.com/user"
