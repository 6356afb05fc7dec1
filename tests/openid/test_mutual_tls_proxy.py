"""Mutual TLS end to end: clients connect to nginx, with deploy/nginx.conf as docs/running-in-production.md changes it."""

from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests
from cryptography import x509

from drill.nginx import Nginx
from tests.openid.certificates import HEADER, Authority, Certified, self_signed
from tests.openid.certified_application import BOUND, by_authority, by_own, client_of
from tests.openid.node_client import install_packages, run_flow
from tests.openid.relying_party import CALLBACK
from tests.openid.test_foreign_clients import LIBRARIES, browser_of
from tests.userflow.sessions.test_oauth_libraries import place
from tests.world import TestTenant, tokens_of_other_issuer

__all__ = ["place"]
pytestmark = pytest.mark.needs("nginx")
Connect = Callable[[Certified | None], requests.Session]
# Of the server.
AUTHORITY = Authority("CN=Authority of the server,O=Example")


class TlsNginx(Nginx):
    """The deployed configuration with TLS, and with the lines for certificates of clients."""

    def _configure(self, down: int | None = None) -> None:
        super()._configure(down)
        address = x509.IPAddress(ip_address("127.0.0.1"))
        server, site = AUTHORITY.issue("CN=localhost", address, usage=None), self.folder / "site.conf"
        for name, text in (("server.pem", server.pem), ("server.key", server.key_pem)):
            (self.folder / name).write_text(text)
        lines = f"ssl_certificate {self.folder}/server.pem; ssl_certificate_key {self.folder}/server.key;"
        configuration = site.read_text()
        for deployed, changed in (
            (f"listen 127.0.0.1:{self.port};", f"listen 127.0.0.1:{self.port} ssl; {lines}"),
            ("server_tokens off;", "server_tokens off; ssl_verify_client optional_no_ca;"),
            (f'{HEADER} "";', f"{HEADER} $ssl_client_escaped_cert;"),
        ):
            assert configuration.count(deployed) == 1
            configuration = configuration.replace(deployed, changed)
        site.write_text(configuration)


@pytest.fixture
def proxy(place: str, tmp_path: Path, settings: Any) -> Iterator[Nginx]:
    settings.CLIENT_CERTIFICATE_HEADER, settings.CLIENT_CERTIFICATE_FORMAT = HEADER, "pem"
    settings.CLIENT_CERTIFICATE_PROXIES = [ip_network("127.0.0.1/32")]
    nginx = TlsNginx(tmp_path, int(place.rpartition(":")[2]))
    yield nginx
    nginx.end()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """`connect(certified)` returns a session whose connections present the certificate."""
    sessions: list[requests.Session] = []
    trust = tmp_path / "authority.pem"
    trust.write_text(AUTHORITY.pem)

    def connected(certified: Certified | None) -> requests.Session:
        session = requests.Session()
        session.verify, session.trust_env = str(trust), False
        if certified is not None:
            file = tmp_path / f"client-{len(sessions)}.pem"
            file.write_text(certified.pem + certified.key_pem)
            session.cert = str(file)
        sessions.append(session)
        return session

    yield connected
    for session in sessions:
        session.close()


def test_certificate_of_the_connection_counts(tenant: TestTenant, proxy: Nginx, connect: Connect) -> None:
    authority = Authority()
    own, other = authority.issue(), authority.issue("CN=other")
    registered = self_signed()
    apps = [(client_of(tenant, **by_authority(authority), **{BOUND: True}), own)]
    apps.append((client_of(tenant, **by_own(registered), **{BOUND: True}), registered))
    for app, certified in apps:
        root = f"https://127.0.0.1:{proxy.port}"
        sent = {"grant_type": "client_credentials", "client_id": app.client["client_id"]}
        response = connect(certified).post(f"{root}{app.issuer}/token", sent)
        assert response.status_code == 200, response.text
        bearer = {"Authorization": f"Bearer {response.json()['access_token']}"}
        validate = f"{root}/authmgr/validate"
        assert connect(certified).get(validate, headers=bearer).status_code == 200
        # nginx replaces a header of the client's own.
        for session, forged in (
            (connect(None), {}),
            (connect(None), certified.headers),
            (connect(other), certified.headers),
        ):
            rejected = session.post(f"{root}{app.issuer}/token", sent, headers=forged)
            assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")
            assert session.get(validate, headers={**bearer, **forged}).status_code == 401


@pytest.fixture
def base(proxy: Nginx, settings: Any) -> Iterator[str]:
    """The proxy's address, which is that of the platform and of its endpoints for clients with certificates."""
    address = f"https://127.0.0.1:{proxy.port}"
    settings.BASE_URL = settings.TOKEN_ISSUER = settings.MTLS_BASE_URL = address
    with tokens_of_other_issuer():
        yield address


@pytest.mark.needs("node")
@pytest.mark.parametrize("method", ["tls_client_auth", "self_signed_tls_client_auth"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_library_signs_a_user_in_with_a_certificate(base: str, tenant: TestTenant, library: str, method: str) -> None:
    install_packages()
    authority, own = Authority(), self_signed()
    certified, fields = own, by_own(own)
    if method == "tls_client_auth":
        certified, fields = authority.issue(), by_authority(authority)
    app = client_of(tenant, **fields, **{BOUND: True}, security_profile="fapi2", scopes=[])
    connection = {"cert": certified.pem, "key": certified.key_pem, "ca": AUTHORITY.pem}
    flow = {"library": library, "grant": "authorization_code", "redirect_uri": CALLBACK, "par": True}
    flow |= {"issuer": f"{base}{app.issuer}", "client_id": app.client["client_id"], "scope": "openid email"}
    said = run_flow({**flow, "certificate": connection}, browser_of(tenant, app.client))
    result = said.get("result")
    assert result, said
    assert (result["claims"]["aud"], result["token_type"]) == (app.client["client_id"], "bearer")
    assert result["user"]["email"] == result["claims"]["email"]
    assert result["refreshed"]["access_token"] != result["access_token"]
    bound = jwt.decode(result["refreshed"]["access_token"], options={"verify_signature": False})["cnf"]
    assert bound == {"x5t#S256": certified.thumbprint}
    # The same client with the certificate of another one.
    stolen = {**connection, "cert": (other := self_signed()).pem, "key": other.key_pem}
    assert "result" not in run_flow({**flow, "certificate": stolen}, browser_of(tenant, app.client))
