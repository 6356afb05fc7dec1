"""Unchanged OpenID client libraries against a running server: openid-client and oauth4webapi on Node.js, and Authlib."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from authlib.oidc.core import CodeIDToken
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt as jose
from joserfc.jwk import ECKey, KeySet

from tests.openid.node_client import install_packages, run_flow
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import CALLBACK, Application, query_of
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.sessions.clients import make_client
from tests.userflow.sessions.test_oauth_libraries import place
from tests.world import TestTenant, tokens_of_other_issuer
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN

__all__ = ["place"]
LIBRARIES = ("openid-client", "oauth4webapi")
METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt")


@pytest.fixture
def base(place: str, settings: Any) -> Iterator[str]:
    """The address of a running server, whose issuers begin with it."""
    settings.TOKEN_ISSUER = place
    with tokens_of_other_issuer():
        yield place


@pytest.fixture(scope="module")
def node() -> None:
    install_packages()


def issuer_of(base: str, tenant: TestTenant) -> str:
    """The issuer of the tenant at the running server."""
    return f"{base}/t/{tenant.slug}"


def discovered(base: str, tenant: TestTenant) -> dict[str, Any]:
    """The metadata of the issuer."""
    return dict(requests.get(issuer_of(base, tenant) + "/.well-known/openid-configuration", timeout=60).json())


def authenticated_client(tenant: TestTenant, method: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A client that authenticates in this way, and what a flow states about it."""
    key = new_key()
    if method == "private_key_jwt":
        fields["jwks"] = key_set(public_jwk(key, kid="k1"))
    if method == "none":
        fields |= {"type": "public", "scopes": []}
    client = make_client(tenant, token_endpoint_auth_method=method, redirect_uris=[CALLBACK], **fields)
    stated = {"client_id": client["client_id"], "method": method, "secret": client.get("client_secret")}
    if method == "private_key_jwt":
        stated["key"] = {**ECKey.import_key(key).as_dict(private=True), "kid": "k1"}
    return client, stated


def browser_of(tenant: TestTenant, client: dict[str, Any]) -> Any:
    """A browser in which a user of the tenant is signed in: takes an address, returns where it is sent back to."""
    application = Application(tenant, client)
    application.sign_in(tenant.register())

    def browse(address: str) -> str:
        parts = urlsplit(address)
        response = application.browser.get(f"{parts.path}?{parts.query}")
        assert response.status_code == 303, response.content
        return str(response.headers["Location"])

    return browse


def approving_user_of(tenant: TestTenant) -> Any:
    """A browser in which a user of the tenant approves the device whose address it opens."""
    visitor = Visitor(tenant)
    visitor.signs_in(tenant.register())

    def browse(address: str) -> str:
        parts = urlsplit(address)
        visitor.opens(f"{parts.path}?{parts.query}")
        visitor.sends(allow="1")
        assert "Go back to your device" in visitor.words
        return address

    return browse


# --- Node.js ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs("node")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_node_client_gets_its_own_token(base: str, tenant: TestTenant, node: None, library: str, method: str) -> None:
    _, stated = authenticated_client(tenant, method)
    flow = {"library": library, "grant": "client_credentials", "scope": "services:read", "rfc8414": True, **stated}
    result = run_flow({**flow, "issuer": issuer_of(base, tenant)})
    assert result.get("result", result)["scope"] == "services:read", result


@pytest.mark.needs("node")
@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
@pytest.mark.parametrize("par", [False, True], ids=["link", "par"])
@pytest.mark.parametrize("method", METHODS)
def test_openid_client_signs_a_user_in(
    base: str, tenant: TestTenant, node: None, settings: Any, method: str, par: bool, dpop: bool
) -> None:
    settings.DPOP_NONCES = dpop
    client, stated = authenticated_client(
        tenant, method, first_party=True, require_par=par, dpop_bound_access_tokens=dpop
    )
    flow = {"library": "openid-client", "grant": "authorization_code", "redirect_uri": CALLBACK, "par": par, **stated}
    flow |= {"scope": "openid email offline_access", "issuer": issuer_of(base, tenant), "dpop": dpop}
    said = run_flow(flow, browser_of(tenant, client))
    result = said.get("result")
    assert result, said
    assert (result["claims"]["aud"], result["claims"]["iss"]) == (client["client_id"], flow["issuer"])
    assert result["user"]["email"] == result["claims"]["email"]
    assert result["refreshed"]["access_token"] != result["access_token"]
    assert result["token_type"] == result["refreshed"]["token_type"] == ("dpop" if dpop else "bearer")


@pytest.mark.needs("node")
@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
@pytest.mark.parametrize("par", [False, True], ids=["link", "par"])
@pytest.mark.parametrize("method", ["none", "client_secret_basic", "private_key_jwt"])
def test_oauth4webapi_signs_a_user_in(
    base: str, tenant: TestTenant, node: None, settings: Any, method: str, par: bool, dpop: bool
) -> None:
    settings.DPOP_NONCES = dpop
    client, stated = authenticated_client(
        tenant, method, first_party=True, require_par=par, dpop_bound_access_tokens=dpop
    )
    flow = {"library": "oauth4webapi", "grant": "authorization_code", "redirect_uri": CALLBACK, "par": par, **stated}
    flow |= {"scope": "openid email", "issuer": issuer_of(base, tenant), "dpop": dpop}
    said = run_flow(flow, browser_of(tenant, client))
    result = said.get("result")
    assert result, said
    assert (result["claims"]["aud"], result["claims"]["iss"]) == (client["client_id"], flow["issuer"])
    assert result["user"]["email"] == result["claims"]["email"]
    assert result["refreshed"]["access_token"] != result["access_token"]
    assert result["token_type"] == ("dpop" if dpop else "bearer")
    # It repeats a request with the nonce that the server has sent.
    assert (result["nonces"] > 0) is dpop


@pytest.mark.needs("node")
@pytest.mark.parametrize("par", [False, True], ids=["link", "par"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_library_signs_its_request_and_verifies_the_response(
    base: str, tenant: TestTenant, node: None, library: str, par: bool
) -> None:
    client, stated = authenticated_client(tenant, "private_key_jwt", first_party=True, require_par=par)
    flow = {"library": library, "grant": "authorization_code", "redirect_uri": CALLBACK, "par": par, **stated}
    flow |= {"scope": "openid email offline_access", "issuer": issuer_of(base, tenant), "signed": True}
    addresses: list[str] = []
    browse = browser_of(tenant, client)

    def watched(address: str) -> str:
        addresses.extend((address, browse(address)))
        return addresses[-1]

    said = run_flow(flow, watched)
    result = said.get("result")
    assert result, said
    assert result["user"]["email"] == result["claims"]["email"]
    sent, returned = map(query_of, addresses)
    assert set(sent) == {"client_id", "request_uri" if par else "request"}
    assert set(returned) == {"response"}


@pytest.mark.needs("node")
@pytest.mark.parametrize("library", ["openid-client", "oauth4webapi"])
def test_library_signs_a_user_in_with_fapi2(
    base: str, tenant: TestTenant, node: None, settings: Any, library: str
) -> None:
    settings.DPOP_NONCES = True
    client, stated = authenticated_client(tenant, "private_key_jwt", first_party=True, security_profile="fapi2")
    flow = {"library": library, "grant": "authorization_code", "redirect_uri": CALLBACK, "par": True, **stated}
    flow |= {"scope": "openid email", "issuer": issuer_of(base, tenant), "dpop": True}
    said = run_flow(flow, browser_of(tenant, client))
    result = said.get("result")
    assert result, said
    assert (result["claims"]["aud"], result["token_type"]) == (client["client_id"], "dpop")
    assert result["user"]["email"] == result["claims"]["email"]
    assert result["refreshed"]["access_token"] != result["access_token"]


@pytest.mark.needs("node")
@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
@pytest.mark.parametrize("method", ["none", "private_key_jwt"])
def test_oauth4webapi_signs_a_device_in(
    base: str, tenant: TestTenant, node: None, settings: Any, method: str, dpop: bool
) -> None:
    settings.DPOP_NONCES = dpop
    fields = {"grant_types": [DEVICE_CODE, REFRESH_TOKEN], "first_party": True, "dpop_bound_access_tokens": dpop}
    _, stated = authenticated_client(tenant, method, **fields)
    flow = {"library": "oauth4webapi", "grant": "device_code", "dpop": dpop, "scope": "openid email", **stated}
    said = run_flow({**flow, "issuer": issuer_of(base, tenant)}, approving_user_of(tenant))
    result = said.get("result")
    assert result, said
    assert result["seen"] == ["authorization_pending"]
    assert result["refreshed"]["scope"] == "openid email"


@pytest.mark.needs("node")
@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
def test_openid_client_signs_a_device_in(base: str, tenant: TestTenant, node: None, settings: Any, dpop: bool) -> None:
    settings.DPOP_NONCES = dpop
    fields = {"grant_types": [DEVICE_CODE], "first_party": True, "dpop_bound_access_tokens": dpop}
    _, stated = authenticated_client(tenant, "none", **fields)
    flow = {"library": "openid-client", "grant": "device_code", "scope": "openid", "dpop": dpop, **stated}
    said = run_flow({**flow, "issuer": issuer_of(base, tenant)}, approving_user_of(tenant))
    assert said.get("result", said)["claims"]["aud"] == stated["client_id"]


@pytest.mark.needs("node")
def test_openid_client_reads_the_error_of_a_wrong_secret(base: str, tenant: TestTenant, node: None) -> None:
    _, stated = authenticated_client(tenant, "client_secret_basic")
    flow = {"library": "openid-client", "grant": "client_credentials", "scope": "services:read", **stated}
    said = run_flow({**flow, "secret": "ics_wrong", "issuer": issuer_of(base, tenant)})
    # What the library makes of 401 with WWW-Authenticate.
    assert said["error"] == "OAUTH_WWW_AUTHENTICATE_CHALLENGE"


# --- Authlib ---------------------------------------------------------------------------------------------------------


def test_authlib_authenticates_with_a_key(base: str, tenant: TestTenant) -> None:
    # Authlib signs with RSA keys only.
    key, endpoint = rsa.generate_private_key(65537, 2048), discovered(base, tenant)["token_endpoint"]
    client = make_client(tenant, token_endpoint_auth_method="private_key_jwt", jwks=key_set(public_jwk(key)))
    with OAuth2Session(client["client_id"], _pem(key), token_endpoint_auth_method="private_key_jwt") as session:
        session.register_client_auth_method(PrivateKeyJWT(endpoint, alg="RS256"))
        token = session.fetch_token(endpoint, grant_type="client_credentials", scope="services:read")
    assert token["scope"] == "services:read"


def _pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def test_authlib_signs_a_user_in(base: str, tenant: TestTenant) -> None:
    client, _ = authenticated_client(tenant, "client_secret_basic", first_party=True)
    server, verifier, nonce = discovered(base, tenant), "v" * 64, "a nonce of the application"
    session = OAuth2Session(
        client["client_id"],
        client["client_secret"],
        scope="openid",
        redirect_uri=CALLBACK,
        code_challenge_method="S256",
    )
    with session:
        address, state = session.create_authorization_url(
            server["authorization_endpoint"], code_verifier=verifier, nonce=nonce
        )
        back = browser_of(tenant, client)(address)
        token = session.fetch_token(
            server["token_endpoint"], authorization_response=back, state=state, code_verifier=verifier
        )
    keys = KeySet.import_key_set(requests.get(server["jwks_uri"], timeout=60).json())
    claims = CodeIDToken(
        jose.decode(token["id_token"], keys, algorithms=["RS256"]).claims,
        {"alg": "RS256"},
        {"iss": {"essential": True, "value": server["issuer"]}},
        {"nonce": nonce, "client_id": client["client_id"], "access_token": token["access_token"]},
    )
    claims.validate(now=int(time.time()), leeway=5)
    assert claims["aud"] == client["client_id"]
