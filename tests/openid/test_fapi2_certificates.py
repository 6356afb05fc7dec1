"""`security_profile: fapi2` with mutual TLS, in place of assertions and DPoP (FAPI 2.0 sections 5.3.2.1 and 5.3.2.2)."""

from ipaddress import ip_network
from typing import Any

import jwt
import pytest
from django.conf import settings

from tests.openid.certificates import HEADER, Authority, Certified, self_signed
from tests.openid.certified_application import BOUND, by_authority, by_own, call, client_of, sent_form
from tests.openid.relying_party import CALLBACK, Application, query_of
from tests.openid.test_code_exchange import error_of
from tests.userflow.clients.keys import assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE
from tests.userflow.clients.test_clients import create
from tests.world import Api, TestTenant

PROFILE: dict[str, Any] = {"security_profile": "fapi2", BOUND: True, "scopes": []}
Profiled = tuple[Application, Certified]


@pytest.fixture(autouse=True)
def proxied(settings: Any) -> None:
    """The callers of these tests are proxies that pass certificates on."""
    settings.CLIENT_CERTIFICATE_HEADER, settings.CLIENT_CERTIFICATE_FORMAT = HEADER, "pem"
    settings.CLIENT_CERTIFICATE_PROXIES = [ip_network("10.0.0.0/8")]


@pytest.fixture(params=["tls_client_auth", "self_signed_tls_client_auth"])
def profiled(request: pytest.FixtureRequest, tenant: TestTenant) -> Profiled:
    """Return an application with the profile, a user at its browser, and its certificate."""
    authority, own = Authority(), self_signed()
    certified, fields = (
        (authority.issue(), by_authority(authority)) if "self" not in request.param else (own, by_own(own))
    )
    app = client_of(tenant, **PROFILE, **fields)
    app.sign_in(tenant.register())
    return app, certified


def pushed(app: Application, certified: Certified | None, **sent: Any) -> Any:
    return call(app, "par", certified, **{**app.parameters(scope="openid offline_access"), **sent})


def code_of(app: Application, response: Any) -> str:
    assert response.status_code == 201, response.content
    sent = {"client_id": app.client["client_id"], "request_uri": response.json()["request_uri"]}
    return query_of(app.browser.get(f"{app.issuer}/authorize", sent).headers["Location"])["code"]


def exchange(app: Application, certified: Certified | None, code: str, **sent: Any) -> Any:
    sent = {"redirect_uri": CALLBACK, "code_verifier": app.verifier, "code": code, **sent}
    return call(app, "token", certified, grant_type="authorization_code", **sent)


def userinfo(app: Application, token: str, certified: Certified | None = None) -> int:
    sent = {"Authorization": f"Bearer {token}", **(certified.headers if certified else {})}
    return int(Api().get(f"{app.issuer}/userinfo", headers=sent).status_code)


def test_certificate_authenticates_and_binds(profiled: Profiled) -> None:
    app, certified = profiled
    other = self_signed()
    assert app.client["dpop_bound_access_tokens"] is False
    assert (app.client["require_par"], app.client["id_token_signed_response_alg"]) == (True, "ES256")
    for wrong in (None, other):
        assert error_of(pushed(app, wrong)) == "invalid_client"
    code = code_of(app, pushed(app, certified))
    for wrong in (None, other):
        assert error_of(exchange(app, wrong, code)) == "invalid_client"
    response = exchange(app, certified, code)
    assert response.status_code == 200, response.content
    tokens = response.json()
    access = tokens["access_token"]
    assert jwt.decode(access, options={"verify_signature": False})["cnf"] == {"x5t#S256": certified.thumbprint}
    assert [userinfo(app, access, each) for each in (certified, None, other)] == [200, 401, 401]
    renewed = call(app, "token", certified, grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    # The profile allows no rotation.
    assert renewed.get("refresh_token", tokens["refresh_token"]) == tokens["refresh_token"]
    assert userinfo(app, renewed["access_token"], certified) == 200


def test_demands_of_the_profile_stay(profiled: Profiled) -> None:
    app, certified = profiled
    assert "code" not in query_of(app.authorize().headers["Location"])
    for changed in ({"code_challenge": None}, {"code_challenge_method": "plain"}, {"response_type": "token"}):
        sent = {name: value for name, value in {**app.parameters(), **changed}.items() if value is not None}
        assert call(app, "par", certified, **sent).status_code == 400
    code = code_of(app, pushed(app, certified))
    # A secret does not stand in, and the platform's own endpoint issues no token.
    assert exchange(app, None, code, client_secret="ics_x").status_code in (400, 401)
    sent = {"client_id": app.client["client_id"], "grant_type": "client_credentials"}
    assert sent_form("/authmgr/token", certified.headers, **sent).status_code == 400
    assert exchange(app, certified, code).status_code == 200
    assert error_of(exchange(app, certified, code)) == "invalid_grant"


def test_assertion_with_bound_tokens(tenant: TestTenant) -> None:
    key, certified = new_key(), self_signed()
    app = client_of(tenant, **PROFILE, token_endpoint_auth_method="private_key_jwt", jwks=key_set(public_jwk(key)))
    app.sign_in(tenant.register())

    def proof() -> dict[str, str]:
        signed = assertion(key, app.client["client_id"], f"{settings.TOKEN_ISSUER}{app.issuer}")
        return {"client_assertion": signed, "client_assertion_type": TYPE}

    code = code_of(app, pushed(app, None, **proof()))
    assert error_of(exchange(app, None, code, **proof())) == "invalid_request"
    response = exchange(app, certified, code, **proof())
    assert response.status_code == 200, response.content
    assert [userinfo(app, response.json()["access_token"], each) for each in (certified, None)] == [200, 401]


def test_profile_needs_bound_tokens(tenant: TestTenant) -> None:
    own = self_signed()
    body = {"type": "confidential", "security_profile": "fapi2", **by_own(own)}
    rejected = create(tenant, **body, dpop_bound_access_tokens=False)
    assert (rejected.status_code, list(rejected.json()["details"])) == (400, ["dpop_bound_access_tokens"])
    # DPoP, which the profile sets, does as well.
    assert create(tenant, **body).json()["dpop_bound_access_tokens"] is True
