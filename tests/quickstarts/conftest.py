"""A tenant's issuer with TLS, because libraries accept no other, and applications with a client of their own there."""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.servers.basehttp import ThreadedWSGIServer
from django.core.wsgi import get_wsgi_application

from tests.examples.form_browser import FormBrowser
from tests.identity_platform.test_authorities import new_authority, with_tls
from tests.quickstarts.application import Application, trusting_browser
from tests.userflow.sessions.clients import make_client
from tests.userflow.sessions.test_oauth_libraries import Quiet
from tests.world import TestTenant, User, tokens_of_other_issuer


@dataclass(frozen=True)
class SecurePlatform:
    """The platform at a port of its own, with a certificate of the authority in the file."""

    url: str
    authority: str


class TlsHandler(Quiet):
    def handle_one_request(self) -> None:
        """End TLS before the connection (RFC 8446 section 6.1): Ruby's clients reject a response that ends without."""
        super().handle_one_request()
        if self.close_connection:
            with contextlib.suppress(OSError, ValueError):
                self.connection.settimeout(1)
                self.connection.unwrap()


@pytest.fixture
def platform_with_tls(settings: Any, tmp_path: Path) -> Iterator[SecurePlatform]:
    authority = new_authority()
    trusted = tmp_path / "authority.pem"
    trusted.write_text(authority.pem)
    server = ThreadedWSGIServer(("127.0.0.1", 0), TlsHandler)
    with_tls(server, authority, tmp_path)
    server.base_environ["HTTPS"] = "on"
    server.set_app(get_wsgi_application())
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"https://localhost:{server.server_port}"
    settings.BASE_URL = settings.TOKEN_ISSUER = url
    with tokens_of_other_issuer():
        yield SecurePlatform(url, str(trusted))
    server.shutdown()
    server.server_close()


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register(name="Ann")


@pytest.fixture
def form_browser(platform_with_tls: SecurePlatform) -> FormBrowser:
    return trusting_browser(platform_with_tls.authority)


@pytest.fixture
def new_application(
    platform_with_tls: SecurePlatform, tenant: TestTenant, tmp_path: Path
) -> Iterator[Callable[..., Application]]:
    """`new_application(path, host)` returns an empty folder for an application whose redirect URI has this path.

    Further fields are those of its client.
    """
    made: list[Application] = []

    def make(path: str, host: str = "127.0.0.1", **fields: Any) -> Application:
        client = make_client(tenant, redirect_uris=[f"http://{host}{path}"], first_party=True, **fields)
        trusted = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
        variables = {
            "OIDC_ISSUER": f"{platform_with_tls.url}/t/{tenant.slug}",
            "OIDC_CLIENT_ID": client["client_id"],
            "OIDC_CLIENT_SECRET": client["client_secret"],
            "SECRET_KEY": secrets.token_hex(32),
            **dict.fromkeys(trusted, platform_with_tls.authority),
        }
        folder = tmp_path / "application"
        folder.mkdir()
        made.append(Application(folder, host, variables))
        return made[-1]

    yield make
    for application in made:
        application.end()
