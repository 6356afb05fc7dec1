"""Apache and nginx with the lines of docs/quickstarts.md protect an application."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from drill.nginx import OUTER
from drill.nginx import PLACES as DAEMONS
from tests.examples.form_browser import FormBrowser
from tests.machine.conftest import free_port
from tests.machine.groups import APACHE_MODULES
from tests.quickstarts.application import Application
from tests.quickstarts.page import block, write_file
from tests.world import User

New = Callable[[str], Application]
MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "headers", "auth_openidc")


class Shop(BaseHTTPRequestHandler):
    """The protected application: it shows the address that the proxy names."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"Signed in as {self.headers['X-Email']}".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def shop() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def let_workers_read(folder: Path) -> None:
    """Let the server's workers, which run as another user, read the folder."""
    for reached in (folder, *folder.parents):
        if reached == Path(tempfile.gettempdir()):
            return
        reached.chmod(0o755)


def program(name: str) -> str:
    path = shutil.which(name, path=DAEMONS)
    assert path
    return path


@pytest.mark.needs("nginx", "flask")
def test_nginx_asks_the_flask_application(
    new_application: New, form_browser: FormBrowser, user: User, shop: int
) -> None:
    application = new_application("/callback")
    for text in (block("Flask", "python"), block("nginx", "python")):
        write_file(application.folder, text)
    inner, application.port = application.port, free_port()
    application.serve(["flask", "run"], inner)
    lines = block("nginx", "nginx").replace(":5000", f":{inner}").replace(":9000", f":{shop}")
    (application.folder / "site.conf").write_text(f"server {{ listen 127.0.0.1:{application.port};\n{lines}}}\n")
    (application.folder / "nginx.conf").write_text(OUTER)
    let_workers_read(application.folder)
    words = [program("nginx"), "-p", str(application.folder), "-c", "nginx.conf", "-e", "nginx.log"]
    application.serve(words, application.port)
    form_browser.session.headers["X-Email"] = "forged@example.com"
    form_browser.opens(f"{application.address}/")
    assert form_browser.signs_in(user.email, user.password) == f"Signed in as {user.email}"
    assert form_browser.page.url == f"{application.address}/"
    form_browser.opens("/check")
    assert form_browser.page.status_code == 404


@pytest.mark.needs("mod_auth_openidc")
def test_apache_signs_in(new_application: New, form_browser: FormBrowser, user: User) -> None:
    application = new_application("/callback")
    folder = application.folder
    (folder / "index.html").write_text("The shop")
    write_file(folder, block("Apache", "apache"))
    lines = [f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so" for name in MODULES]
    lines += [f"Listen 127.0.0.1:{application.port}", f"ServerName 127.0.0.1:{application.port}"]
    lines += [f"ServerRoot {folder}", f"DocumentRoot {folder}", "PidFile apache.pid", "ErrorLog apache.log"]
    lines += ["Mutex file:. default", f"OIDCCABundlePath {application.environment['SSL_CERT_FILE']}"]
    lines += ["User www-data", "Group www-data"] if os.geteuid() == 0 else []
    site = ["Include site.conf", 'Header set X-Email "%{OIDC_CLAIM_email}e"']
    lines += [f"<VirtualHost 127.0.0.1:{application.port}>", *site, "</VirtualHost>"]
    (folder / "apache.conf").write_text("\n".join(lines) + "\n")
    let_workers_read(folder)
    application.serve([program("apache2"), "-f", str(folder / "apache.conf"), "-DFOREGROUND"], application.port)
    form_browser.opens(f"{application.address}/index.html")
    assert form_browser.signs_in(user.email, user.password) == "The shop"
    assert form_browser.page.headers["X-Email"] == user.email
