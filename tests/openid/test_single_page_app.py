"""A single-page application on another origin signs a user in with oidc-client-ts, in Chromium."""

import json
import secrets
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.machine.conftest import ROOT
from tests.openid.node_client import FOLDER, PACKAGES, install_packages

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
FILES = ROOT / "examples" / "single-page-app"


class App(SimpleHTTPRequestHandler):
    """The web server of the application: its files, its own settings, and the packages that are installed already."""

    settings = ""

    def translate_path(self, path: str) -> str:
        """Return the file of a path."""
        below = path.partition("?")[0].lstrip("/")
        packages = below.removeprefix("node_modules/")
        return str(PACKAGES / packages if packages != below else FILES / below)

    def do_GET(self) -> None:
        """Send the settings of this application instead of those of the sample."""
        if self.path != "/settings.js":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.end_headers()
        self.wfile.write(App.settings.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def origin() -> Iterator[str]:
    install_packages()
    server = ThreadingHTTPServer(("127.0.0.1", 0), App)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_sample_locks_the_tested_packages() -> None:
    sample, tested = (json.loads((folder / "package-lock.json").read_text())["packages"] for folder in (FILES, FOLDER))
    packages = {name: package for name, package in sample.items() if name}
    assert packages == {name: tested[name] for name in packages}


@pytest.mark.parametrize("allowed", [True, False])
def test_oidc_client_ts_signs_in_from_allowed_origins_only(
    place: RunningPlatform, browser: webdriver.Chrome, origin: str, allowed: bool
) -> None:
    shop = place.new_tenant("Maple Street Books")
    admin = {"username": shop["admin"]["username"], "password": PASSWORD}
    token = place.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
    home = f"{origin}/"
    body = {"name": "Shop", "type": "public", "first_party": True, "redirect_uris": [home]}
    body |= {"post_logout_redirect_uris": [home], "allowed_origins": [origin] if allowed else []}
    client = place.call("POST", f"/clientms/tenants/{shop['tenant_id']}/clients", body, token=token)
    issuer = f"{place.url}/t/{shop['slug']}"
    App.settings = f"const ISSUER = {json.dumps(issuer)}, CLIENT_ID = {json.dumps(client['client_id'])};"
    email, person = f"vera-{secrets.token_hex(3)}@example.com", Visitor(browser, place.url, "")
    named = {"tenant_id": shop["tenant_id"], "client_id": shop["client_id"], "email": email}
    place.call("POST", "/uflow/user/clients/register", {**named, "password": PASSWORD, "name": "Vera Visitor"})
    browser.get(home)
    reads(person, "You are not signed in.")
    browser.find_element(By.ID, "sign-in").click()
    person.fills("E-mail address", email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.waits_until(lambda: browser.current_url.startswith(home))
    if not allowed:
        reads(person, "Failed: ")
        return
    reads(person, "Signed in as Vera Visitor.")
    # The code is no longer in the address.
    person.waits_until(lambda: browser.current_url == home)
    browser.find_element(By.ID, "renew").click()
    reads(person, "Signed in as Vera Visitor. The tokens are new.")
    browser.find_element(By.ID, "sign-out").click()
    person.waits_until(lambda: browser.current_url.startswith(home))
    reads(person, "You are not signed in.")


def reads(person: Visitor, text: str) -> None:
    """Wait until the application shows this text."""
    person.waits_until(lambda: person.browser.find_element(By.ID, "state").text.startswith(text))
