"""The applications on Node.js of docs/quickstarts.md sign a user in."""

import json
from collections.abc import Callable

import pytest

from console.platform.client_configuration import configuration_of
from tests.examples.form_browser import FormBrowser
from tests.quickstarts.application import NODE_FOLDER, Application
from tests.quickstarts.page import installed_by
from tests.world import User
from userflow.accounts.models import Client

New = Callable[..., Application]


def test_page_installs_the_pinned_packages() -> None:
    pinned = json.loads((NODE_FOLDER / "package.json").read_text())["dependencies"]
    versions = dict(word.rsplit("@", 1) for word in installed_by("npm install"))
    assert {name: version for name, version in versions.items() if not pinned[name].startswith(version)} == {}
    assert len(versions) >= 8


@pytest.mark.needs("node")
def test_express_openid_connect_signs_in_and_out(new_application: New, form_browser: FormBrowser, user: User) -> None:
    application = new_application("/callback")
    application.use_node_packages()
    application.start("Express")
    assert form_browser.opens(f"{application.address}/") == "Open /login to sign in."
    form_browser.opens("/login")
    assert form_browser.signs_in(user.email, user.password) == f"Signed in as {user.email}"
    assert form_browser.opens("/logout") == "Open /login to sign in."


@pytest.mark.needs("node")
def test_auth_js_signs_in(new_application: New, form_browser: FormBrowser, user: User) -> None:
    application = new_application("/api/auth/callback/identity", "localhost")
    application.use_node_packages()
    application.start("Next.js")
    assert "Sign in" in form_browser.opens(f"{application.address}/")
    form_browser.opens("/api/auth/signin")
    form_browser.sends()
    assert user.email in form_browser.signs_in(user.email, user.password)


@pytest.mark.needs("node")
def test_auth_js_lines_of_the_console_sign_in(new_application: New, form_browser: FormBrowser, user: User) -> None:
    # The lines for a secret in the body are those of the default, and one more.
    post = {"token_endpoint_auth_method": "client_secret_post"}
    application = new_application("/api/auth/callback/identity", "localhost", **post)
    client = Client.objects.get(pk=application.environment["OIDC_CLIENT_ID"])
    printed = dict(configuration_of(client, application.environment["OIDC_ISSUER"]))["Auth.js (Next.js)"]
    pinned = json.loads((NODE_FOLDER / "package.json").read_text())["dependencies"]
    assert f"next-auth@{pinned['next-auth']}:" in printed
    application.use_node_packages()
    application.start("Next.js", **{"auth.js": printed})
    form_browser.opens(f"{application.address}/api/auth/signin")
    form_browser.sends()
    assert user.email in form_browser.signs_in(user.email, user.password)
