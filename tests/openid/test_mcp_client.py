"""The OAuth client of the package `mcp`, unchanged, at an API whose tokens Authlib checks.

It knows its client id: the platform has no dynamic registration, which the MCP specification does not require.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest
import requests
from django.conf import settings as configured
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.copies import change_client
from tests.openid.relying_party import CALLBACK, Application, query_of
from tests.openid.resource_server import ResourceServer, running_resource_server
from tests.openid.test_foreign_clients import authenticated_client, base, issuer_of, place
from tests.world import Api, TestTenant, User

__all__ = ["base", "place"]
_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


class Stored(TokenStorage):
    """What an MCP host keeps: the client as it was registered at the tenant, and its tokens."""

    def __init__(self, client: dict[str, Any]) -> None:
        # Not those of its registration: the library asks for what it finds here.
        self.client = OAuthClientInformationFull.model_validate(
            {
                "client_id": client["client_id"],
                "client_secret": client.get("client_secret"),
                "redirect_uris": [CALLBACK],
                "token_endpoint_auth_method": "client_secret_basic" if client.get("client_secret") else "none",
            }
        )
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("The client is registered already.")


class Host:
    """An MCP host, and the browser that it opens for its user."""

    def __init__(self, api: ResourceServer, client: dict[str, Any], cookies: dict[str, str]) -> None:
        self.stored, self.asked, self.back = Stored(client), "", ""
        self.api, self.cookies = api, cookies
        metadata = OAuthClientMetadata.model_validate({"redirect_uris": [CALLBACK], "client_name": "Host"})
        self.provider = OAuthClientProvider(api.resource, metadata, self.stored, self._open, self._returned)

    async def _open(self, address: str) -> None:
        self.asked = address
        self.back = await asyncio.to_thread(allowed_in_browser, address, self.cookies)

    async def _returned(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(query_of(self.back))

    def calls(self) -> httpx2.Response:
        """Call the API as the host does, with all steps that it needs."""

        async def call() -> httpx2.Response:
            async with httpx2.AsyncClient(auth=self.provider, timeout=60, trust_env=False) as client:
                return await client.post(self.api.resource)

        return asyncio.run(call())


def allowed_in_browser(address: str, cookies: dict[str, str]) -> str:
    """Open an address over HTTP, consent where it is asked for, and return the address of the application."""
    with requests.Session() as browser:
        browser.cookies.update(cookies)
        page = browser.get(address, allow_redirects=False, timeout=60)
        for _ in range(10):
            if page.status_code == 303:
                address = urljoin(address, page.headers["Location"])
                if address.startswith(CALLBACK):
                    return address
                page = browser.get(address, allow_redirects=False, timeout=60)
            else:
                found = _TOKEN.search(page.text)
                assert page.status_code == 200, page.text
                assert found, page.text
                sent = {"form_token": found[1], "allow": "1"}
                page = browser.post(address, sent, allow_redirects=False, timeout=60)
    raise AssertionError(address)


@pytest.fixture
def api(base: str, tenant: TestTenant) -> Iterator[ResourceServer]:
    with running_resource_server(issuer_of(base, tenant)) as server:
        yield server


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


def host(tenant: TestTenant, user: User, api: ResourceServer, method: str = "none", **fields: Any) -> Host:
    """A host whose client is registered for the API."""
    client, _ = authenticated_client(tenant, method, **fields)
    audiences = fields.get("audiences", ["https://other.example.com", api.resource])
    change_client(client["client_id"], audiences=audiences)
    application = Application(tenant, client)
    application.sign_in(user)
    cookies = {name: morsel.value for name, morsel in application.browser.client.cookies.items()}
    return Host(api, client, cookies)


@pytest.mark.parametrize("method", ["none", "client_secret_basic"])
def test_mcp_client_gets_a_token_for_its_api(tenant: TestTenant, user: User, api: ResourceServer, method: str) -> None:
    own = host(tenant, user, api, method)
    response = own.calls()
    assert (response.status_code, response.json()) == (200, {"sub": str(user.id)})
    asked = query_of(own.asked)
    assert (asked["resource"], asked["scope"]) == (api.resource, "openid offline_access")
    assert urlsplit(own.asked).path == f"/t/{tenant.slug}/authorize"
    (claims,) = api.accepted
    assert (claims["aud"], claims["client_id"]) == (api.resource, asked["client_id"])
    assert claims["iss"] == f"{configured.BASE_URL}/t/{tenant.slug}"


def test_mcp_client_refreshes_for_the_same_api(tenant: TestTenant, user: User, api: ResourceServer) -> None:
    own = host(tenant, user, api)
    own.calls()
    first, own.asked = own.stored.tokens, ""
    own.provider.context.token_expiry_time = 1
    assert own.calls().status_code == 200
    assert own.asked == ""
    assert first
    assert own.stored.tokens
    assert first.refresh_token != own.stored.tokens.refresh_token
    assert api.accepted[-1]["aud"] == api.resource


def test_mcp_client_is_denied_another_api(tenant: TestTenant, user: User, api: ResourceServer) -> None:
    own = host(tenant, user, api, audiences=["https://other.example.com"])
    with pytest.raises(Exception, match="code") as problem:
        own.calls()
    assert isinstance(problem.value, OAuthFlowError | ValueError)
    assert query_of(own.back)["error"] == "invalid_target"
    assert api.accepted == []


# --- the API alone ---------------------------------------------------------------------------------------------------


def status(api: ResourceServer, token: str) -> int:
    return requests.get(api.resource, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code


def application_at(tenant: TestTenant, audiences: list[str], user: User | None = None) -> Application:
    """A first-party application of the tenant and the browser of its user."""
    client, _ = authenticated_client(tenant, "none", first_party=True)
    change_client(client["client_id"], audiences=audiences)
    application = Application(tenant, client)
    application.sign_in(user or tenant.register())
    return application


def test_api_accepts_its_own_tokens_only(
    tenant: TestTenant, other_tenant: TestTenant, user: User, api: ResourceServer
) -> None:
    other = "https://other.example.com"
    application = application_at(tenant, [api.resource, other], user)
    tokens = application.tokens(resource=api.resource)
    assert status(api, tokens["access_token"]) == 200
    for name, token in {
        "ID token": tokens["id_token"],
        "refresh token": tokens["refresh_token"],
        "another audience": application.tokens(resource=other)["access_token"],
        "without the scope": application.tokens(resource=api.resource, scope="email")["access_token"],
        "JSON sign-in": tenant.sign_in(user)["access_token"],
        "another tenant": application_at(other_tenant, [api.resource]).tokens()["access_token"],
        "nothing": "x",
    }.items():
        assert status(api, token) in (401, 403), name
    assert Api(token=tokens["access_token"]).get("/authmgr/profile").status_code == 401
