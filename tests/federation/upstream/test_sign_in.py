"""Sign-in at an OpenID provider, and ID tokens that attackers or broken providers send."""

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from federation.upstream.authorization import Prompt, new_authorization_request
from federation.upstream.clients import UpstreamClient
from federation.upstream.discovery import metadata_of
from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.identities import UpstreamIdentity
from federation.upstream.sign_in import PendingSignIn, complete_sign_in
from tests.federation.upstream.provider import SUBJECT, Provider
from tests.federation.upstream.visits import REDIRECT_URI, STATE, begin, client_of, failure, pending_of, reason, sign_in
from tests.userflow.clients.keys import new_key, public_jwk
from tests.userflow.sessions.foreign import hmac_token, segment
from userflow.sessions.foreign_tokens import TokenProblem


def test_sign_in_returns_the_identity(provider: Provider) -> None:
    moment = int(time.time())
    provider.claims = {"amr": ["pwd", "otp"], "acr": "2", "auth_time": moment, "sid": "s-1", "department": "Sales"}
    assert sign_in(provider) == UpstreamIdentity(
        subject=SUBJECT,
        address="jane@customer.example",
        address_trusted=True,
        name="Jane Doe",
        claims={
            "sub": SUBJECT,
            "email": "jane@customer.example",
            "email_verified": True,
            "name": "Jane Doe",
            "department": "Sales",
        },
        amr=("pwd", "otp"),
        acr="2",
        auth_time=moment,
        sid="s-1",
    )


def test_secrets_are_not_in_representations(provider: Provider) -> None:
    client = client_of(provider)
    request = begin(client)
    identity, tokens = complete_sign_in(client, pending_of(request), provider.authorize(request.url))
    text = f"{client!r} {request!r} {pending_of(request)!r} {identity!r} {tokens!r}"
    for secret in (
        provider.client_secret,
        request.code_verifier,
        request.nonce,
        STATE,
        tokens.access_token,
        tokens.id_token,
    ):
        assert secret not in text


# --- each token attack at the callback -------------------------------------------------------------------------------


def test_unsigned_id_token_is_rejected(provider: Provider) -> None:
    provider.sign = lambda claims: f"{segment({'alg': 'none', 'kid': provider.kid})}.{segment(claims)}."
    assert reason(provider) == Reason.ALGORITHM_NOT_ALLOWED


def test_hmac_with_the_public_key_is_rejected(provider: Provider) -> None:
    public = provider.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    provider.sign = lambda claims: hmac_token(claims, public, provider.kid)
    assert reason(provider) == Reason.ALGORITHM_NOT_ALLOWED


def test_key_in_the_header_is_rejected(provider: Provider) -> None:
    attacker = new_key()
    headers = {"kid": provider.kid, "jwk": public_jwk(attacker)}
    provider.sign = lambda claims: jwt.encode(claims, attacker, algorithm="ES256", headers=headers)
    assert reason(provider) == Reason.HEADER_NOT_ALLOWED


def test_jws_in_json_form_is_rejected(provider: Provider) -> None:
    def in_json_form(claims: dict[str, Any]) -> str:
        header, payload, signature = provider.signed(claims).split(".")
        return json.dumps({"protected": header, "payload": payload, "signature": signature})

    provider.sign = in_json_form
    assert reason(provider) == Reason.TOKEN_FORMAT


def test_id_token_of_another_key_is_rejected(provider: Provider) -> None:
    attacker = new_key()
    provider.sign = lambda claims: jwt.encode(claims, attacker, algorithm="ES256", headers={"kid": provider.kid})
    assert reason(provider) == Reason.SIGNATURE_INVALID


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"iss": ["https://idp.example"]}, Reason.ISSUER_MISMATCH),
        ({"iss": "https://attacker.example"}, Reason.ISSUER_MISMATCH),
        ({"aud": "another-client"}, Reason.AUDIENCE_MISMATCH),
        ({"azp": "another-client"}, Reason.AUTHORIZED_PARTY_MISMATCH),
        ({"nonce": ...}, Reason.NONCE_MISMATCH),
        ({"nonce": "of-another-request"}, Reason.NONCE_MISMATCH),
        ({"sub": ""}, Reason.SUBJECT_EMPTY),
        ({"sub": None}, Reason.SUBJECT_EMPTY),
        ({"sub": ...}, Reason.SUBJECT_EMPTY),
        ({"sub": 248289761001}, Reason.SUBJECT_INVALID),
        ({"exp": ...}, Reason.CLAIM_MISSING),
        ({"at_hash": "of-another-token"}, Reason.ACCESS_TOKEN_HASH_MISMATCH),
    ],
)
def test_id_token_with_wrong_claim_is_rejected(provider: Provider, claims: dict[str, Any], expected: Reason) -> None:
    provider.claims = claims
    assert reason(provider) == expected


def test_issuer_as_a_list_with_the_right_one_is_rejected(provider: Provider) -> None:
    provider.claims = {"iss": [provider.issuer]}
    error = failure(provider)
    assert (error.reason, error.expected, error.received) == (Reason.ISSUER_MISMATCH, provider.issuer, "a list")


def test_error_names_both_audiences(provider: Provider) -> None:
    provider.claims = {"aud": "another-client"}
    error = failure(provider)
    assert (error.expected, error.received) == (provider.client_id, "another-client")


def complete_at(provider: Provider, seconds: int) -> UpstreamIdentity:
    """Sign in with a clock of ours that is ahead of the provider's by some seconds."""
    client = client_of(provider)
    request = begin(client)
    callback = provider.authorize(request.url)
    # The provider's time when it signs the token, which this request does.
    issued_at = int(time.time())
    provider.claims = {"iat": issued_at, "exp": issued_at}
    return complete_sign_in(client, pending_of(request), callback, moment=issued_at + seconds)[0]


@pytest.mark.parametrize("seconds", [50, -50])
def test_clocks_50_seconds_apart_are_accepted(provider: Provider, seconds: int) -> None:
    assert complete_at(provider, seconds).subject == SUBJECT


@pytest.mark.parametrize(("seconds", "expected"), [(70, Reason.TOKEN_EXPIRED), (-70, Reason.CLOCK_SKEW)])
def test_clocks_70_seconds_apart_are_rejected(provider: Provider, seconds: int, expected: Reason) -> None:
    with pytest.raises(UpstreamError) as caught:
        complete_at(provider, seconds)
    assert caught.value.reason == expected


def test_two_clients_of_one_provider_do_not_take_each_others_tokens(provider: Provider) -> None:
    first, second = client_of(provider), client_of(provider, client_id="another-client")
    assert sign_in(provider, first).subject == SUBJECT
    provider.client_id = "another-client"
    provider.claims = {"aud": first.client_id}
    assert reason(provider, second) == Reason.AUDIENCE_MISMATCH


def test_verifier_of_another_attempt_is_rejected(provider: Provider) -> None:
    client = client_of(provider)
    victim, attacker = begin(client), begin(client)
    with pytest.raises(UpstreamError) as caught:
        complete_sign_in(client, pending_of(attacker), provider.authorize(victim.url))
    assert (caught.value.reason, caught.value.received) == (Reason.TOKEN_REQUEST_REJECTED, "400 invalid_grant")


def test_code_of_another_attempt_is_rejected_by_its_nonce(provider: Provider) -> None:
    client = client_of(provider)
    victim, attacker = begin(client), begin(client)
    # A provider that does not check PKCE would take the code.
    mixed = PendingSignIn(REDIRECT_URI, STATE, attacker.nonce, victim.code_verifier)
    with pytest.raises(UpstreamError) as caught:
        complete_sign_in(client, mixed, provider.authorize(victim.url))
    assert caught.value.reason == Reason.NONCE_MISMATCH


def test_sign_in_older_than_max_age_is_rejected(provider: Provider) -> None:
    client = client_of(provider)
    metadata, prompt = metadata_of(client), Prompt(max_age=300)
    request = new_authorization_request(client, metadata, redirect_uri=REDIRECT_URI, state=STATE, prompt=prompt)
    pending = PendingSignIn(REDIRECT_URI, STATE, request.nonce, request.code_verifier, max_age=300)
    provider.claims = {"auth_time": int(time.time()) - 4000}
    with pytest.raises(UpstreamError) as caught:
        complete_sign_in(client, pending, provider.authorize(request.url))
    assert caught.value.reason == Reason.AUTHENTICATION_TOO_OLD


# --- UserInfo --------------------------------------------------------------------------------------------------------


def thin_client(provider: Provider) -> UpstreamClient:
    """Return a client of a provider that leaves claims out of ID tokens."""
    return client_of(provider, reads_userinfo=True)


def test_claims_are_completed_from_userinfo(provider: Provider) -> None:
    provider.claims = {"email": ..., "name": ...}
    provider.userinfo = {"email": "jane@customer.example", "email_verified": False, "name": "Jane", "amr": ["hwk"]}
    identity = sign_in(provider, thin_client(provider))
    assert (identity.address, identity.address_trusted, identity.name) == ("jane@customer.example", False, "Jane")
    assert identity.amr == ()


def test_userinfo_does_not_verify_the_address_of_the_id_token(provider: Provider) -> None:
    provider.claims = {"email": "victim@customer.example", "email_verified": ...}
    provider.userinfo = {"email": "attacker@customer.example", "email_verified": True}
    identity = sign_in(provider, thin_client(provider))
    assert (identity.address, identity.address_trusted) == ("victim@customer.example", False)


def test_userinfo_of_another_user_is_rejected(provider: Provider) -> None:
    provider.userinfo = {"sub": "another"}
    assert reason(provider, thin_client(provider)) == Reason.SUBJECT_MISMATCH


def test_every_problem_of_tokens_is_a_reason() -> None:
    assert {problem.value for problem in TokenProblem} <= {each.value for each in Reason}
