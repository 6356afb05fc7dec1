"""A client with `security_profile: fapi2_message_signing`: signed requests and responses only (FAPI 2.0 Message Signing)."""

import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.openid.profiled_application import ProfiledApplication, profiled_application
from tests.openid.relying_party import query_of
from tests.openid.test_code_exchange import error_of
from tests.openid.test_request_objects import ALONE, signed
from tests.openid.test_signed_responses import opened
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import create, path
from tests.userflow.sessions.aged import aged
from tests.world import Api, TestTenant
from userflow.accounts.grant_types import DEVICE_CODE

NAME = "fapi2_message_signing"


@pytest.fixture
def app(tenant: TestTenant) -> ProfiledApplication:
    return profiled_application(tenant, security_profile=NAME)


def push(app: ProfiledApplication, *, alg: str = "ES256", **changed: Any) -> Any:
    """Push nothing but a request object."""
    members = {"nbf": int(time.time()), "response_mode": "jwt", **changed}
    return app.push(**{**ALONE, **app.proof(alg=alg), "request": signed(app, app.key, alg=alg, **members)})


def response_claims(app: ProfiledApplication, response: Any) -> dict[str, Any]:
    """Return the claims of the signed response to a browser's request."""
    assert response.status_code == 303, response.content
    return opened(app, query_of(response.headers["Location"]))


@pytest.mark.parametrize(
    ("make", "alg"),
    [
        (new_key, "ES256"),
        (ed25519.Ed25519PrivateKey.generate, "EdDSA"),
        (lambda: rsa.generate_private_key(65537, 2048), "PS256"),
    ],
    ids=["ES256", "EdDSA", "PS256"],
)
def test_signed_request_gets_a_signed_code(tenant: TestTenant, make: Any, alg: str) -> None:
    app = profiled_application(tenant, make(), security_profile=NAME)
    claims = response_claims(app, app.bring(push(app, alg=alg)))
    assert set(claims) == {"code", "state", "iss", "aud", "exp"}
    tokens = app.exchange(claims["code"], **app.proof(alg=alg))
    assert (tokens.status_code, tokens.json()["token_type"]) == (200, "DPoP"), tokens.content
    assert app.userinfo(tokens.json()["access_token"]).status_code == 200


@pytest.mark.parametrize("mode", ["jwt", "query.jwt", "form_post.jwt"])
def test_every_signed_mode_is_allowed(app: ProfiledApplication, mode: str) -> None:
    assert push(app, response_mode=mode).status_code == 201


def test_unsigned_push_is_rejected(app: ProfiledApplication) -> None:
    rejected = app.push(response_mode="jwt")
    assert error_of(rejected) == "invalid_request"
    assert "has to sign" in rejected.json()["error_description"]


@pytest.mark.parametrize("mode", [None, "query", "form_post"])
def test_response_that_is_not_signed_is_rejected(app: ProfiledApplication, mode: str | None) -> None:
    # Beside the object it does not count.
    for beside in ({}, {"response_mode": "jwt"}):
        members = {"nbf": int(time.time()), "response_mode": mode}
        rejected = app.push(**{**ALONE, **beside, "request": signed(app, app.key, **members)})
        assert error_of(rejected) == "invalid_request"
        assert "response_mode=jwt" in rejected.json()["error_description"]


@pytest.mark.parametrize("alg", ["RS256", "ES384", "none"])
def test_other_algorithms_are_rejected(tenant: TestTenant, alg: str) -> None:
    app = profiled_application(tenant, security_profile=NAME)
    makes: dict[str, Any] = {
        "RS256": lambda: rsa.generate_private_key(65537, 2048),
        "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "none": lambda: None,
    }
    request = signed(app, makes[alg](), alg=alg, nbf=int(time.time()), response_mode="jwt")
    assert error_of(app.push(**{**ALONE, "request": request})) == "invalid_request_object"


def test_request_object_needs_nbf(app: ProfiledApplication) -> None:
    assert error_of(push(app, nbf=None)) == "invalid_request_object"


def test_request_that_is_not_pushed_gets_a_signed_error(app: ProfiledApplication) -> None:
    request = signed(app, app.key, nbf=int(time.time()), response_mode="jwt")
    for sent in ({}, {"response_mode": "query"}, {**ALONE, "request": request}):
        claims = response_claims(app, app.authorize(**sent))
        assert claims["error"] == "invalid_request"
        assert "code" not in claims


def test_error_after_the_push_is_signed(app: ProfiledApplication) -> None:
    claims = response_claims(app, app.bring(push(app, prompt="none", max_age=0)))
    assert (claims["error"], claims["state"]) == ("login_required", "a state")


def test_other_clients_need_no_signature(tenant: TestTenant) -> None:
    plain = profiled_application(tenant)
    assert plain.push().status_code == 201
    metadata = Api().get(f"{plain.issuer}/.well-known/openid-configuration").json()
    # True for some clients only, so the server does not state it.
    assert metadata.get("require_signed_request_object", False) is False
    assert {"PS256", "ES256", "EdDSA"} <= set(metadata["request_object_signing_alg_values_supported"])
    assert metadata["authorization_signing_alg_values_supported"]


# --- settings --------------------------------------------------------------------------------------------------------


def test_change_from_fapi2_ends_what_was_issued_before(tenant: TestTenant) -> None:
    app = profiled_application(tenant)
    code, pushed, tokens = app.code(), app.push(), app.exchange(app.code()).json()
    own = path(tenant, app.client["client_id"])
    assert tenant.api.patch(own, {"security_profile": NAME}).status_code == 200
    assert error_of(app.exchange(code)) == "invalid_grant"
    assert app.userinfo(tokens["access_token"]).status_code == 401
    assert error_of(app.refresh(tokens["refresh_token"])) == "invalid_grant"
    assert app.bring(pushed).status_code == 400


def test_change_to_a_weaker_profile_needs_a_recent_sign_in(tenant: TestTenant) -> None:
    app = profiled_application(tenant, security_profile=NAME)
    own = path(tenant, app.client["client_id"])
    for weaker in ("fapi2", None):
        rejected = Api(token=aged(str(tenant.api.token), 16)).patch(own, {"security_profile": weaker})
        assert rejected.status_code == 401, rejected.content
    assert tenant.api.patch(own, {"security_profile": "fapi2"}).status_code == 200


def test_device_grant_is_not_allowed(tenant: TestTenant) -> None:
    body = {"type": "confidential", "security_profile": NAME, "jwks": key_set(public_jwk(new_key()))}
    rejected = create(tenant, **body, grant_types=[DEVICE_CODE])
    assert rejected.status_code == 400
    assert list(rejected.json()["details"]) == ["grant_types"]


def test_public_client_cannot_have_the_profile(tenant: TestTenant) -> None:
    rejected = create(tenant, security_profile=NAME)
    assert rejected.json()["details"]["type"] == [f"{NAME} is for confidential clients only. Create one of that type."]


def test_key_of_a_push_must_be_that_of_the_object(app: ProfiledApplication) -> None:
    request = signed(app, new_key(), nbf=int(time.time()), response_mode="jwt")
    assert error_of(app.push(**{**ALONE, "request": request})) == "invalid_request_object"
