"""The applications of the libraries, each with a client of its own at a tenant's issuer with TLS."""

import secrets
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.openid.libraries.libraries import ROOT, Sample
from tests.openid.node_client import install_packages, node_programs
from tests.quickstarts.application import Application
from tests.quickstarts.conftest import SecurePlatform, form_browser, platform_with_tls, user
from tests.userflow.sessions.clients import make_client
from tests.world import TestTenant

__all__ = ["form_browser", "platform_with_tls", "user"]

PYTHON = Path(sysconfig.get_path("data")) / "libraries" / "bin" / "python"
NODE_FOLDER = Path(__file__).parent / "node"
API = "https://orders.example.com"


def command_of(source: str) -> list[str]:
    """Return the command that runs a file of the project."""
    path = ROOT / source
    match path.suffix:
        case ".mjs":
            install_packages(NODE_FOLDER)
            return [str(node_programs()[0]), str(path)]
        case ".rb":
            return ["ruby", str(path)]
        case ".go":
            return ["go", "-C", str(path.parent), "run", path.name]
        case _:
            return [str(PYTHON), str(path)]


@pytest.fixture
def prepare(
    platform_with_tls: SecurePlatform, tenant: TestTenant, tmp_path: Path
) -> Iterator[Callable[[Sample], Application]]:
    """`prepare(library)` returns an application with a client of its own for a library; it is not started."""
    prepared: list[Application] = []

    def prepare_application(library: Sample) -> Application:
        variables = {
            "OIDC_ISSUER": f"{platform_with_tls.url}/t/{tenant.slug}",
            "SECRET_KEY": secrets.token_hex(32),
            "API_AUDIENCE": API,
            **dict.fromkeys(
                ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"), platform_with_tls.authority
            ),
        }
        application = Application(tmp_path, "127.0.0.1", variables)
        prepared.append(application)
        client = make_client(
            tenant,
            redirect_uris=[f"http://127.0.0.1{library.callback}"],
            post_logout_redirect_uris=[f"{application.address}{path}" for path in ("/", "/logout")],
            first_party=True,
            **library.client,
        )
        application.environment |= {
            "OIDC_CLIENT_ID": client["client_id"],
            "OIDC_CLIENT_SECRET": client["client_secret"],
        }
        return application

    yield prepare_application
    for application in prepared:
        application.end()
        for log in tmp_path.glob("*.log"):
            # Shown where the test has failed.
            print(log.read_text())


@pytest.fixture
def start(prepare: Callable[[Sample], Application]) -> Callable[[Sample], Application]:
    """`start(library)` starts the application of a library."""

    def start_application(library: Sample) -> Application:
        application = prepare(library)
        application.serve(command_of(library.source), application.port)
        return application

    return start_application
