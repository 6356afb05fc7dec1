"""A client with `security_profile: fapi2` at the endpoints: what the FAPI 2.0 Security Profile (Final) demands of requests."""

from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from django.conf import settings

from openid.models import AuthorizationCode
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.dpop_keys import DpopKey
from tests.openid.profiled_application import ProfiledApplication, profiled_application
from tests.openid.relying_party import query_of
from tests.openid.test_code_exchange import claims_of, error_of
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import post
from tests.userflow.sessions.clients import basic
from tests.world import Api, TestTenant


@pytest.fixture
def app(tenant: TestTenant) -> ProfiledApplication:
    return profiled_application(tenant)


def redirected(response: Any) -> dict[str, str]:
    assert response.status_code == 303, response.content
    return query_of(response.headers["Location"])


# --- happy path ------------------------------------------------------------------------------------------------------


def test_pushed_request_gives_bound_tokens(app: ProfiledApplication) -> None:
    fields = redirected(app.bring(app.push(scope="openid offline_access")))
    assert fields["iss"] == f"{settings.BASE_URL}{app.issuer}"
    response = app.exchange(fields["code"])
    assert (response.status_code, response.json()["token_type"]) == (200, "DPoP"), response.content
    tokens = response.json()
    headers = [jwt.get_unverified_header(tokens[name]) for name in ("id_token", "access_token")]
    assert [header["alg"] for header in headers] == ["ES256", "ES256"]
    claims = claims_of(app, tokens["access_token"], f"{settings.BASE_URL}{app.issuer}/userinfo")
    assert claims["cnf"] == {"jkt": app.dpop.jkt}
    assert app.userinfo(tokens["access_token"]).status_code == 200


def test_refresh_keeps_the_token_and_its_key(app: ProfiledApplication) -> None:
    first = app.exchange(app.code()).json()["refresh_token"]
    for _ in range(2):
        renewed = app.refresh(first)
        assert (renewed.status_code, renewed.json()["refresh_token"]) == (200, first), renewed.content
    assert error_of(app.refresh(first, headers={})) == "invalid_dpop_proof"


@pytest.mark.parametrize(
    ("make", "alg"),
    [
        (new_key, "ES256"),
        (ed25519.Ed25519PrivateKey.generate, "EdDSA"),
        (lambda: rsa.generate_private_key(65537, 2048), "PS256"),
    ],
)
def test_allowed_algorithms_of_assertions(tenant: TestTenant, make: Any, alg: str) -> None:
    app = profiled_application(tenant, make())
    assert app.push(**app.proof(alg=alg)).status_code == 201


def test_proof_by_ed25519_is_allowed(tenant: TestTenant) -> None:
    app = profiled_application(tenant, dpop=DpopKey("EdDSA"))
    code = redirected(app.bring(app.push(app.by_key("par"))))["code"]
    assert app.exchange(code).json()["token_type"] == "DPoP"


def test_own_token_is_bound(tenant: TestTenant) -> None:
    app = profiled_application(tenant, scopes=["services:read"])
    response = app.post("token", app.by_key("token"), grant_type="client_credentials")
    assert response.json()["token_type"] == "DPoP", response.content
    known = app.post("introspect", token=response.json()["access_token"]).json()
    assert (known["active"], known["cnf"]) == (True, {"jkt": app.dpop.jkt})


def test_metadata_has_what_the_profile_needs(tenant: TestTenant) -> None:
    metadata = Api().get(f"/t/{tenant.slug}/.well-known/openid-configuration").json()
    assert metadata["authorization_response_iss_parameter_supported"] is True
    assert metadata["pushed_authorization_request_endpoint"]
    for name, needed in (
        ("token_endpoint_auth_methods_supported", {"private_key_jwt"}),
        ("token_endpoint_auth_signing_alg_values_supported", {"PS256", "ES256", "EdDSA"}),
        ("dpop_signing_alg_values_supported", {"ES256", "EdDSA"}),
        ("id_token_signing_alg_values_supported", {"ES256"}),
        ("code_challenge_methods_supported", {"S256"}),
        ("response_types_supported", {"code"}),
    ):
        assert needed <= set(metadata[name]), name


# --- authorization requests ------------------------------------------------------------------------------------------


def test_request_that_is_not_pushed_is_rejected(app: ProfiledApplication) -> None:
    fields = redirected(app.authorize())
    assert (fields["error"], fields["iss"]) == ("invalid_request", f"{settings.BASE_URL}{app.issuer}")
    assert "code" not in fields


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"response_type": "code id_token"}, "unsupported_response_type"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"request": "x.y.z"}, "invalid_request_object"),
    ],
    ids=str,
)
def test_push_with_less_is_rejected(app: ProfiledApplication, changed: dict[str, Any], error: str) -> None:
    assert error_of(app.push(**changed)) == error


def test_push_needs_an_assertion(app: ProfiledApplication) -> None:
    nothing = {"client_assertion": None, "client_assertion_type": None}
    assert error_of(app.push(**nothing)) == "invalid_client"
    assert error_of(app.push(**nothing, client_secret="ics_x")) == "invalid_client"
    assert error_of(app.push(basic(app.client, "ics_x"), **nothing)) == "invalid_client"


def test_code_lasts_a_minute_at_most(app: ProfiledApplication) -> None:
    app.code()
    with in_tenant(app.tenant.id):
        code = AuthorizationCode.objects.get(client_id=app.client["client_id"])
    assert timedelta(0) < code.expires_at - code.created_at <= timedelta(seconds=60)


def test_code_works_once(app: ProfiledApplication) -> None:
    code = app.code()
    tokens = app.exchange(code).json()
    assert error_of(app.exchange(code)) == "invalid_grant"
    assert app.userinfo(tokens["access_token"]).status_code == 401


def test_code_of_a_pushed_proof_needs_its_key(app: ProfiledApplication) -> None:
    code = redirected(app.bring(app.push(app.by_key("par"))))["code"]
    other = {"DPoP": DpopKey().proof("POST", f"{app.issuer}/token")}
    assert error_of(app.exchange(code, other)) == "invalid_grant"


# --- client authentication -------------------------------------------------------------------------------------------

ENDPOINTS = {
    "par": {},
    "token": {"grant_type": "client_credentials"},
    "introspect": {"token": "x"},
    "revoke": {"token": "x"},
    "device_authorization": {},
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_audience_is_the_issuer_alone(app: ProfiledApplication, endpoint: str) -> None:
    root = f"{settings.BASE_URL}{app.issuer}"
    audiences: list[Any] = [f"{root}/token", f"{root}/{endpoint}", f"{root}/", settings.BASE_URL]
    audiences += [[root], [root, f"{root}/token"], [f"{root}/token"]]
    for audience in audiences:
        rejected = app.post(endpoint, **ENDPOINTS[endpoint], **app.proof(audience))
        assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client"), audience
    # The same without these audiences goes on to what the request lacks.
    assert app.post(endpoint, **ENDPOINTS[endpoint]).status_code in (200, 400)


def test_audience_is_the_issuer_at_the_platforms_endpoint(app: ProfiledApplication) -> None:
    for path in ("/authmgr/token", "/authmgr/token/introspect", "/authmgr/token/revoke"):
        parameters = {} if path == "/authmgr/token" else {"token": "x"}
        rejected = post(app.proof(f"{settings.BASE_URL}/authmgr/token")["client_assertion"], path, **parameters)
        assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client"), path


@pytest.mark.parametrize(
    ("make", "alg"),
    [(lambda: rsa.generate_private_key(65537, 2048), "RS256"), (lambda: new_key(ec.SECP384R1()), "ES384")],
    ids=["RS256", "ES384"],
)
def test_other_algorithms_of_assertions_are_rejected(tenant: TestTenant, make: Any, alg: str) -> None:
    app = profiled_application(tenant)
    app.key = make()
    # As a key that the client publishes at its address: nothing has checked it before.
    change_client(app.client["client_id"], jwks=key_set(public_jwk(app.key)))
    assert error_of(app.push(**app.proof(alg=alg))) == "invalid_client"


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_code_without_proof_stays_usable(app: ProfiledApplication) -> None:
    code = app.code()
    assert error_of(app.exchange(code, headers={})) == "invalid_dpop_proof"
    assert app.exchange(code).status_code == 200


def test_proof_by_rs256_is_rejected(tenant: TestTenant) -> None:
    app = profiled_application(tenant, dpop=DpopKey("RS256"))
    pushed = app.push(app.by_key("par"))
    assert error_of(pushed) == "invalid_dpop_proof"
    assert "ES256 or EdDSA" in pushed.json()["error_description"]
    assert error_of(app.exchange(app.code())) == "invalid_dpop_proof"


def test_bound_token_is_no_bearer_token(app: ProfiledApplication) -> None:
    token = app.exchange(app.code()).json()["access_token"]
    assert Api(token=token).get(f"{app.issuer}/userinfo").status_code == 401
    with_other_key = DpopKey().headers("GET", f"{app.issuer}/userinfo", token)
    assert Api().get(f"{app.issuer}/userinfo", headers=with_other_key).status_code == 401


def test_platforms_token_endpoint_issues_no_bearer_token(tenant: TestTenant) -> None:
    app = profiled_application(tenant, scopes=["services:read"])
    assert error_of(post(app.proof()["client_assertion"])) == "invalid_dpop_proof"


def test_password_is_no_way_in(tenant: TestTenant) -> None:
    app, person = profiled_application(tenant), tenant.register()
    login = {"client_id": app.client["client_id"], "email": person.email, "password": person.password}
    response = Api().post("/uflow/auth/enduser/login", login)
    assert (response.status_code, "access_token" in response.json()) == (401, False)
