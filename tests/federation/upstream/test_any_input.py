"""Any JSON in the place of what a provider should send is a result or an UpstreamError, and nothing else."""

from contextlib import suppress
from typing import Any
from uuid import uuid4

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.upstream.authorization import read_callback
from federation.upstream.clients import ClientSecret, Rules, UpstreamClient
from federation.upstream.discovery import ProviderMetadata, read_metadata
from federation.upstream.errors import UpstreamError
from federation.upstream.identities import UpstreamIdentity, apple_name, identity_of_claims, identity_of_github
from tests.userflow.sessions.foreign import CLIENT, ISSUER, MOMENT, NONCE, id_claims, keys_of, logout_claims, token
from userflow.sessions.foreign_tokens import Expected, ForeignTokenInvalid, verify_id_token, verify_logout_token

EXPECTED = Expected(ISSUER, CLIENT)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def objects(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with any values of some of these names."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, VALUES))


@settings(max_examples=100)
@given(
    objects("iss", "aud", "azp", "exp", "iat", "nbf", "nonce", "sub", "at_hash", "auth_time", "tid"),
    objects("typ", "kid", "jwk", "crit", "cty"),
)
def test_any_id_token_is_verified_or_rejected(claims: dict[str, Any], header: dict[str, Any]) -> None:
    # PyJWT signs a key id only if it is text.
    header = {name: value for name, value in header.items() if name != "kid" or isinstance(value, str)}
    with suppress(ForeignTokenInvalid):
        verified = verify_id_token(
            token({**id_claims(), **claims}, header=header),
            keys=keys_of(),
            expected=EXPECTED,
            nonce=NONCE,
            access_token="access",
            max_age=60,
            moment=MOMENT,
        )
        assert verified["iss"] == ISSUER
        assert verified["nonce"] == NONCE
        assert isinstance(verified["sub"], str)


@settings(max_examples=100)
@given(objects("iss", "aud", "exp", "iat", "nonce", "sub", "sid", "jti", "events"))
def test_any_logout_token_is_verified_or_rejected(claims: dict[str, Any]) -> None:
    with suppress(ForeignTokenInvalid):
        logout = verify_logout_token(
            token({**logout_claims(), **claims}), keys=keys_of(), expected=EXPECTED, moment=MOMENT
        )
        assert logout.issuer == ISSUER
        assert logout.subject or logout.session


def client_with(rules: Rules) -> UpstreamClient:
    return UpstreamClient(uuid4(), ISSUER, CLIENT, ClientSecret("secret"), f"{ISSUER}/token", rules)


def assert_usable(identity: UpstreamIdentity) -> None:
    assert identity.subject.strip()
    assert identity.address or not identity.address_trusted
    assert b"\\u0000" not in orjson.dumps(identity)


@settings(max_examples=100)
@given(
    st.sampled_from(Rules),
    objects(
        "sub", "tid", "oid", "hd", "email", "email_verified", "xms_edov", "name", "given_name", "amr", "acr", "sid"
    ),
    st.text(max_size=50),
)
def test_any_claims_are_an_identity_or_rejected(rules: Rules, claims: dict[str, Any], user_form: str) -> None:
    with suppress(UpstreamError):
        assert_usable(identity_of_claims(client_with(rules), {"sub": "subject", **claims}, user_form=user_form))
    assert "\0" not in apple_name(user_form)


@settings(max_examples=100)
@given(
    VALUES | objects("id", "login", "name", "company"),
    VALUES | st.lists(objects("email", "primary", "verified"), max_size=3),
)
def test_any_response_of_github_is_an_identity_or_rejected(user: Any, addresses: Any) -> None:
    with suppress(UpstreamError):
        assert_usable(identity_of_github(user, addresses))


@settings(max_examples=100)
@given(VALUES | objects("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"))
def test_any_metadata_are_valid_or_rejected(document: Any) -> None:
    complete = {"issuer": ISSUER, "jwks_uri": ISSUER, "token_endpoint": ISSUER, "authorization_endpoint": ISSUER}
    for each in (document, {**complete, **document} if isinstance(document, dict) else complete):
        with suppress(UpstreamError):
            assert read_metadata(each, ISSUER).token_endpoint.startswith("http")


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(("code", "state", "iss", "error", "x")), st.just("s") | st.text(max_size=10)),
        max_size=5,
    )
)
def test_any_callback_is_a_code_or_rejected(parameters: list[tuple[str, str]]) -> None:
    metadata = ProviderMetadata(ISSUER, ISSUER, ISSUER, ISSUER)
    with suppress(UpstreamError):
        assert read_callback(client_with(Rules.GENERIC), metadata, parameters, state="s")
