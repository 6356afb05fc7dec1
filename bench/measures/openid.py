"""Targets 19 and 25: sign-ins of an application with and without an existing browser session, and a refresh."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import statistics
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import parse_qs, urlencode, urlsplit

from django.contrib.auth.hashers import check_password
from django.db import connections

from bench import journey, servers, world
from bench.run import Row, Run
from openid.browser import SESSION, cookie_name
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.signin.delivery import BrowserCookie
from userflow.signin.password import sign_in_browser
from userflow.signin.pipeline import SignedIn

CALLBACK = "https://app.example.com/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
# CPU time is counted in hundredths of a second: so many requests of each kind in a round.
REQUESTS = 200
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


@dataclass
class Browser:
    """A browser with a session at a tenant, and an application whose user it is. `pages` counts hosted sign-ins' requests."""

    tenant: world.BenchTenant
    issuer: str
    cookie: str
    refresh_token: str = ""
    pages: int = 0


class Line:
    """A connection to the server that is measured."""

    def __init__(self, run: Run, server: servers.Server) -> None:
        self.home, self.server = run.home, server
        self.connection = HTTPConnection("127.0.0.1", server.port, timeout=60)

    def call(self, method: str, path: str, body: dict[str, str] | str | None = None, **headers: str) -> HTTPResponse:
        """Send a request, with a form or with JSON as text; the response is read. Raises AssertionError for an error."""
        sent = urlencode(body) if isinstance(body, dict) else body
        kind = FORM if isinstance(body, dict) else JSON if sent else {}
        self.connection.request(method, path, sent, {**kind, **headers})
        response = self.connection.getresponse()
        self.body = response.read()
        assert response.status < 400, (path, response.status, self.body[:300])
        return response

    def cpu(self) -> float:
        """Return the CPU seconds of server and PostgreSQL so far."""
        return self.server.cpu_seconds() + servers.postgres_cpu_seconds(self.home)


def measure(run: Run) -> list[Row]:
    """Measure the flow with one tenant and with many, the refresh, the hosted sign-in, the login and the read, in turns."""
    number = min(run.sizes.tenants, 100)
    browsers = [_signed_in(tenant) for tenant in world.tenants_with_users(number, run.sizes.users_of_each, run.say)]
    requests = REQUESTS if run.seconds > 1 else 20
    taken: dict[str, list[float]] = {
        "read": [],
        "flow": [],
        "flow of many": [],
        "refresh": [],
        "hosted": [],
        "login": [],
    }
    # A connection to every tenant, so that none is opened while the flow is measured.
    with servers.platform(run.home, TENANT_CONNECTION_BUDGET=str(4 * number)) as platform:
        line = Line(run, platform)
        # Warm what the measured tenants use at first: connections, keys, and statements, which the driver prepares at their
        # sixth use. One tenant is soon past that, and is not compared with tenants that are not.
        for browser in browsers * 6:
            _flow(line, browser)
        # Sessions and tokens as in a tenant in use, with the statistics that autovacuum keeps: plans for empty tables read
        # every row.
        for _ in range(requests):
            _flow(line, browsers[0])
            _refresh(line, browsers[0])
            _hosted(line, browsers[0])
            _login(line, browsers[0])
        for browser in browsers:
            with in_tenant(browser.tenant.tenant_id, Purpose.READ), connections["tenant"].cursor() as cursor:
                cursor.execute("ANALYZE")
        for round_ in range(run.rounds):
            run.say(f"openid: round {round_ + 1} of {run.rounds}")
            for name, chosen, act in (
                ("read", browsers[:1], _read),
                ("flow", browsers[:1], _flow),
                ("flow of many", browsers, _flow),
                ("refresh", browsers[:1], _refresh),
                ("hosted", browsers[:1], _hosted),
                ("login", browsers[:1], _login),
            ):
                before = line.cpu()
                for browser in itertools.islice(itertools.cycle(chosen), requests):
                    act(line, browser)
                taken[name].append((line.cpu() - before) / requests * 1e6)
    run.raw["openid"] = taken
    middle = {name: statistics.median(samples) for name, samples in taken.items()}
    return [
        _row("authorize, token and userinfo, with an existing session", middle, "flow", "read", most=6),
        _row("refresh of an application's session", middle, "refresh", "read", most=2),
        _row(f"the same flow, {number} tenants in turn", middle, "flow of many", "flow", most=1.2),
        _row_of_hosted(middle, browsers[0].pages),
    ]


def _row(what: str, middle: dict[str, float], name: str, to: str, *, most: float) -> Row:
    found = middle[name] / (middle[to] or 1.0)
    against = "read of target 1" if to == "read" else "one tenant"
    return Row(
        "19",
        what,
        ours=f"{middle[name]:.0f} µs with PostgreSQL",
        against=f"{against}: {middle[to]:.0f} µs",
        ratio=found,
        wanted=f"≤ {most}",
        met=found <= most,
    )


def _row_of_hosted(middle: dict[str, float], requests: int) -> Row:
    """Return the sign-in at hosted pages beside the login over the API. Both check the password once."""
    hash_cost, ratio = _hash_cost(), middle["hosted"] / middle["login"]
    return Row(
        "25",
        f"hosted sign-in with address and password to the tokens, {requests} requests",
        ours=f"{middle['hosted']:.0f} µs with PostgreSQL, {middle['hosted'] - hash_cost:.0f} µs without the hash",
        against=f"login over the API: {middle['login']:.0f} µs, {middle['login'] - hash_cost:.0f} µs without the hash",
        ratio=ratio,
        wanted="≤ 1.4, ≤ 4 requests",
        met=ratio <= 1.4 and requests <= 4,
    )


def _hash_cost() -> float:
    """Return the CPU time of one check of the password, in microseconds."""
    encoded, began = world.password_hash(), time.process_time()
    for _ in range(20):
        assert check_password(world.PASSWORD, encoded)
    return (time.process_time() - began) / 20 * 1e6


def _signed_in(tenant: world.BenchTenant) -> Browser:
    world.register_redirect_uri(tenant, CALLBACK)
    result = sign_in_browser(
        tenant_id=tenant.tenant_id, email=tenant.emails[0], password=world.PASSWORD, delivery=BrowserCookie()
    )
    assert isinstance(result, SignedIn)  # a user without a second factor
    cookie = f"{cookie_name(SESSION, tenant.tenant_id)}={result.cookie}"
    return Browser(tenant, f"/t/{lookup.find(tenant.tenant_id).slug}", cookie)


def _read(line: Line, browser: Browser) -> None:
    path = f"/uflow/user/enduser/{browser.tenant.tenant_id}/{browser.tenant.users[0]}"
    line.call("GET", path, Authorization=f"Bearer {browser.tenant.token}")


def _hosted(line: Line, browser: Browser) -> None:
    root, client_id = browser.issuer, str(browser.tenant.client_id)
    sign_in = journey.SignIn(
        f"{root}/authorize", f"{root}/token", client_id, CALLBACK, browser.tenant.emails[0], world.PASSWORD
    )
    _, browser.pages = journey.sign_in(line.connection, sign_in)


def _login(line: Line, browser: Browser) -> None:
    body = {"client_id": str(browser.tenant.client_id), "email": browser.tenant.emails[0], "password": world.PASSWORD}
    line.call("POST", "/uflow/auth/enduser/login", json.dumps(body))


def _flow(line: Line, browser: Browser) -> None:
    query = {
        "client_id": str(browser.tenant.client_id),
        "response_type": "code",
        "redirect_uri": CALLBACK,
        "scope": "openid profile email",
        "state": "s",
        "nonce": "n",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    back = line.call("GET", f"{browser.issuer}/authorize?{urlencode(query)}", Cookie=browser.cookie)
    code = parse_qs(urlsplit(str(back.headers["Location"])).query)["code"][0]
    tokens = _tokens(
        line, browser, grant_type="authorization_code", code=code, redirect_uri=CALLBACK, code_verifier=VERIFIER
    )
    line.call("GET", f"{browser.issuer}/userinfo", Authorization=f"Bearer {tokens['access_token']}")


def _refresh(line: Line, browser: Browser) -> None:
    _tokens(line, browser, grant_type="refresh_token", refresh_token=browser.refresh_token)


def _tokens(line: Line, browser: Browser, **body: str) -> dict[str, str]:
    line.call("POST", f"{browser.issuer}/token", {"client_id": str(browser.tenant.client_id), **body})
    tokens: dict[str, str] = json.loads(line.body)
    browser.refresh_token = tokens["refresh_token"]
    return tokens
