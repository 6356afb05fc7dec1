"""The sample applications, each started as its README says, and a user who signs in through it."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import requests

from tests.examples.form_browser import FormBrowser
from tests.machine.conftest import ROOT, free_port, within
from tests.openid.application_sessions import allow
from tests.openid.relying_party import Application
from tests.openid.test_foreign_clients import base
from tests.userflow.sessions.clients import make_client
from tests.userflow.sessions.test_oauth_libraries import place
from tests.world import TestTenant, assert_created

__all__ = ["base", "place"]
EXAMPLES = ROOT / "examples"
SDK = ROOT / "sdk" / "python" / "src"
API = "https://api.example.com"


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """`start(file, **variables)` runs a program of examples/ and returns its address once it answers."""
    started: list[subprocess.Popen[bytes]] = []

    def run(file: str, **variables: str) -> str:
        port = free_port()
        env = {"PATH": os.environ["PATH"], "PORT": str(port), "PYTHONPATH": str(SDK), **variables}
        started.append(subprocess.Popen([sys.executable, "-P", str(EXAMPLES / file)], env=env))
        address = f"http://127.0.0.1:{port}"
        assert within(60, lambda: answers(address))
        return address

    yield run
    for process in started:
        process.terminate()
        process.wait(30)


def answers(address: str) -> bool:
    try:
        return requests.get(address, timeout=30).status_code in (200, 401)
    except requests.ConnectionError:
        return False


def application(tenant: TestTenant, base: str) -> dict[str, str]:
    """Return the variables of an application with a client of its own."""
    uris = {"redirect_uris": ["http://127.0.0.1/callback"], "first_party": True}
    client = make_client(tenant, **uris)
    return {
        "OIDC_ISSUER": f"{base}/t/{tenant.slug}",
        "OIDC_CLIENT_ID": client["client_id"],
        "OIDC_CLIENT_SECRET": client["client_secret"],
    }


def test_django_application_signs_in_and_out(base: str, tenant: TestTenant, start: Callable[..., str]) -> None:
    variables, user = application(tenant, base), tenant.register(name="Ann")
    address = start("django-authlib/app.py", **variables)
    allow(tenant, variables["OIDC_CLIENT_ID"], post_logout_redirect_uris=[f"{address}/"])
    browser = FormBrowser()
    browser.opens(f"{address}/login")
    assert f'<strong id="user">Ann</strong> ({user.email})' in browser.signs_in(user.email, user.password)
    assert f"sub: {user.id}" in browser.page.text
    assert "You are not signed in." in browser.opens("/logout")
    assert browser.page.url.startswith(f"{address}/")


def test_django_application_shows_errors(base: str, tenant: TestTenant, start: Callable[..., str]) -> None:
    address = start("django-authlib/app.py", **application(tenant, base))
    browser = FormBrowser()
    assert "Try again" in browser.opens(f"{address}/callback?error=access_denied&error_description=%3Cb%3E")
    assert (browser.page.status_code, "<b>" in browser.page.text) == (400, False)
    # A code that this browser has not asked for.
    assert "Try again" in browser.opens(f"{address}/callback?code=stolen&state=foreign")


def test_api_accepts_its_own_access_tokens_only(
    base: str, tenant: TestTenant, other_tenant: TestTenant, start: Callable[..., str]
) -> None:
    address = start("protected-api/app.py", OIDC_ISSUER=f"{base}/t/{tenant.slug}", API_AUDIENCE=API)
    mine, foreign = tokens(tenant), tokens(other_tenant)
    accepted = call(address, mine["access_token"])
    assert accepted.status_code == 200, accepted.headers
    assert accepted.json() == {"orders_of": mine["user"], "kind": "end_user"}
    lacking = call(address, tokens(tenant, permissions=["orders:write"])["access_token"])
    assert (lacking.status_code, lacking.headers["WWW-Authenticate"]) == (
        403,
        'Bearer error="insufficient_scope", scope="orders:read"',
    )
    for token in (
        mine["id_token"],
        mine["refresh_token"],
        foreign["access_token"],
        tokens(tenant, resource=None)["access_token"],
        mine["access_token"][:-4] + "AAAA",
    ):
        rejected = call(address, token)
        assert (rejected.status_code, rejected.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')
    anonymous = requests.get(f"{address}/orders", timeout=30)
    assert (anonymous.status_code, anonymous.headers["WWW-Authenticate"]) == (401, 'Bearer realm="api"')


def tokens(tenant: TestTenant, permissions: Collection[str] = ("orders:read",), **asked: Any) -> dict[str, Any]:
    """Return tokens for the API, of a new user with these permissions."""
    uri = "https://app.example.com/callback"
    client = make_client(
        tenant, type="public", redirect_uris=[uri], first_party=True, audiences=["https://x.example", API]
    )
    opened, user = Application(tenant, client), tenant.register()
    role = {"name": f"Orders {user.id}", "permissions": [*permissions]}
    made = assert_created(tenant.api.post("/authmgr/roles", role))
    bound = tenant.api.post(f"/authmgr/roles/{made['id']}/bindings", {"user_ids": [str(user.id)]})
    assert bound.status_code == 200, bound.content
    opened.sign_in(user)
    return {**opened.tokens(**{"resource": API, **asked}), "user": str(user.id)}


def call(address: str, token: str) -> requests.Response:
    return requests.get(f"{address}/orders", headers={"Authorization": f"Bearer {token}"}, timeout=30)
