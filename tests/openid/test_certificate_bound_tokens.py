"""Tokens that are bound to the certificate of a client (RFC 8705 section 3)."""

from ipaddress import ip_network
from typing import Any

import jwt
import pytest
from django.conf import settings

from tests.openid.certificates import HEADER, Certified, self_signed
from tests.openid.certified_application import BOUND, by_own, call, client_of, own_token, sent_form
from tests.openid.dpop_keys import DpopKey
from tests.openid.relying_party import CALLBACK, Application
from tests.openid.test_code_exchange import error_of
from tests.userflow.clients.keys import assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE
from tests.userflow.clients.test_clients import create, path
from tests.world import Api, TestTenant


@pytest.fixture(autouse=True)
def proxied(settings: Any) -> None:
    """The callers of these tests are proxies that pass certificates on."""
    settings.CLIENT_CERTIFICATE_HEADER, settings.CLIENT_CERTIFICATE_FORMAT = HEADER, "pem"
    settings.CLIENT_CERTIFICATE_PROXIES = [ip_network("10.0.0.0/8")]


def signed_in(tenant: TestTenant, certified: Certified, **fields: Any) -> tuple[Application, dict[str, Any]]:
    """Return an application whose tokens are bound to the certificate, and the tokens of a user."""
    app = client_of(tenant, **{**by_own(certified), BOUND: True, **fields})
    app.sign_in(tenant.register())
    response = exchange(app, certified)
    assert response.status_code == 200, response.content
    return app, dict(response.json())


def exchange(app: Application, certified: Certified | None, **sent: Any) -> Any:
    sent = {
        "code": app.code(scope="openid offline_access"),
        "redirect_uri": CALLBACK,
        "code_verifier": app.verifier,
        **sent,
    }
    return call(app, "token", certified, grant_type="authorization_code", **sent)


def userinfo(app: Application, token: str, certified: Certified | None = None, **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {token}", **(certified.headers if certified else {}), **headers}
    return Api().get(f"{app.issuer}/userinfo", headers=sent)


def refreshed(app: Application, refresh_token: str, certified: Certified | None, **sent: Any) -> Any:
    return call(app, "token", certified, grant_type="refresh_token", refresh_token=refresh_token, **sent)


def test_token_is_bound_to_the_certificate(tenant: TestTenant) -> None:
    own, other = self_signed(), self_signed()
    app, tokens = signed_in(tenant, own)
    access = tokens["access_token"]
    assert tokens["token_type"] == "Bearer"
    assert jwt.decode(access, options={"verify_signature": False})["cnf"] == {"x5t#S256": own.thumbprint}
    assert userinfo(app, access, own).status_code == 200
    for certified in (None, other):
        rejected = userinfo(app, access, certified)
        assert rejected.status_code == 401
        assert rejected.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    body = sent_form(f"{app.issuer}/userinfo", access_token=access)
    assert body.status_code == 401
    assert sent_form(f"{app.issuer}/userinfo", own.headers, access_token=access).status_code == 200
    state = call(app, "introspect", own, token=access).json()
    assert (state["active"], state["cnf"], state["token_type"]) == (True, {"x5t#S256": own.thumbprint}, "Bearer")


def test_code_without_a_certificate_stays_usable(tenant: TestTenant) -> None:
    own, key = self_signed(), new_key()
    app = client_of(
        tenant, token_endpoint_auth_method="private_key_jwt", jwks=key_set(public_jwk(key)), **{BOUND: True}
    )
    app.sign_in(tenant.register())
    code = app.code()

    def by_key() -> dict[str, str]:
        proof = assertion(key, app.client["client_id"], f"{settings.TOKEN_ISSUER}{app.issuer}")
        return {"client_assertion": proof, "client_assertion_type": TYPE, "code": code}

    assert error_of(exchange(app, None, **by_key())) == "invalid_request"
    tokens = exchange(app, own, **by_key())
    assert tokens.status_code == 200, tokens.content
    assert userinfo(app, tokens.json()["access_token"], own).status_code == 200


def test_own_token_at_the_platforms_api(tenant: TestTenant) -> None:
    own = self_signed()
    app = client_of(tenant, **by_own(own), **{BOUND: True})
    token = own_token(app, own).json()["access_token"]
    assert Api(token=token).get("/authmgr/validate", headers=own.headers).status_code == 200
    for headers in ({}, self_signed().headers):
        assert Api(token=token).get("/authmgr/validate", headers=headers).status_code == 401
    # No bound token from the platform's endpoint, so none at all.
    sent = {"client_id": app.client["client_id"], "grant_type": "client_credentials"}
    assert error_of(sent_form("/authmgr/token", own.headers, **sent)) == "invalid_request"


def test_dpop_does_not_replace_the_certificate(tenant: TestTenant) -> None:
    own, key = self_signed(), DpopKey()
    app, tokens = signed_in(tenant, own)
    access = tokens["access_token"]
    proof = {"DPoP": key.proof("POST", f"{app.issuer}/token")}
    assert error_of(exchange(app, own, headers=proof)) == "invalid_dpop_proof"
    assert error_of(refreshed(app, tokens["refresh_token"], own, headers=proof)) == "invalid_dpop_proof"
    address = f"{app.issuer}/userinfo"
    for headers in (key.headers("GET", address, access), {**key.headers("GET", address, access), **own.headers}):
        assert Api().get(address, headers=headers).status_code == 401


def test_certificate_does_not_replace_dpop(tenant: TestTenant) -> None:
    own, key = self_signed(), DpopKey()
    app = client_of(tenant, **by_own(own), dpop_bound_access_tokens=True)
    app.sign_in(tenant.register())
    assert error_of(exchange(app, own)) == "invalid_dpop_proof"
    tokens = exchange(app, own, headers={"DPoP": key.proof("POST", f"{app.issuer}/token")}).json()
    assert tokens["token_type"] == "DPoP"
    assert userinfo(app, tokens["access_token"], own).status_code == 401
    assert error_of(refreshed(app, tokens["refresh_token"], own)) == "invalid_dpop_proof"
    address = f"{app.issuer}/userinfo"
    assert Api().get(address, headers=key.headers("GET", address, tokens["access_token"])).status_code == 200


def test_refresh_needs_a_certificate_of_the_client(tenant: TestTenant) -> None:
    own, next_one, unknown = self_signed(), self_signed(), self_signed()
    app, tokens = signed_in(tenant, own, **by_own(own, next_one))
    for certified in (None, unknown):
        assert error_of(refreshed(app, tokens["refresh_token"], certified)) == "invalid_client"
    # Certificates expire sooner than sessions: one that the client has registered continues the session.
    renewed = refreshed(app, tokens["refresh_token"], next_one)
    assert renewed.status_code == 200, renewed.content
    assert userinfo(app, renewed.json()["access_token"], next_one).status_code == 200
    assert userinfo(app, renewed.json()["access_token"], own).status_code == 401
    # Tokens of the former certificate have ended.
    assert userinfo(app, tokens["access_token"], own).status_code == 401


def test_public_client_refreshes_with_the_same_certificate(tenant: TestTenant) -> None:
    own, other = self_signed(), self_signed()
    app = Application(tenant, create(tenant, redirect_uris=[CALLBACK], first_party=True, **{BOUND: True}).json())
    app.sign_in(tenant.register())
    assert error_of(exchange(app, None)) == "invalid_request"
    tokens = exchange(app, own).json()
    assert userinfo(app, tokens["access_token"], own).status_code == 200
    assert userinfo(app, tokens["access_token"], other).status_code == 401
    assert error_of(refreshed(app, tokens["refresh_token"], None)) == "invalid_request"
    assert error_of(refreshed(app, tokens["refresh_token"], other)) == "invalid_grant"
    assert refreshed(app, tokens["refresh_token"], own).status_code == 200


def test_session_from_before_is_not_refreshed(tenant: TestTenant) -> None:
    own = self_signed()
    app = client_of(tenant, **by_own(own))
    app.sign_in(tenant.register())
    tokens = exchange(app, own).json()
    assert "cnf" not in jwt.decode(tokens["access_token"], options={"verify_signature": False})
    assert tenant.api.patch(path(tenant, app.client["client_id"]), {BOUND: True}).status_code == 200
    assert error_of(refreshed(app, tokens["refresh_token"], own)) == "invalid_grant"


def test_revocation_ends_a_bound_session(tenant: TestTenant) -> None:
    own = self_signed()
    app, tokens = signed_in(tenant, own)
    assert error_of(call(app, "revoke", token=tokens["refresh_token"])) == "invalid_client"
    assert userinfo(app, tokens["access_token"], own).status_code == 200
    assert call(app, "revoke", own, token=tokens["refresh_token"]).status_code == 200
    assert userinfo(app, tokens["access_token"], own).status_code == 401


def test_password_is_no_way_in(tenant: TestTenant) -> None:
    own, person = self_signed(), tenant.register()
    public = create(tenant, first_party=True, **{BOUND: True}).json()
    login = {"client_id": public["id"], "email": person.email, "password": person.password}
    rejected = Api().post("/uflow/auth/enduser/login", login, headers=own.headers)
    assert (rejected.status_code, "access_token" in rejected.json()) == (401, False)
