"""oauth2-proxy, installed and set up as docs/quickstarts.md says, signs users in in front of an application."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.examples.form_browser import FormBrowser
from tests.quickstarts.application import PYTHON_PROGRAMS, Application
from tests.quickstarts.page import BLOCKS, block
from tests.world import TestTenant, User
from userflow.accounts.models import EndUser

HEADING = "oauth2-proxy"
BUILD_SECONDS = 1200
pytestmark = [pytest.mark.needs("go"), pytest.mark.nightly, pytest.mark.timeout(BUILD_SECONDS + 300)]


class ReadsHeaders(BaseHTTPRequestHandler):
    """An application that relies on the headers of the proxy."""

    def do_GET(self) -> None:
        names = ("X-Forwarded-User", "X-Forwarded-Email")
        content = " ".join(self.headers.get(name, "") for name in names).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def protected() -> Iterator[int]:
    """The port of the application behind the proxy."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ReadsHeaders)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The folder with the program, which the command of the page installs."""
    (command,) = [
        line
        for heading, language, text in BLOCKS
        if (heading, language) == (HEADING, "sh")
        for line in text.splitlines()
        if line.startswith("go install ")
    ]
    folder = tmp_path / "programs"
    path = f"{PYTHON_PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GOBIN": str(folder)}
    subprocess.run(command.split(), env=environment, check=True, timeout=BUILD_SECONDS, capture_output=True)
    return folder


def test_oauth2_proxy_signs_in(
    new_application: Callable[[str], Application],
    form_browser: FormBrowser,
    tenant: TestTenant,
    user: User,
    programs: Path,
    protected: int,
) -> None:
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=user.id).update(email_verified_at=now())
    application = new_application("/oauth2/callback")
    application.environment["PATH"] = f"{programs}{os.pathsep}{application.environment['PATH']}"
    configuration = block(HEADING, "toml").replace(":9000/", f":{protected}/")
    application.start(HEADING, **{"oauth2-proxy.cfg": configuration})
    form_browser.opens(f"{application.address}/")
    assert form_browser.signs_in(user.email, user.password) == f"{user.id} {user.email}"
    # A header of the browser's own does not count.
    form_browser.session.headers["X-Forwarded-Email"] = "forged@example.com"
    assert form_browser.opens("/") == f"{user.id} {user.email}"
