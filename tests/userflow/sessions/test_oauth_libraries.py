"""Ordinary OAuth client libraries, unchanged, over HTTP: Authlib, requests-oauthlib, and joserfc for the tokens."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session as AuthlibSession
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from joserfc import jwt as jose
from joserfc.jwk import KeySet
from oauthlib.oauth2 import BackendApplicationClient, InvalidClientError, InvalidGrantError, InvalidScopeError
from requests_oauthlib import OAuth2Session

from tests.userflow.sessions.clients import make_client
from tests.userflow.sessions.test_suspended_tenants import set_state
from tests.world import Api, TestTenant, sign_in_admin

SUFFIX = "/.well-known/oauth-authorization-server"


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[str]:
    """The platform at a port of its own, over real sockets."""
    server = ThreadedWSGIServer(("127.0.0.1", 0), Quiet)
    server.set_app(get_wsgi_application())
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    settings.BASE_URL = f"http://localhost:{server.server_port}"
    # Plain http on loopback: the libraries want to be told.
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    yield settings.BASE_URL
    server.shutdown()
    server.server_close()


@pytest.fixture
def metadata(place: str) -> dict[str, Any]:
    return dict(requests.get(place + SUFFIX, timeout=60).json())


def test_metadata_satisfies_authlib(metadata: dict[str, Any], place: str) -> None:
    AuthorizationServerMetadata(metadata).validate()
    assert metadata["token_endpoint"] == f"{place}/authmgr/token"
    assert set(metadata["grant_types_supported"]) == {"client_credentials", "refresh_token"}
    assert "services:read" in metadata["scopes_supported"]
    assert "tenants:write" not in metadata["scopes_supported"]


def test_metadata_ignores_forged_host(api: Api) -> None:
    response = api.get(SUFFIX, headers={"Host": "localhost:666"})
    assert response.status_code in (200, 400)
    assert b":666" not in response.content
    assert api.get(SUFFIX).headers["Cache-Control"].startswith("public")


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_authlib_gets_uses_and_revokes_client_token(
    metadata: dict[str, Any], place: str, tenant: TestTenant, method: str
) -> None:
    client = make_client(tenant)
    session = AuthlibSession(
        client["client_id"],
        client["client_secret"],
        scope="services:read",
        token_endpoint_auth_method=method,
        revocation_endpoint_auth_method=method,
    )
    token = session.fetch_token(metadata["token_endpoint"], grant_type="client_credentials")
    assert token["scope"] == "services:read"
    assert session.get(f"{place}/authmgr/validate").json()["scopes"] == ["services:read"]
    known = session.introspect_token(metadata["introspection_endpoint"], token=token["access_token"]).json()
    assert (known["active"], known["client_id"]) == (True, client["client_id"])
    revoked = session.revoke_token(metadata["revocation_endpoint"], token=token["access_token"])
    assert revoked.status_code == 200
    assert session.get(f"{place}/authmgr/validate").status_code == 401


def test_authlib_refreshes_user_token(metadata: dict[str, Any], place: str, tenant: TestTenant) -> None:
    pair = tenant.sign_in(tenant.register())
    session = AuthlibSession(str(tenant.client_id), token_endpoint_auth_method="none", token=pair)
    fresh = session.refresh_token(metadata["token_endpoint"], refresh_token=pair["refresh_token"])
    assert fresh["refresh_token"] != pair["refresh_token"]
    assert session.get(f"{place}/authmgr/profile").status_code == 200


def test_requests_oauthlib_gets_client_token(metadata: dict[str, Any], place: str, tenant: TestTenant) -> None:
    client = make_client(tenant)
    session = OAuth2Session(client=BackendApplicationClient(client["client_id"], scope=["services:read"]))
    token = session.fetch_token(metadata["token_endpoint"], client_secret=client["client_secret"])
    assert token["scope"] == ["services:read"]
    assert session.get(f"{place}/authmgr/validate").json()["kind"] == "client"


def test_requests_oauthlib_understands_errors(metadata: dict[str, Any], tenant: TestTenant) -> None:
    client = make_client(tenant)
    session = OAuth2Session(client=BackendApplicationClient(client["client_id"]))
    with pytest.raises(InvalidClientError):
        session.fetch_token(metadata["token_endpoint"], client_secret="ics_wrong")
    with pytest.raises(InvalidScopeError):
        session.fetch_token(
            metadata["token_endpoint"], client_secret=client["client_secret"], scope="services:read admins:write"
        )
    with pytest.raises(InvalidGrantError):
        session.refresh_token(
            metadata["token_endpoint"],
            refresh_token="x",
            client_id=client["client_id"],
            client_secret=client["client_secret"],
        )


def test_libraries_understand_a_suspended_tenant(
    metadata: dict[str, Any], new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    pair = tenant.sign_in(tenant.register())
    set_state(tenant, "suspended")
    address, named = metadata["token_endpoint"], {"refresh_token": pair["refresh_token"]}
    with pytest.raises(OAuthError) as told:
        AuthlibSession(str(tenant.client_id), token_endpoint_auth_method="none").refresh_token(address, **named)
    assert (told.value.error, "suspended" in told.value.description) == ("invalid_grant", True)
    with pytest.raises(InvalidGrantError, match="suspended"):
        OAuth2Session(str(tenant.client_id)).refresh_token(address, client_id=str(tenant.client_id), **named)


def test_requests_oauthlib_refreshes_expired_token(metadata: dict[str, Any], place: str, tenant: TestTenant) -> None:
    pair = {**tenant.sign_in(tenant.register()), "expires_in": -1}
    kept: list[dict[str, Any]] = []
    session = OAuth2Session(
        str(tenant.client_id),
        token=pair,
        auto_refresh_url=metadata["token_endpoint"],
        auto_refresh_kwargs={"client_id": str(tenant.client_id)},
        token_updater=kept.append,
    )
    assert session.get(f"{place}/authmgr/profile").status_code == 200
    assert kept[0]["refresh_token"] != pair["refresh_token"]


def test_verifier_needs_only_published_keys(metadata: dict[str, Any], tenant: TestTenant) -> None:
    token = sign_in_admin(tenant.admin.username)["access_token"]
    keys = KeySet.import_key_set(requests.get(metadata["jwks_uri"], timeout=60).json())
    verified = jose.decode(token, keys, algorithms=["ES256"])
    rules = jose.JWTClaimsRegistry(
        iss={"essential": True, "value": metadata["issuer"]}, aud={"essential": True, "value": "identity-api"}
    )
    rules.validate(verified.claims)
    assert verified.claims["tenant_id"] == str(tenant.id)
