"""The algorithms of a client: RS256 for the ID tokens of new clients, ES256 for access tokens unless it is set."""

from typing import Any

import jwt
import pytest
from django.conf import settings

from tests.openid.dpop_keys import DpopKey
from tests.openid.test_code_exchange import application, claims_of
from tests.userflow.sessions.clients import basic, form, make_client
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant
from userflow.accounts.models import Client

VALIDATE = "/authmgr/validate"
BY_RS256 = {"access_token_signed_response_alg": "RS256"}


def algorithms(tokens: dict[str, Any]) -> tuple[str, str]:
    """Return the algorithms of the ID token and the access token."""
    headers = [jwt.get_unverified_header(tokens[name]) for name in ("id_token", "access_token")]
    assert headers[1]["typ"] == "at+jwt"
    return headers[0]["alg"], headers[1]["alg"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, ("RS256", "ES256")),
        ({"id_token_signed_response_alg": "ES256"}, ("ES256", "ES256")),
        (BY_RS256, ("RS256", "RS256")),
    ],
)
def test_code_and_refresh_sign_with_the_clients_algorithms(
    chosen: dict[str, str], expected: tuple[str, str], tenant: TestTenant
) -> None:
    app = application(tenant, tenant.register(), **chosen)
    tokens = app.tokens()
    renewed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    assert (algorithms(tokens), algorithms(renewed)) == (expected, expected)
    assert claims_of(app, renewed["access_token"], f"{settings.BASE_URL}{app.issuer}/userinfo")["sub"]
    assert claims_of(app, renewed["id_token"], app.client["client_id"])["sub"]


def test_platform_accepts_access_token_by_rs256(tenant: TestTenant, other_tenant: TestTenant) -> None:
    app = application(tenant, tenant.register(), audiences=["identity-api"], **BY_RS256)
    token = app.tokens(resource="identity-api")["access_token"]
    assert jwt.get_unverified_header(token)["alg"] == "RS256"
    assert Api(token=token).get(VALIDATE).status_code == 200
    answer = Api(token=token).get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)})
    assert answer.status_code == 403


def test_dpop_bound_access_token_by_rs256(tenant: TestTenant) -> None:
    app, key = application(tenant, tenant.register(), **BY_RS256), DpopKey()
    proof = key.proof("POST", f"{app.issuer}/token")
    response = app.exchange(app.code(), client_id=app.client["client_id"], headers={"DPoP": proof}).json()
    assert (response["token_type"], algorithms(response)) == ("DPoP", ("RS256", "RS256"))


def test_client_credentials_by_rs256(tenant: TestTenant) -> None:
    client = make_client(tenant, **BY_RS256)
    for path in ("/authmgr/token", f"/t/{tenant.slug}/token"):
        response = Api().post(path, **form(grant_type="client_credentials"), headers=basic(client))
        token = response.json()["access_token"]
        assert jwt.get_unverified_header(token)["alg"] == "RS256"
        assert Api(token=token).get(VALIDATE).status_code == 200


def test_json_sign_in_and_refresh_by_rs256(tenant: TestTenant) -> None:
    client = make_client(tenant, type="public", scopes=[], first_party=True, self_registration=True, **BY_RS256)
    user = tenant.register()
    body = {"client_id": client["client_id"], "email": user.email, "password": user.password}
    pair = Api().post("/uflow/auth/enduser/login", body).json()
    renewed = refresh(pair["refresh_token"]).json()
    for token in (pair["access_token"], renewed["access_token"]):
        assert jwt.get_unverified_header(token)["alg"] == "RS256"
        assert Api(token=token).get(VALIDATE).status_code == 200


def test_default_client_signs_access_tokens_by_es256(tenant: TestTenant) -> None:
    own = Client.objects.get(pk=tenant.client_id)
    assert (own.id_token_signed_response_alg, own.access_token_signed_response_alg) == ("RS256", "ES256")
    assert jwt.get_unverified_header(tenant.sign_in(tenant.register())["access_token"])["alg"] == "ES256"


@pytest.mark.parametrize("name", ["id_token_signed_response_alg", "access_token_signed_response_alg"])
@pytest.mark.parametrize("value", ["none", "HS256", "PS256", "", 5])
def test_other_algorithms_are_rejected(name: str, value: object, tenant: TestTenant) -> None:
    body = {"name": "Shop", name: value}
    response = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body)
    assert response.status_code == 400
    assert name in response.json()["details"]


def test_change_of_algorithm_applies_to_next_token(tenant: TestTenant) -> None:
    app = application(tenant, tenant.register())
    refresh_token = app.tokens()["refresh_token"]
    address = f"/clientms/tenants/{tenant.id}/clients/{app.client['client_id']}"
    assert tenant.api.patch(address, BY_RS256).json()["access_token_signed_response_alg"] == "RS256"
    renewed = app.token(grant_type="refresh_token", refresh_token=refresh_token).json()
    assert algorithms(renewed) == ("RS256", "RS256")
