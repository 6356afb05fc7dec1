"""Clients authenticate with a key at their tenant's token endpoint too, and only there."""

from typing import Any

import pytest
from django.conf import settings

from tests.copies import change_client
from tests.openid.relying_party import CALLBACK, Application, register_application
from tests.userflow.clients.keys import assertion, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE, issuer, key_client, post
from tests.userflow.sessions.clients import form, make_client
from tests.world import Api, TestTenant


def token(tenant: TestTenant, stated: str, **parameters: str) -> Any:
    proof = {"client_assertion_type": TYPE, "client_assertion": stated, "grant_type": "client_credentials"}
    return Api().post(f"/t/{tenant.slug}/token", **form(**{**proof, **parameters}))


def test_token_endpoint_accepts_an_assertion_once(tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    stated = assertion(key, client["id"], issuer(tenant))
    assert token(tenant, stated).status_code == 200
    replayed = token(tenant, stated)
    assert (replayed.status_code, replayed.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["9999999999", "later", 10**400, float("nan"), float("inf"), True, [1], {}])
def test_assertion_with_another_time_is_rejected(name: str, value: object, tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    rejected = token(tenant, assertion(key, client["id"], issuer(tenant), **{name: value}))
    assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("changes", [{"jti": ["a"]}, {"aud": [["x"]]}, {"aud": {}}, {"sub": 7}])
def test_assertion_of_another_form_is_rejected(changes: dict[str, object], tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    claims: dict[str, Any] = {"audience": issuer(tenant), **changes}
    audience = claims.pop("aud", claims.pop("audience"))
    rejected = token(tenant, assertion(key, client["id"], audience, **claims))
    assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")


def test_assertion_at_another_tenants_endpoint_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    for audience in (issuer(tenant), issuer(other_tenant)):
        rejected = token(other_tenant, assertion(key, client["id"], audience), client_id=client["id"])
        assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")


def test_token_endpoint_enforces_the_registered_method(tenant: TestTenant) -> None:
    for method, expected in (("client_secret_basic", 401), ("client_secret_post", 200)):
        client = make_client(tenant, token_endpoint_auth_method=method)
        sent = form(grant_type="client_credentials", client_id=client["id"], client_secret=client["client_secret"])
        assert Api().post(f"/t/{tenant.slug}/token", **sent).status_code == expected


def test_assertion_for_authmgr_is_rejected_below_the_issuer(tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    platform = f"{settings.BASE_URL}/authmgr/token"
    rejected = token(tenant, assertion(key, client["id"], platform))
    assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")
    assert post(assertion(key, client["id"], platform)).status_code == 200


def test_push_takes_a_long_assertion(tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    app = Application(tenant, register_application(tenant))
    change_client(client["id"], redirect_uris=[CALLBACK])
    stated = assertion(key, client["id"], issuer(tenant), padding="p" * 4000)
    sent = app.parameters(client_id=client["id"], client_assertion_type=TYPE, client_assertion=stated)
    pushed = Api().post(f"/t/{tenant.slug}/par", **form(**sent))
    assert pushed.status_code == 201, pushed.content
