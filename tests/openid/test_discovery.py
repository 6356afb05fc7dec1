"""The metadata of a tenant's issuer: both documents, and that everything listed works."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oidc.discovery import OpenIDProviderMetadata
from django.conf import settings
from django.test.utils import override_settings

from tests.openid.relying_party import Application, page_of, query_of, register_application
from tests.userflow.clients.keys import assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE, issuer
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, TestTenant
from userflow.sessions.certificate_authentication import TLS_METHODS
from userflow.sessions.client_authentication import METHODS, PRIVATE_KEY_JWT

DOCUMENTS = ["/t/{}/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/t/{}"]


def document(tenant: TestTenant, path: str = DOCUMENTS[0]) -> dict[str, Any]:
    response = Api().get(path.format(tenant.slug))
    assert response.status_code == 200, response.content
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Cache-Control"] == "public, max-age=300"
    return dict(response.json())


def test_both_documents_are_one(tenant: TestTenant) -> None:
    assert document(tenant, DOCUMENTS[0]) == document(tenant, DOCUMENTS[1])


@override_settings(BASE_URL="https://id.example.com", TOKEN_ISSUER="https://id.example.com")
def test_documents_satisfy_authlib(tenant: TestTenant) -> None:
    AuthorizationServerMetadata(document(tenant)).validate()
    OpenIDProviderMetadata(document(tenant)).validate()


def test_every_listed_endpoint_exists(tenant: TestTenant) -> None:
    listed = document(tenant)
    assert listed["issuer"] == f"{settings.BASE_URL}/t/{tenant.slug}"
    endpoints = {name: value for name, value in listed.items() if name.endswith("_endpoint") or name == "jwks_uri"}
    assert len(endpoints) >= 6
    for name, address in endpoints.items():
        assert address.startswith(f"{settings.BASE_URL}/"), name
        path = urlsplit(address).path
        statuses = {Api().get(path).status_code, Api().post(path, raw=b"", content_type="application/json").status_code}
        assert statuses != {404}, name


def test_every_listed_grant_type_is_known(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant, grant_types=document(tenant)["grant_types_supported"]))
    for grant_type in document(tenant)["grant_types_supported"]:
        assert app.token(grant_type=grant_type).json()["error"] != "unsupported_grant_type"


def test_every_listed_prompt_and_level_is_accepted(tenant: TestTenant) -> None:
    app, listed = Application(tenant, register_application(tenant)), document(tenant)
    values = [("prompt", value) for value in listed["prompt_values_supported"]]
    values += [("acr_values", value) for value in listed["acr_values_supported"]]
    values += [("scope", value) for value in listed["scopes_supported"] if ":" not in value]
    for name, value in values:
        fields = query_of(page_of(app.authorize(**{name: value})))
        assert fields.get("error") in (None, "login_required"), (name, value)


@pytest.mark.parametrize("endpoint", ["revocation", "introspection"])
def test_listed_methods_of_authentication_are_accepted(endpoint: str, tenant: TestTenant) -> None:
    listed = document(tenant)
    address = urlsplit(listed[f"{endpoint}_endpoint"]).path
    statuses = {}
    # Those with certificates are listed where a proxy passes them on (test_mutual_tls.py).
    for method in set(METHODS).difference(TLS_METHODS):
        type_, key = "public" if method == "none" else "confidential", new_key()
        keys = {"jwks": key_set(public_jwk(key))} if method == PRIVATE_KEY_JWT else {}
        client = make_client(tenant, type=type_, scopes=[], token_endpoint_auth_method=method, **keys)
        id_ = client["client_id"]
        proof = {
            "none": {"client_id": id_},
            "client_secret_basic": {},
            "client_secret_post": {"client_id": id_, "client_secret": client.get("client_secret")},
            PRIVATE_KEY_JWT: {
                "client_assertion_type": TYPE,
                "client_assertion": assertion(key, id_, issuer(tenant)),
            },
        }[method]
        headers = basic(client) if method == "client_secret_basic" else None
        statuses[method] = Api().post(address, **form(token="x", **proof), headers=headers).status_code
    accepted = {method for method, status in statuses.items() if status == 200}
    assert accepted == set(listed[f"{endpoint}_endpoint_auth_methods_supported"])
    assert PRIVATE_KEY_JWT in accepted
    algorithms = listed["token_endpoint_auth_signing_alg_values_supported"]
    assert listed[f"{endpoint}_endpoint_auth_signing_alg_values_supported"] == algorithms


@pytest.mark.parametrize("path", DOCUMENTS)
def test_forged_host_changes_no_address(tenant: TestTenant, path: str) -> None:
    response = Api().get(path.format(tenant.slug), headers={"Host": "localhost:666"})
    assert ":666" not in response.content.decode()
    assert Api().get(path.format("unknown")).status_code == 404
