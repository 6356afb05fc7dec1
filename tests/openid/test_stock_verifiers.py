"""Stock verifiers set up for one tenant with issuer, audience, type, keys and time, against every kind of token there is."""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlencode

import jwt
import pytest
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
from joserfc import jwt as jose
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from openid.browser import SESSION, cookie_name
from tests.mfa.people import new_user
from tests.openid.application_sessions import allow, open_application, session_of
from tests.openid.node_client import install_packages, verify_tokens
from tests.openid.relying_party import Application, page_of, query_of, register_application
from tests.openid.test_application_tokens import logout_token
from tests.openid.test_issuers import jwks, metadata
from tests.userflow.invitations.test_invitations import invite, token_of
from tests.userflow.mailbox import mails_to
from tests.userflow.passwords.test_reset import token_in
from tests.userflow.sessions.clients import FORM, basic, make_client
from tests.world import PASSWORD, Api, TestTenant, assert_created, sign_in_admin

ORDERS: Final = "https://orders.example.com"
INVOICES: Final = "https://invoices.example.com"
PLATFORM: Final = "identity-api"
ALGORITHMS: Final = ["ES256", "RS256"]


# --- verifiers: the names of the tokens that each accepts ------------------------------------------------------------


def by_pyjwt(tenant: TestTenant, audience: str, tokens: dict[str, str]) -> set[str]:
    keys, issuer = jwt.PyJWKSet.from_dict(jwks(tenant)), metadata(tenant)["issuer"]

    def verify(token: str) -> bool:
        try:
            key = keys[jwt.get_unverified_header(token)["kid"]]
            read = jwt.decode_complete(token, key, algorithms=ALGORITHMS, issuer=issuer, audience=audience)
        except (jwt.InvalidTokenError, KeyError):
            return False
        return bool(read["header"]["typ"] == "at+jwt")

    return {name for name, token in tokens.items() if verify(token)}


def by_joserfc(tenant: TestTenant, audience: str, tokens: dict[str, str]) -> set[str]:
    keys = KeySet.import_key_set(jwks(tenant))  # type: ignore[arg-type]  # a plain document
    issuer = metadata(tenant)["issuer"]
    rules = jose.JWTClaimsRegistry(
        iss={"essential": True, "value": issuer}, aud={"essential": True, "value": audience}, exp={"essential": True}
    )

    def verify(token: str) -> bool:
        try:
            read = jose.decode(token, keys, algorithms=ALGORITHMS)
            rules.validate(read.claims)
        except (JoseError, ValueError):
            return False
        return bool(read.header["typ"] == "at+jwt")

    return {name for name, token in tokens.items() if verify(token)}


def by_authlib(tenant: TestTenant, audience: str, tokens: dict[str, str]) -> set[str]:
    class Validator(JWTBearerTokenValidator):  # type: ignore[misc]  # Authlib has no types
        def get_jwks(self) -> KeySet:
            return KeySet.import_key_set(jwks(tenant))

    validator = Validator(metadata(tenant)["issuer"], audience)

    def verify(token: str) -> bool:
        try:
            validator.validate_token(validator.authenticate_token(token), [], None)
        except (OAuth2Error, ValueError):
            return False
        return True

    return {name for name, token in tokens.items() if verify(token)}


def by_jose(tenant: TestTenant, audience: str, tokens: dict[str, str]) -> set[str]:
    install_packages()
    accepted = verify_tokens(jwks=jwks(tenant), issuer=metadata(tenant)["issuer"], audience=audience, tokens=tokens)
    return {name for name, is_accepted in accepted.items() if is_accepted}


VERIFIERS: Final = [by_pyjwt, by_joserfc, by_authlib, pytest.param(by_jose, marks=pytest.mark.needs("node"))]


# --- tokens, each got over HTTP ----------------------------------------------------------------------------------------


def application(tenant: TestTenant, **fields: Any) -> Application:
    """An application of the tenant with a user who is signed in."""
    client = register_application(tenant, first_party=True, audiences=[ORDERS, INVOICES, PLATFORM], **fields)
    app = Application(tenant, client)
    app.sign_in(tenant.register())
    return app


def of_application(tenant: TestTenant) -> Iterator[tuple[str, str]]:
    """Everything that the code flow hands to an application, and what a back-channel logout sends it."""
    app = application(tenant)
    request = app.browser.post(
        f"{app.issuer}/par", raw=urlencode(app.parameters(), doseq=True).encode(), content_type=FORM
    )
    yield "request URI", request.json()["request_uri"]
    yield "handle", query_of(page_of(app.authorize(prompt="login")))["request"]
    yield "code", app.code()
    tokens = app.tokens(resource=ORDERS)
    yield "for orders", tokens["access_token"]
    yield "ID token", tokens["id_token"]
    yield "refresh token", tokens["refresh_token"]
    yield "for invoices", app.tokens(resource=INVOICES)["access_token"]
    yield "for both", app.tokens(resource=[ORDERS, INVOICES])["access_token"]
    yield "for the platform", app.tokens(resource=PLATFORM)["access_token"]
    cookie = app.browser.client.cookies[cookie_name(SESSION, tenant.id)].value
    yield "browser session", cookie
    yield "logout token", logout_token(tenant, open_application(tenant, session_of(tenant, cookie)).session)
    signed_rs256 = application(tenant, id_token_signed_response_alg="RS256").tokens(resource=ORDERS)
    yield "ID token by RS256", signed_rs256["id_token"]
    bare = Application(tenant, register_application(tenant, first_party=True))
    bare.sign_in(tenant.register())
    yield "for userinfo only", bare.tokens()["access_token"]


def of_client(tenant: TestTenant) -> Iterator[tuple[str, str]]:
    """Tokens that a client gets for itself."""
    client = make_client(tenant)
    for name, audience in (("client for orders", ORDERS), ("client for the platform", PLATFORM)):
        allow(tenant, client["client_id"], audiences=[audience])
        body = urlencode({"grant_type": "client_credentials"}).encode()
        response = Api().post(f"/t/{tenant.slug}/token", raw=body, content_type=FORM, headers=basic(client))
        yield name, response.json()["access_token"]


def of_steps(tenant: TestTenant) -> Iterator[tuple[str, str]]:
    """Tickets, proofs and mailed tokens."""
    user = new_user(tenant)
    # Tokens of this sign-in always have the claim `groups`, and Authlib rejects empty ones.
    group = assert_created(tenant.api.post("/authmgr/groups", {"name": f"Staff {user.id}"}))
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(user.id)]})
    yield "enrollment ticket", user.ticket
    pair = user.sign_in().json()
    yield "JSON sign-in", pair["access_token"]
    yield "refresh token of JSON sign-in", pair["refresh_token"]
    raised = Api(token=pair["access_token"]).post("/authmgr/step-up", {"password": PASSWORD}).json()
    yield "step-up", raised["access_token"]
    yield "proof token", raised["proof_token"]
    user.enrol_totp()
    yield "MFA ticket", user.sign_in().json()["mfa_token"]
    forgot = {"email": user.email, "tenant_id": str(tenant.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", forgot).status_code == 200
    yield "reset token", token_in(mails_to(user.email, "new password")[-1])
    yield "invitation", token_of(invite(tenant, "end_user"))


def of_staff(tenant: TestTenant, operator_name: str) -> Iterator[tuple[str, str]]:
    """Tokens of the tenant's admins and of operators."""
    for kind, name in (("tenant admin", tenant.admin.username), ("operator", operator_name)):
        pair = sign_in_admin(name)
        yield kind, pair["access_token"]
        yield f"refresh token of {kind}", pair["refresh_token"]


@pytest.fixture(scope="module")
def tokens(tenant: TestTenant, other_tenant: TestTenant, operator_name: str, django_db_blocker: Any) -> dict[str, str]:
    """Every kind of token, by name; those of the other tenant begin with `foreign`."""
    with django_db_blocker.unblock():
        found = {**dict(of_application(tenant)), **dict(of_client(tenant)), **dict(of_steps(tenant))}
        found |= dict(of_staff(tenant, operator_name))
        for own in (of_application, of_client, of_steps):
            found |= {f"foreign {name}": token for name, token in own(other_tenant)}
    return found


# What a verifier for each audience accepts. Those for the platform are access tokens of it, however the user signed in.
ACCEPTED: Final = {
    ORDERS: {"for orders", "for both", "client for orders"},
    INVOICES: {"for invoices", "for both"},
    PLATFORM: {"for the platform", "client for the platform", "JSON sign-in", "step-up"},
    "https://other.example.com": set(),
}


@pytest.mark.parametrize("audience", ACCEPTED)
@pytest.mark.parametrize("verify", VERIFIERS)
def test_stock_verifier_accepts_only_its_access_tokens(
    verify: Callable[[TestTenant, str, dict[str, str]], set[str]],
    audience: str,
    tenant: TestTenant,
    tokens: dict[str, str],
) -> None:
    assert all(tokens.values())
    assert len(set(tokens.values())) == len(tokens) > 45
    assert verify(tenant, audience, tokens) == ACCEPTED[audience]


@pytest.mark.parametrize("verify", VERIFIERS)
def test_stock_verifier_of_a_client_accepts_no_id_token(
    verify: Callable[[TestTenant, str, dict[str, str]], set[str]], tenant: TestTenant, tokens: dict[str, str]
) -> None:
    # A resource server whose audience is the client id, which ID and logout tokens are for.
    for name in ("ID token", "ID token by RS256", "logout token"):
        audience = jwt.decode(tokens[name], options={"verify_signature": False})["aud"]
        assert verify(tenant, audience, tokens) == set(), name
