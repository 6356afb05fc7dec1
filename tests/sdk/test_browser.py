"""sdk/typescript in Chromium: the example of the README on a page of another origin, with passkeys."""

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browsers import wait_on
from tests.sdk.readme import example
from tests.sdk.workspace import Workspace
from tests.world import PASSWORD, TestTenant, User

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
PAGE = Path(__file__).parent / "page"
ACT = """
actions[arguments[0]]().then((value) => arguments[1]({ value }), (error) => arguments[1]({ error: String(error) }));
"""


class App(SimpleHTTPRequestHandler):
    """The web server of the application: its page, its scripts, and the installed packages."""

    scripts: dict[str, str] = {}

    def do_GET(self) -> None:
        """Send a script of the test, or a file of the workspace."""
        if self.path not in self.scripts:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.end_headers()
        self.wfile.write(self.scripts[self.path].encode())

    def guess_type(self, path: Any) -> str:
        """Return the type of a file; that of .mjs is not known everywhere."""
        return "text/javascript" if str(path).endswith("js") else str(super().guess_type(path))

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def application(workspace: Workspace, base: str, tenant: TestTenant, settings: Any) -> Iterator[str]:
    """The address of the page."""
    shutil.copytree(PAGE, workspace.folder, dirs_exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(App, directory=str(workspace.folder)))
    origin = f"http://localhost:{server.server_port}"
    settings.CORS_ALLOWED_ORIGINS, settings.WEBAUTHN_ORIGINS = [origin], [origin]
    values = {"TENANT_ID": str(tenant.id), "CLIENT_ID": str(tenant.client_id)}
    code = example("typescript", "In a browser", base_url=base, **values)
    App.scripts = {"/example.js": f"{code}export {{ client, options }};\n"}
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield origin
    server.shutdown()
    server.server_close()


def test_browser_example_has_ten_lines() -> None:
    assert len(example("typescript", "In a browser").strip().splitlines()) <= 10


def act(browser: webdriver.Chrome, action: str) -> Any:
    """Run an action of the page; return its result, and fail with its error."""
    said = browser.execute_async_script(ACT, action)
    assert "error" not in said, said["error"]
    return said.get("value")


def open_page(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    browser.set_script_timeout(60)
    wait_on(browser).until(lambda _: browser.execute_script("return 'actions' in window"))


def sign_in(browser: webdriver.Chrome, person: User) -> None:
    for name, value in (("email", person.email), ("password", PASSWORD)):
        field = browser.find_element(By.NAME, name)
        field.clear()
        field.send_keys(value)
    browser.find_element(By.NAME, "password").send_keys(Keys.ENTER)
    output = browser.find_element(By.TAG_NAME, "output")
    wait_on(browser).until(lambda _: output.text == person.email)
    browser.execute_script("arguments[0].value = ''", output)


def test_passkeys_on_a_page_of_another_origin(browser: webdriver.Chrome, application: str, tenant: TestTenant) -> None:
    person = tenant.register()
    open_page(browser, application)
    sign_in(browser, person)
    act(browser, "register")
    act(browser, "signOut")
    assert act(browser, "isSignedIn") is False

    # The passkey is the second step of the example.
    sign_in(browser, person)
    assert act(browser, "amr") == ["pwd", "pop"]
    assert act(browser, "stepUp") is True
    assert act(browser, "registerTwice") == "InvalidStateError ERROR_AUTHENTICATOR_PREVIOUSLY_REGISTERED"
    assert act(browser, "refreshInTwoTabs") == [1, 1]
    act(browser, "signOut")

    assert act(browser, "signInAlone") == ["pop", "mfa"]
    # The tokens outlive the page in its tab.
    browser.refresh()
    wait_on(browser).until(lambda _: browser.execute_script("return 'actions' in window"))
    assert act(browser, "isSignedIn") is True
    assert act(browser, "readCorruptStorage") == "signed out"

    # A copy of the tab has copies of the tokens, and drops them.
    first, others = browser.current_window_handle, set(browser.window_handles)
    browser.execute_script("window.open(location.href)")
    (copy,) = set(browser.window_handles) - others
    browser.switch_to.window(copy)
    wait_on(browser).until(lambda _: browser.execute_script("return 'actions' in window"))
    assert act(browser, "isSignedIn") is False
    sign_in(browser, tenant.register())
    assert act(browser, "isSignedIn") is True
    browser.close()
    browser.switch_to.window(first)
    assert act(browser, "isSignedIn") is True


def test_sign_in_that_must_enroll_a_passkey_first(
    browser: webdriver.Chrome, application: str, tenant: TestTenant, operator: Any
) -> None:
    person, path = tenant.register(), f"/uflow/admin/tenants/{tenant.id}/settings"
    open_page(browser, application)
    for name, value in (("email", person.email), ("password", PASSWORD)):
        browser.find_element(By.NAME, name).send_keys(value)
    assert operator.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    try:
        assert act(browser, "enrollAndSignIn") == [[], ["pwd", "pop"]]
    finally:
        operator.patch(path, {"settings": {"mfa_policy": None}})
