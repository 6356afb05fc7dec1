"""The React application of docs/quickstarts.md and the console's lines for oidc-client-ts sign a user in, in Chromium."""

import json
import secrets
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.openid.node_client import install_packages, node_programs
from tests.quickstarts.application import NODE_FOLDER
from tests.quickstarts.page import block, write_file

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
PAGE = '<!doctype html><html lang="en"><title>Shop</title><div id="root"></div><script type="module" src="/main.js"></script>'


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """The origin of a web server for the files in the temporary folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def bundle(folder: Path, **variables: str) -> None:
    """Bundle `src/main.jsx` as Vite does, with these variables."""
    install_packages(NODE_FOLDER)
    (folder / "index.html").write_text(PAGE)
    (folder / "node_modules").symlink_to(NODE_FOLDER / "node_modules")
    command = [node_programs()[0], "node_modules/esbuild/bin/esbuild", "src/main.jsx", "--bundle", "--format=esm"]
    command += [f"--define:import.meta.env.{name}={json.dumps(value)}" for name, value in variables.items()]
    done = subprocess.run(
        [*command, "--jsx=automatic", "--outfile=main.js"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Shop:
    """A client for a single-page application, and the address of a user named Vera Visitor whose password is PASSWORD."""

    issuer: str
    client_id: str
    email: str


def new_shop(place: RunningPlatform, origin: str, **fields: Any) -> Shop:
    """Create a tenant with the client, which gets these fields, and the user."""
    shop = place.new_tenant("Maple Street Tools")
    admin = {"username": shop["admin"]["username"], "password": PASSWORD}
    token = place.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
    home = f"{origin}/"
    body = {"name": "Shop", "type": "public", "first_party": True, "redirect_uris": [home]}
    body |= {"post_logout_redirect_uris": [home], "allowed_origins": [origin], **fields}
    client = place.call("POST", f"/clientms/tenants/{shop['tenant_id']}/clients", body, token=token)
    email = f"vera-{secrets.token_hex(3)}@example.com"
    user = {"tenant_id": shop["tenant_id"], "client_id": shop["client_id"], "email": email}
    place.call("POST", "/uflow/user/clients/register", {**user, "password": PASSWORD, "name": "Vera Visitor"})
    return Shop(f"{place.url}/t/{shop['slug']}", client["client_id"], email)


def test_react_oidc_context_signs_in_and_out(
    place: RunningPlatform, browser: webdriver.Chrome, origin: str, tmp_path: Path
) -> None:
    shop, home = new_shop(place, origin), f"{origin}/"
    write_file(tmp_path, block("React", "jsx"))
    bundle(tmp_path, VITE_OIDC_ISSUER=shop.issuer, VITE_OIDC_CLIENT_ID=shop.client_id)
    person = Visitor(browser, place.url, "")
    browser.get(home)
    click(person, "sign-in")
    person.fills("E-mail address", shop.email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.waits_until(lambda: browser.current_url == home)
    person.waits_until(lambda: browser.find_element(By.ID, "state").text == "Signed in as Vera Visitor.")
    click(person, "sign-out")
    person.waits_until(lambda: browser.current_url == home)
    person.waits_until(lambda: bool(browser.find_elements(By.ID, "sign-in")))


# What an application adds to the lines that the console prints.
USE_OF_LINES = """
const state = document.createElement("p"), button = document.createElement("button");
state.id = "state";
button.id = "sign-in";
button.onclick = () => users.signinRedirect();
document.body.append(state, button);
if (new URLSearchParams(location.search).has("code"))
  users.signinRedirectCallback().then((user) => { state.textContent = user.profile.name; });
"""
PRINT_LINES = """
import json
from console.platform.client_configuration import configuration_of
from userflow.accounts.models import Client
print(json.dumps(configuration_of(Client.objects.get(pk={!r}), {!r})))
"""


@pytest.mark.parametrize("dpop", [False, True])
def test_oidc_client_ts_lines_of_the_console_sign_in(
    place: RunningPlatform, browser: webdriver.Chrome, origin: str, tmp_path: Path, dpop: bool
) -> None:
    shop, person = new_shop(place, origin, dpop_bound_access_tokens=dpop), Visitor(browser, place.url, "")
    printed = place.manage("shell", "--no-imports", "-c", PRINT_LINES.format(shop.client_id, shop.issuer))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.jsx").write_text(dict(json.loads(printed))["oidc-client-ts"] + USE_OF_LINES)
    bundle(tmp_path)
    browser.get(f"{origin}/")
    click(person, "sign-in")
    person.fills("E-mail address", shop.email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.waits_until(lambda: browser.current_url.startswith(f"{origin}/"))
    person.waits_until(lambda: browser.find_element(By.ID, "state").text == "Vera Visitor")


def click(person: Visitor, name: str) -> None:
    """Click a button once it is there."""
    person.waits_until(lambda: bool(person.browser.find_elements(By.ID, name)))
    person.browser.find_element(By.ID, name).click()
