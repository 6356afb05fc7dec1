"""Pages of a tenant's clients may call its OpenID endpoints from a browser, and no other page."""

from typing import Any

import pytest

from tests.userflow.clients.test_clients import create, path
from tests.world import Api, TestTenant, capture_statements

APP = "https://app.example"
LOCAL = "http://localhost:3000"
METHODS = {"token": "POST", "par": "POST", "revoke": "POST", "userinfo": "GET, POST"}


def call(tenant: TestTenant, endpoint: str, origin: str, *, preflight: bool = False) -> Any:
    headers = {"Origin": origin} | ({"Access-Control-Request-Method": "POST"} if preflight else {})
    return Api().call("options" if preflight else "post", f"/t/{tenant.slug}/{endpoint}", headers=headers)


def cors(response: Any) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("Access-Control-")}


@pytest.mark.parametrize("endpoint", METHODS)
def test_preflight_names_methods_and_headers(tenant: TestTenant, endpoint: str) -> None:
    create(tenant, allowed_origins=[APP, LOCAL])
    for origin in (APP, LOCAL):
        response = call(tenant, endpoint, origin, preflight=True)
        assert (response.status_code, response.content, response.headers["Vary"]) == (204, b"", "Origin")
        assert cors(response) == {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": METHODS[endpoint],
            "Access-Control-Allow-Headers": "Authorization, Content-Type, DPoP, *",
            "Access-Control-Max-Age": "600",
        }


@pytest.mark.parametrize("endpoint", METHODS)
def test_response_and_error_are_readable_by_the_page(tenant: TestTenant, endpoint: str) -> None:
    create(tenant, allowed_origins=[APP])
    response = call(tenant, endpoint, APP)
    assert response.status_code >= 400
    assert "Origin" in response.headers["Vary"]
    assert cors(response) == {
        "Access-Control-Allow-Origin": APP,
        "Access-Control-Expose-Headers": "DPoP-Nonce, Retry-After, WWW-Authenticate",
    }


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "*",
        "https://other.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example/",
        "https://APP.example",
        "https://app.example.evil.example",
        "https://sub.app.example",
        "https://app.example, https://evil.example",
        "https://app.example\u00e4",
    ],
)
def test_other_origin_gets_no_header(tenant: TestTenant, origin: str) -> None:
    create(tenant, allowed_origins=[APP])
    for preflight in (True, False):
        assert cors(call(tenant, "token", origin, preflight=preflight)) == {}


def test_origin_of_another_tenant_gets_no_header(tenant: TestTenant, other_tenant: TestTenant) -> None:
    create(tenant, allowed_origins=["https://cross.example"])
    assert cors(call(other_tenant, "token", "https://cross.example", preflight=True)) == {}
    assert cors(call(tenant, "token", "https://cross.example", preflight=True))


def test_change_of_origins_counts_at_once(tenant: TestTenant) -> None:
    client = create(tenant, allowed_origins=["https://changed.example"]).json()["id"]
    assert cors(call(tenant, "token", "https://changed.example", preflight=True))
    tenant.api.patch(path(tenant, client, "deactivate"))
    assert cors(call(tenant, "token", "https://changed.example", preflight=True)) == {}
    tenant.api.patch(path(tenant, client, "activate"))
    assert cors(call(tenant, "token", "https://changed.example", preflight=True))
    tenant.api.patch(path(tenant, client), {"allowed_origins": []})
    assert cors(call(tenant, "token", "https://changed.example", preflight=True)) == {}


def test_other_paths_make_no_look_up(tenant: TestTenant) -> None:
    create(tenant, allowed_origins=[APP])
    with capture_statements() as seen:
        for place in ("/uflow/live", "/authmgr/validate", "/authmgr/token", "/t/x/y/token"):
            for method in ("get", "options"):
                response = Api().call(method, place, headers={"Origin": APP, "Access-Control-Request-Method": "GET"})
                assert cors(response) == {}
    assert seen.counts == (0, 0)
    with capture_statements() as seen:
        call(tenant, "token", APP, preflight=True)
    assert seen.counts == (0, 2)


def test_metadata_and_keys_are_readable_everywhere(tenant: TestTenant) -> None:
    for place in (f"/t/{tenant.slug}/jwks", f"/.well-known/oauth-authorization-server/t/{tenant.slug}"):
        response = Api().get(place, headers={"Origin": "https://any.example"})
        assert cors(response) == {"Access-Control-Allow-Origin": "*"}


def test_preflight_of_metadata_and_keys_is_for_every_page(tenant: TestTenant) -> None:
    """Of a page whose library sends a header of its own; nothing is looked up."""
    documents = ("jwks", ".well-known/openid-configuration")
    places = [f"/t/{tenant.slug}/{document}" for document in documents]
    places.append(f"/.well-known/oauth-authorization-server/t/{tenant.slug}")
    headers = {
        "Origin": "https://any.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "traceparent",
    }
    with capture_statements() as seen:
        for place in places:
            response = Api().call("options", place, headers=headers)
            assert response.status_code == 204
            assert cors(response) == {
                "Access-Control-Allow-Origin": "*",
                "Access-Control-Allow-Methods": "GET",
                "Access-Control-Allow-Headers": "*",
                "Access-Control-Max-Age": "600",
            }
    assert seen.counts == (0, 0)


def test_unchanged_keys_are_readable_everywhere(tenant: TestTenant) -> None:
    place = f"/t/{tenant.slug}/jwks"
    etag = Api().get(place).headers["ETag"]
    response = Api().get(place, headers={"Origin": "https://any.example", "If-None-Match": etag})
    assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", etag)
    assert cors(response) == {"Access-Control-Allow-Origin": "*"}


@pytest.mark.parametrize("preflight", [False, True])
def test_slug_in_any_case_gets_the_header(preflight: bool, tenant: TestTenant) -> None:
    create(tenant, allowed_origins=[APP])
    headers = {"Origin": APP} | ({"Access-Control-Request-Method": "POST"} if preflight else {})
    method = "options" if preflight else "post"
    for slug in (tenant.slug.upper(), tenant.slug.capitalize()):
        response = Api().call(method, f"/t/{slug}/token", headers=headers)
        # The endpoint itself knows the tenant by this address too.
        assert response.status_code == (204 if preflight else 400), response.content
        assert cors(response)["Access-Control-Allow-Origin"] == APP
