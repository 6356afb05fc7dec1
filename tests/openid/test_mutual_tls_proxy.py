"""Mutual TLS end to end: clients connect to nginx, with deploy/nginx.conf as docs/running-in-production.md changes it."""

from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import requests

from drill.nginx import Nginx
from tests.openid.certificates import HEADER, Authority, Certified, self_signed
from tests.openid.certified_application import BOUND, by_authority, by_own, client_of
from tests.userflow.sessions.test_oauth_libraries import place
from tests.world import TestTenant

__all__ = ["place"]
pytestmark = pytest.mark.needs("nginx")
Connect = Callable[[Certified | None], requests.Session]


class TlsNginx(Nginx):
    """The deployed configuration with TLS, and with the lines for certificates of clients."""

    def _configure(self, down: int | None = None) -> None:
        super()._configure(down)
        server, site = self_signed("CN=localhost"), self.folder / "site.conf"
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

    def connected(certified: Certified | None) -> requests.Session:
        session = requests.Session()
        session.verify, session.trust_env = False, False
        if certified is not None:
            file = tmp_path / f"client-{len(sessions)}.pem"
            file.write_text(certified.pem + certified.key_pem)
            session.cert = str(file)
        sessions.append(session)
        return session

    yield connected
    for session in sessions:
        session.close()


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
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
