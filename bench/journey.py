"""Sign users in at hosted pages until the application has its tokens, in a process of its own with a job on standard input.

It is a browser without scripts and an application in one: it follows redirects, sends back cookies, fills in an address and a
password wherever a form has such fields, and exchanges the code (RFC 6749 section 4.1, PKCE of RFC 7636). So it works with any
provider and any number of pages. Each sign-in is one of a new browser.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import secrets
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from bench.load import quantile

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ADDRESS_FIELDS = frozenset({"email", "username"})
# More pages than any sign-in has.
MOST_REQUESTS = 15


class SignInFailed(Exception):
    """A page was none that leads to the tokens."""


@dataclass(frozen=True)
class SignIn:
    """Paths of a provider, an application there, and its user."""

    authorize: str
    token: str
    client_id: str
    redirect_uri: str
    email: str
    password: str


@dataclass
class Form:
    """A form of a page. `blank` has the type of each visible field without a value."""

    action: str
    values: dict[str, str] = field(default_factory=dict)
    blank: dict[str, str] = field(default_factory=dict)
    has_button: bool = False

    def fill(self, email: str, password: str) -> bool:
        """Fill in address and password; return whether the form asked for one of them."""
        for name, kind in self.blank.items():
            if kind == "password":
                self.values[name] = password
            elif kind == "email" or name in ADDRESS_FIELDS:
                self.values[name] = email
        return any(kind == "password" or kind == "email" or name in ADDRESS_FIELDS for name, kind in self.blank.items())


class Forms(HTMLParser):
    """The forms of a page, each with what a browser sends when Enter is pressed in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a form, or add a field to the one that is open."""
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(values.get("action", "")))
            self._inside = True
        elif tag in ("input", "button") and self._inside and "disabled" not in values:
            self._add(self.forms[-1], values, kind=values.get("type", "text" if tag == "input" else "submit"))

    def handle_endtag(self, tag: str) -> None:
        """End the form."""
        self._inside = self._inside and tag != "form"

    @staticmethod
    def _add(form: Form, values: Mapping[str, str], *, kind: str) -> None:
        name, value = values.get("name", ""), values.get("value", "")
        if kind in ("submit", "image"):
            # Only the first button is sent.
            if name and not form.has_button:
                form.values[name] = value
            form.has_button = True
        elif kind in ("checkbox", "radio"):
            if name and "checked" in values:
                form.values[name] = value or "on"
        elif name and kind not in ("button", "reset", "file"):
            form.values[name] = value
            if kind != "hidden" and not value and "readonly" not in values:
                form.blank[name] = kind


class Browser:
    """A new browser on a connection that it may share with earlier ones. `requests` counts what it sent."""

    def __init__(self, connection: HTTPConnection) -> None:
        self.connection = connection
        self.cookies: dict[str, str] = {}
        self.requests = 0
        self.address, self.page, self.location, self.status = "/", "", "", 0

    def send(self, method: str, address: str, body: str | None = None) -> None:
        """Send a request; keep its page, its cookies and where it redirects."""
        self.address = urljoin(self.address, address)
        parts = urlsplit(self.address)
        cookies = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self.connection.request(method, target, body, {**(FORM if body is not None else {}), **cookies})
        response = self.connection.getresponse()
        self.page = response.read().decode("utf-8", "replace")
        self.requests += 1
        self.status, self.location = response.status, response.headers.get("Location", "")
        for line in response.headers.get_all("Set-Cookie", []):
            first, *attributes = line.split(";")
            name, _, value = first.strip().partition("=")
            self.cookies[name] = value
            if any(attribute.strip().lower() in ("max-age=0", "max-age=-1") for attribute in attributes):
                del self.cookies[name]

    def follow_until(self, redirect_uri: str, email: str, password: str) -> str:
        """Follow redirects and fill in forms; return the address of the application. Raises SignInFailed."""
        while self.requests < MOST_REQUESTS:
            if self.location.startswith(redirect_uri):
                return self.location
            if self.location:
                self.send("GET", self.location)
                continue
            form = next((form for form in Forms(self.page).forms if form.fill(email, password)), None)
            if form is None:
                break
            self.send("POST", form.action or self.address, urlencode(form.values))
        raise SignInFailed(f"{self.status} at {self.address}:\n{self.page[-1500:]}")


def sign_in(connection: HTTPConnection, job: SignIn) -> tuple[dict[str, Any], int]:
    """Return the response of the token endpoint, and the number of requests until then. Raises SignInFailed."""
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(8)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "client_id": job.client_id,
        "response_type": "code",
        "redirect_uri": job.redirect_uri,
        "scope": "openid profile email",
        "state": state,
        "nonce": secrets.token_urlsafe(8),
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    browser = Browser(connection)
    browser.send("GET", f"{job.authorize}?{urlencode(query)}")
    back = parse_qs(urlsplit(browser.follow_until(job.redirect_uri, job.email, job.password)).query)
    if back.get("state") != [state] or "code" not in back:
        raise SignInFailed(f"The provider returned {back}.")
    application = Browser(connection)
    grant = {
        "grant_type": "authorization_code",
        "code": back["code"][0],
        "redirect_uri": job.redirect_uri,
        "client_id": job.client_id,
        "code_verifier": verifier,
    }
    application.send("POST", job.token, urlencode(grant))
    if application.status != 200:
        raise SignInFailed(f"{application.status} at {job.token}: {application.page[:500]}")
    tokens: dict[str, Any] = json.loads(application.page)
    return tokens, browser.requests + application.requests


def run(*, port: int, journeys: list[SignIn], connections: int, seconds: float) -> dict[str, Any]:
    """Sign in in turn over some connections for `seconds`; return what bench.load returns, and the requests of each."""
    turns = itertools.count()
    began = time.perf_counter()
    ends = began + seconds

    def call(_: int) -> list[tuple[float, int]]:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        done = []
        while (now := time.perf_counter()) < ends or not done:
            _, requests = sign_in(connection, journeys[next(turns) % len(journeys)])
            done.append((time.perf_counter() - now, requests))
        connection.close()
        return done

    with ThreadPoolExecutor(connections) as callers:
        done = [each for some in callers.map(call, range(connections)) for each in some]
    times = sorted(time_ for time_, _ in done)
    return {
        "answers": len(times),
        "seconds": time.perf_counter() - began,
        "statuses": {200: len(times)},
        "requests_of_each": sum(requests for _, requests in done) / len(done),
        **{f"p{share}_ms": quantile(times, share / 100) * 1000 for share in (50, 95, 99)},
        "longest_ms": times[-1] * 1000,
    }


def main() -> None:
    job = json.load(sys.stdin)
    journeys = [SignIn(**each) for each in job["journeys"]]
    counted = run(port=job["port"], journeys=journeys, connections=job["connections"], seconds=job["seconds"])
    json.dump(counted, sys.stdout)


if __name__ == "__main__":
    main()
