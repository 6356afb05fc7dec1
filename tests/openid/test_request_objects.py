"""Signed authorization requests (RFC 9101): a client's key decides, and nothing beside the object counts."""

import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings

from tests.mfa.webauthn.authenticator import b64
from tests.openid.profiled_application import profiled_application
from tests.openid.relying_party import CALLBACK, Application, page_of, query_of
from tests.userflow.clients.keys import PrivateKey, assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import create
from tests.world import Api, TestTenant, capture_statements

TYPE = {"typ": "oauth-authz-req+jwt"}
# What a request says beside its object.
ALONE = dict.fromkeys(
    ("response_type", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method")
)


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    """The key of the application."""
    return new_key()


@pytest.fixture(scope="module")
def app(tenant: TestTenant, key: PrivateKey, django_db_blocker: Any) -> Application:
    """An application with a registered key, and a browser in which a user is signed in."""
    with django_db_blocker.unblock():
        return application(tenant, key)


def application(tenant: TestTenant, key: PrivateKey, **fields: Any) -> Application:
    body = {"type": "confidential", "redirect_uris": [CALLBACK], "first_party": True, "jwks": key_set(public_jwk(key))}
    made = create(tenant, **{**body, "token_endpoint_auth_method": "private_key_jwt", **fields})
    assert made.status_code == 201, made.content
    app = Application(tenant, made.json())
    app.sign_in(tenant.register())
    return app


def signed(app: Application, key: PrivateKey, *, headers: dict[str, Any] | None = None, **changed: Any) -> str:
    """A request object with the parameters of the application; None removes a member."""
    moment = int(time.time())
    about = {"iss": app.client["client_id"], "aud": f"{settings.TOKEN_ISSUER}{app.issuer}", "exp": moment + 60}
    members = {**app.parameters(), **about, **changed}
    alg = members.pop("alg", "ES256")
    payload = {name: value for name, value in members.items() if value is not None}
    return jwt.encode(payload, key, algorithm=alg, headers=TYPE if headers is None else headers)


def answer(app: Application, request: str, **beside: Any) -> dict[str, str]:
    """Send only the client and the object, and return the fields that come back to the application."""
    response = app.authorize(**{**ALONE, "request": request, **beside})
    assert response.status_code == 303, response.content
    assert response.headers["Location"].startswith(CALLBACK)
    return query_of(response.headers["Location"])


@pytest.mark.parametrize("headers", [TYPE, {"typ": "JWT"}, {"typ": "application/oauth-authz-req+jwt"}], ids=str)
def test_signed_request_gets_a_code(app: Application, key: PrivateKey, headers: dict[str, str]) -> None:
    fields = answer(app, signed(app, key, headers=headers))
    assert fields["state"] == "a state"
    assert app.exchange(fields["code"], headers=None, **proof(app, key)).status_code == 200


def proof(app: Application, key: PrivateKey) -> dict[str, str]:
    stated = assertion(key, app.client["client_id"], f"{settings.TOKEN_ISSUER}{app.issuer}")
    return {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": stated,
    }


def test_parameters_beside_the_object_are_ignored(app: Application, key: PrivateKey) -> None:
    beside = {"state": "of an attacker", "redirect_uri": "https://evil.example.com", "scope": "offline_access"}
    fields = answer(app, signed(app, key), **beside)
    assert fields["state"] == "a state"


def test_members_keep_their_meaning(app: Application, key: PrivateKey) -> None:
    fields = answer(app, signed(app, key, max_age=0, prompt="none"))
    assert fields["error"] == "login_required"
    fields = answer(app, signed(app, key, claims={"id_token": {"sub": {"value": "another"}}}, prompt="none"))
    assert fields["error"] == "login_required"
    fields = answer(app, signed(app, key, resource=["https://api.example.com", "https://other.example.com"]))
    assert fields["error"] == "invalid_target"
    fields = answer(app, signed(app, key, login_hint=None, display=None))
    assert "code" in fields


# No moment of this run: every test process must collect the same tests.
YEAR_2100 = 4_102_444_800
REJECTED: list[dict[str, Any]] = [
    {"iss": "00000000-0000-4000-8000-000000000000"},
    {"iss": None},
    {"aud": "https://another.example.com"},
    {"aud": []},
    {"aud": {}},
    {"client_id": "00000000-0000-4000-8000-000000000000"},
    {"client_id": None},
    {"exp": None},
    {"exp": 1},
    {"exp": YEAR_2100},
    {"exp": "later"},
    {"nbf": YEAR_2100},
    {"nbf": 1},
    {"iat": YEAR_2100},
    {"request": "x.y.z"},
    {"request_uri": "urn:ietf:params:oauth:request_uri:x"},
    {"state": True},
    {"state": 1.5},
    {"claims": {"id_token": 2**80}},
    {"resource": [["https://api.example.com"]]},
    {"headers": {"typ": "dpop+jwt"}},
    {"headers": {"typ": "at+jwt"}},
    {"headers": {"crit": ["x"], "x": 1}},
    {"headers": {"kid": "another"}},
]


@pytest.mark.parametrize("changed", REJECTED, ids=str)
def test_object_that_is_wrong_is_rejected(app: Application, key: PrivateKey, changed: dict[str, Any]) -> None:
    request = signed(app, key, **changed)
    # The address in it is not trusted; one beside it that is registered gets the error.
    response = app.authorize(**{**ALONE, "request": request})
    assert (response.status_code, "Location" in response.headers) == (400, False)
    fields = answer(app, request, redirect_uri=CALLBACK, state="s")
    assert (fields["error"], fields["state"]) == ("invalid_request_object", "s")
    assert not set('"\\') & set(fields["error_description"])


@pytest.mark.parametrize("part", ["header", "payload"])
def test_object_that_is_nested_too_deep_is_rejected(app: Application, key: PrivateKey, part: str) -> None:
    deep = b'{"typ":"JWT","alg":"ES256","state":' + b"[" * 3000 + b"]" * 3000 + b"}"
    if part == "payload":
        request = jwt.PyJWS().encode(deep, key, algorithm="ES256", headers=TYPE)
    else:
        request = f"{b64(deep)}.{b64(b'{}')}.{b64(bytes(64))}"
    assert answer(app, request, redirect_uri=CALLBACK)["error"] == "invalid_request_object"


def test_assertion_of_the_client_is_no_request(app: Application, key: PrivateKey) -> None:
    stated = signed(app, key, sub=app.client["client_id"], headers={"typ": "JWT"})
    assert answer(app, stated, redirect_uri=CALLBACK)["error"] == "invalid_request_object"


def test_request_is_no_assertion_of_the_client(app: Application, key: PrivateKey) -> None:
    stated = signed(app, key, sub=app.client["client_id"], jti="once")
    sent = {**proof(app, key), "client_assertion": stated, "grant_type": "client_credentials"}
    rejected = app.token(**sent)
    assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")


def test_key_of_another_client_or_no_key_is_rejected(tenant: TestTenant, app: Application) -> None:
    of_another = signed(app, new_key())
    assert answer(app, of_another, redirect_uri=CALLBACK)["error"] == "invalid_request_object"
    keyless = application(tenant, new_key(), type="public", jwks=None, token_endpoint_auth_method="none")
    fields = answer(keyless, signed(keyless, new_key()), redirect_uri=CALLBACK)
    assert fields["error_description"] == "The request object is rejected: the client has registered no keys."


def test_request_of_another_tenants_client_is_rejected(
    app: Application, key: PrivateKey, other_tenant: TestTenant
) -> None:
    there = application(other_tenant, key)
    # The same key: the audience tells the tenants apart, and the client belongs to one of them.
    assert answer(there, signed(app, key), redirect_uri=CALLBACK)["error"] == "invalid_request_object"
    query = {"client_id": app.client["client_id"], "request": signed(app, key)}
    response = Api().get(f"{there.issuer}/authorize", query)
    assert (response.status_code, "Location" in response.headers) == (400, False)


def test_algorithm_that_the_profile_forbids_is_rejected(tenant: TestTenant) -> None:
    key, other = new_key(), rsa.generate_private_key(65537, 2048)
    keys = key_set(public_jwk(key, kid="ec"), public_jwk(other, kid="rsa"))
    app = profiled_application(tenant, key, jwks=keys)
    rejected = app.push(request=signed(app, other, alg="RS256", nbf=int(time.time())))
    assert rejected.json()["error"] == "invalid_request_object"
    assert app.push(request=signed(app, other, alg="PS256", nbf=int(time.time()))).status_code == 201


def test_unsigned_object_of_a_client_with_the_profile_is_invalid(tenant: TestTenant) -> None:
    # FAPI 2.0 Message Signing: the module ensure-request-object-signature-algorithm-is-not-none.
    rejected = profiled_application(tenant).push(request="eyJhbGciOiJub25lIn0.e30.")
    assert (rejected.status_code, rejected.json()["error"]) == (400, "invalid_request_object")


def test_signed_request_is_pushed(tenant: TestTenant) -> None:
    app = profiled_application(tenant)
    without_date = app.push(request=signed(app, app.key))
    assert without_date.json()["error_description"] == "The request object is rejected: its claim nbf is missing."
    old = app.push(request=signed(app, app.key, nbf=int(time.time()) - 7200))
    assert old.json()["error"] == "invalid_request_object"
    pushed = app.push(request=signed(app, app.key, nbf=int(time.time())), state="beside", scope=None)
    fields = query_of(app.bring(pushed).headers["Location"])
    assert fields["state"] == "a state"
    assert app.exchange(fields["code"]).status_code == 200


def test_client_that_pushes_may_not_bring_an_object_by_link(tenant: TestTenant, key: PrivateKey) -> None:
    app = application(tenant, key, require_par=True)
    assert answer(app, signed(app, key))["error"] == "invalid_request"


def test_object_costs_no_statement(app: Application, key: PrivateKey) -> None:
    request = signed(app, key)
    with capture_statements() as plain:
        app.authorize()
    with capture_statements() as by_object:
        answer(app, request)
    assert by_object.counts == plain.counts


def test_unregistered_address_in_the_object_gets_nothing(app: Application, key: PrivateKey) -> None:
    response = app.authorize(**{**ALONE, "request": signed(app, key, redirect_uri="https://evil.example.com/")})
    assert (response.status_code, "Location" in response.headers) == (400, False)


def test_sign_in_begins_with_a_signed_request(tenant: TestTenant, key: PrivateKey, app: Application) -> None:
    signed_out = Application(tenant, app.client)
    response = signed_out.authorize(**{**ALONE, "request": signed(signed_out, key)})
    assert response.status_code == 200
    assert page_of(response).startswith(f"{app.issuer}/signin?request=")
