"""Rules of the token endpoint: races, audiences, scope, lifetimes, keys that change."""

from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from django.conf import settings

from tests.copies import change_client
from tests.openid.dpop_keys import DpopKey
from tests.openid.relying_party import Application, register_application
from tests.userflow.sessions.clients import FORM, basic, form
from tests.world import Api, TestTenant, User

A, B = "https://a.example.com", "https://b.example.com"
PLATFORM = "identity-api"


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


def application(tenant: TestTenant, user: User, **fields: Any) -> Application:
    app = Application(tenant, register_application(tenant, **{"first_party": True, **fields}))
    app.sign_in(user)
    return app


def claims_in(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def refresh(app: Application, token: str, **more: Any) -> Any:
    return app.token(grant_type="refresh_token", refresh_token=token, **more)


# --- the race of two refreshes ---------------------------------------------------------------------------------------


def test_loser_of_a_refresh_race_gets_what_it_asked_for(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, audiences=[A, B])
    token = app.tokens(scope="openid email", resource=[A, B])["refresh_token"]
    first = refresh(app, token, resource=A).json()
    second = refresh(app, token, resource=B, scope="openid").json()
    assert second["refresh_token"] == first["refresh_token"]
    claims = claims_in(second["access_token"])
    assert (claims["aud"], claims["scope"], second["scope"]) == (B, "openid", "openid")
    assert claims_in(second["id_token"])["at_hash"] != claims_in(first["id_token"])["at_hash"]
    assert refresh(app, second["refresh_token"]).status_code == 200


def test_equal_requests_of_a_race_get_one_response(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, audiences=[A, B])
    token = app.tokens(resource=[A, B])["refresh_token"]
    first, second = (refresh(app, token, resource=A).json() for _ in range(2))
    assert (first["access_token"], first["refresh_token"]) == (second["access_token"], second["refresh_token"])


# --- audiences -------------------------------------------------------------------------------------------------------


def test_userinfo_path_of_another_host_is_an_audience(tenant: TestTenant, user: User) -> None:
    billing = "https://billing.example/userinfo"
    app = application(tenant, user, audiences=[billing, A])
    token = app.tokens(resource=[billing, A])["refresh_token"]
    change_client(app.client["client_id"], audiences=[A])
    assert claims_in(refresh(app, token).json()["access_token"])["aud"] == A


def test_token_without_audience_is_for_userinfo(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user)
    tokens = app.tokens()
    again = refresh(app, tokens["refresh_token"]).json()
    for access in (tokens["access_token"], again["access_token"]):
        assert claims_in(access)["aud"] == f"{settings.BASE_URL}{app.issuer}/userinfo"


@pytest.mark.parametrize(
    ("audiences", "expected"), [([PLATFORM, A], A), ([A, PLATFORM], A), ([PLATFORM], "/userinfo"), ([], "/userinfo")]
)
def test_platform_audience_is_never_the_default(
    audiences: list[str], expected: str, tenant: TestTenant, user: User
) -> None:
    app = application(tenant, user, audiences=audiences)
    assert str(claims_in(app.tokens()["access_token"])["aud"]).endswith(expected)


def test_platform_audience_is_granted_when_asked_for(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, audiences=[PLATFORM, A])
    assert claims_in(app.tokens(resource=PLATFORM)["access_token"])["aud"] == PLATFORM


@pytest.mark.parametrize(("audiences", "expected"), [([PLATFORM, A], A), ([PLATFORM], PLATFORM), ([], PLATFORM)])
def test_own_token_of_a_client_keeps_its_default(audiences: list[str], expected: str, tenant: TestTenant) -> None:
    client = register_application(tenant, type="confidential", scopes=["services:read"], audiences=audiences)
    app = Application(tenant, client)
    response = app.token(headers=basic(client), grant_type="client_credentials")
    assert claims_in(response.json()["access_token"])["aud"] == expected


# --- scope and lifetime ----------------------------------------------------------------------------------------------


def test_response_without_scope_omits_it(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user)
    tokens = app.tokens(scope=None)
    again = refresh(app, tokens["refresh_token"]).json()
    for response in (tokens, again):
        assert ("scope" in response, "scope" in claims_in(response["access_token"])) == (False, False)
    known = Api().post(
        f"{app.issuer}/introspect",
        **form(token=again["access_token"]),
        headers=basic(register_application(tenant, type="confidential")),
    )
    assert (known.json()["active"], "scope" in known.json()) == (True, False)
    # Without openid.
    assert Api(token=again["access_token"]).get(f"{app.issuer}/userinfo").status_code == 403


def test_own_token_of_client_without_scopes_omits_it(tenant: TestTenant) -> None:
    client = register_application(tenant, type="confidential", grant_types=["client_credentials"])
    response = Application(tenant, client).token(headers=basic(client), grant_type="client_credentials").json()
    assert ("scope" in response, "scope" in claims_in(response["access_token"])) == (False, False)
    assert Api(token=response["access_token"]).get("/authmgr/validate").status_code == 200


@pytest.mark.parametrize("path", ["/authmgr/token", "{issuer}/token"])
def test_own_token_has_the_lifetime_of_the_client(path: str, tenant: TestTenant) -> None:
    client = register_application(tenant, type="confidential", scopes=["services:read"], access_token_seconds=60)
    path = path.format(issuer=f"/t/{tenant.slug}")
    response = Api().post(path, **form(grant_type="client_credentials"), headers=basic(client)).json()
    claims = claims_in(response["access_token"])
    assert (response["expires_in"], claims["exp"] - claims["iat"]) == (60, 60)


def test_json_sign_in_has_the_lifetime_of_the_client(tenant: TestTenant, user: User) -> None:
    client = register_application(tenant, access_token_seconds=60, first_party=True)
    body = {
        "tenant_id": str(tenant.id),
        "client_id": client["client_id"],
        "email": user.email,
        "password": user.password,
    }
    response = Api().post("/uflow/auth/enduser/login", body)
    assert response.status_code == 200, response.content
    signed_in = response.json()
    assert signed_in["expires_in"] == 60
    sent = form(grant_type="refresh_token", refresh_token=signed_in["refresh_token"], client_id=client["client_id"])
    assert Api().post("/authmgr/token", **sent).json()["expires_in"] == 60


# --- keys ------------------------------------------------------------------------------------------------------------


def with_proof(app: Application, key: DpopKey, **sent: Any) -> Any:
    headers = {"DPoP": key.proof("POST", f"{app.issuer}/token")}
    return app.token(headers={**headers, **app_headers(app)}, **sent)


def app_headers(app: Application) -> dict[str, str]:
    return basic(app.client) if app.client.get("client_secret") else {}


def test_confidential_client_may_change_its_key(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, type="confidential")
    old, new = DpopKey(), DpopKey()
    sent = {"grant_type": "authorization_code", "code": app.code(), "redirect_uri": "https://app.example.com/callback"}
    tokens = with_proof(app, old, **sent, code_verifier=app.verifier).json()
    again = with_proof(app, new, grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert again.status_code == 200, again.content
    assert claims_in(again.json()["access_token"])["cnf"] == {"jkt": new.jkt}
    later = with_proof(app, new, grant_type="refresh_token", refresh_token=again.json()["refresh_token"])
    assert claims_in(later.json()["access_token"])["cnf"] == {"jkt": new.jkt}
    unproven = app.token(
        headers=basic(app.client), grant_type="refresh_token", refresh_token=later.json()["refresh_token"]
    )
    assert unproven.json()["error"] == "invalid_grant"
    path = f"{app.issuer}/userinfo"
    bound = [(old, tokens["access_token"], 401), (new, later.json()["access_token"], 200)]
    for key, access, status in bound:
        assert Api().get(path, headers=key.headers("GET", path, access)).status_code == status


def test_public_client_keeps_its_key(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user)
    sent = {"client_id": app.client["client_id"]}
    code = {"grant_type": "authorization_code", "code": app.code(), "redirect_uri": "https://app.example.com/callback"}
    tokens = with_proof(app, DpopKey(), **sent, **code, code_verifier=app.verifier).json()
    refused = with_proof(
        app, DpopKey(), **sent, grant_type="refresh_token", refresh_token=tokens["refresh_token"]
    ).json()
    assert refused["error"] == "invalid_grant"


@pytest.mark.parametrize("path", ["{issuer}/userinfo", "/authmgr/validate"])
def test_invalid_bound_token_gets_a_dpop_challenge(path: str, tenant: TestTenant, user: User) -> None:
    app, key = application(tenant, user, audiences=[PLATFORM]), DpopKey()
    path = path.format(issuer=app.issuer)
    code = {"grant_type": "authorization_code", "code": app.code(resource=PLATFORM)}
    sent = {**code, "client_id": app.client["client_id"], "redirect_uri": "https://app.example.com/callback"}
    access = with_proof(app, key, **sent, code_verifier=app.verifier).json()["access_token"]
    assert Api().get(path, headers=key.headers("GET", path, access)).status_code == 200
    revoked = urlencode({"token": access, "client_id": app.client["client_id"]}).encode()
    assert Api().post(f"{app.issuer}/revoke", raw=revoked, content_type=FORM).status_code == 200
    for headers in (key.headers("GET", path, access), {"Authorization": "DPoP nonsense"}):
        refused = Api().get(path, headers=headers)
        challenge = refused.headers["WWW-Authenticate"]
        assert (refused.status_code, challenge) == (401, 'DPoP error="invalid_token", algs="ES256 RS256 EdDSA"')
    bearer = Api().get(path, headers={"Authorization": "Bearer nonsense"}).headers["WWW-Authenticate"]
    assert bearer == 'Bearer error="invalid_token"'


def test_insufficient_scope_of_bound_token_is_a_dpop_challenge(tenant: TestTenant, user: User) -> None:
    app, key = application(tenant, user, audiences=[PLATFORM]), DpopKey()
    code = {"grant_type": "authorization_code", "code": app.code(resource=PLATFORM, scope="email")}
    sent = {**code, "client_id": app.client["client_id"], "redirect_uri": "https://app.example.com/callback"}
    access = with_proof(app, key, **sent, code_verifier=app.verifier).json()["access_token"]
    for path in (f"{app.issuer}/userinfo", f"/clientms/tenants/{tenant.id}/clients"):
        refused = Api().get(path, headers=key.headers("GET", path, access))
        assert refused.status_code == 403, refused.content
        challenge = refused.headers["WWW-Authenticate"]
        assert challenge.startswith('DPoP error="insufficient_scope"')
        assert challenge.endswith('algs="ES256 RS256 EdDSA"')


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["x" * 3000, "a\x01b"])
def test_unknown_parameters_are_ignored_in_any_form(value: str, tenant: TestTenant, user: User) -> None:
    app = application(tenant, user)
    assert app.tokens(unheard_of=value)["access_token"]
    sent = urlencode(app.parameters(unheard_of=value)).encode()
    pushed = Api().post(f"{app.issuer}/par", raw=sent, content_type=FORM)
    assert pushed.status_code == 201, pushed.content


def test_known_parameter_is_still_limited(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user)
    assert "error=invalid_request" in app.authorize(nonce="n" * 1025).headers["Location"]
    assert "error=invalid_request" in app.authorize(login_hint="a\x01b").headers["Location"]
