"""A single-page application on another origin signs a user in with oidc-client-ts, in Chromium."""

import json
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.console.browser.conftest import Place
from tests.console.browser.conftest import place as place
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.openid.node_client import PACKAGES, install_packages

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
LIBRARY = "oidc-client-ts/dist/browser/oidc-client-ts.min.js"
PAGE = """<!doctype html><title>Shop</title><button id="in">Sign in</button><pre id="out"></pre>
<script src="/library.js"></script>
<script>
  const manager = new oidc.UserManager(SETTINGS);
  const show = (value) => (document.getElementById("out").textContent = value);
  document.getElementById("in").onclick = () => manager.signinRedirect().catch((problem) => show("failed: " + problem));
  async function finish() {
    const user = await manager.signinRedirectCallback();
    const renewed = await manager.signinSilent();
    show(`${user.profile.iss} ${user.profile.email} ${renewed.access_token !== user.access_token}`);
  }
  if (location.search.includes("code=")) finish().catch((problem) => show("failed: " + problem));
</script>"""


class App:
    """The web server of the application."""

    def __init__(self) -> None:
        self.page = ""
        app = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                script = self.path == "/library.js"
                body = (PACKAGES / LIBRARY).read_bytes() if script else app.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/javascript" if script else "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def app() -> Iterator[App]:
    install_packages()
    app = App()
    threading.Thread(target=app.server.serve_forever, args=(0.02,), daemon=True).start()
    yield app
    app.server.shutdown()
    app.server.server_close()


@pytest.mark.parametrize("allowed", [True, False])
def test_oidc_client_ts_signs_in_from_allowed_origins_only(
    place: Place, browser: webdriver.Chrome, app: App, allowed: bool
) -> None:
    shop = place.new_tenant("Maple Street Books")
    admin = {"username": shop["admin"]["username"], "password": PASSWORD}
    token = place.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
    body = {"name": "Shop", "type": "public", "first_party": True, "redirect_uris": [f"{app.origin}/"]}
    body["allowed_origins"] = [app.origin] if allowed else []
    client = place.call("POST", f"/clientms/tenants/{shop['tenant_id']}/clients", body, token=token)
    issuer = f"{place.url}/t/{shop['slug']}"
    config = {"authority": issuer, "client_id": client["client_id"], "redirect_uri": f"{app.origin}/"}
    config |= {"scope": "openid email offline_access", "loadUserInfo": False}
    app.page = PAGE.replace("SETTINGS", json.dumps(config))
    email, person = f"vera-{secrets.token_hex(3)}@example.com", Visitor(browser, place.url, "")
    named = {"tenant_id": shop["tenant_id"], "client_id": shop["client_id"], "email": email}
    place.call("POST", "/uflow/user/clients/register", {**named, "password": PASSWORD, "name": "Vera Visitor"})
    browser.get(f"{app.origin}/")
    browser.find_element(By.ID, "in").click()
    person.fills("E-mail address", email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.waits_until(lambda: browser.current_url.startswith(f"{app.origin}/?"))
    person.waits_until(lambda: bool(browser.find_element(By.ID, "out").text))
    said = browser.find_element(By.ID, "out").text
    assert said == f"{issuer} {email} true" if allowed else said.startswith("failed: ")
