"""A tenant of the platform or a realm of Keycloak: the addresses and credentials of the requests that both have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from bench import journey, world

CALLBACK = "https://app.example.com/callback"
JSON = "application/json"
FORM = journey.FORM
# Path, body and its type.
Post = tuple[str, str, str]


@dataclass(frozen=True)
class Issuer:
    """An OpenID provider with an application, a back end (its Basic credentials), an administration (its token) and users."""

    authorize: str
    token: str
    userinfo: str
    introspect: str
    metadata: str
    keys: str
    client_id: str
    back_end: str
    administration: str
    lists: tuple[str, ...]
    emails: tuple[str, ...]
    login: Callable[[str, str], Post]
    new_user: Callable[[str, str], Post]

    def sign_in(self, email: str) -> journey.SignIn:
        """Return the hosted sign-in of a user."""
        return journey.SignIn(self.authorize, self.token, self.client_id, CALLBACK, email, world.PASSWORD)

    def journey(self, email: str) -> dict[str, str]:
        """Return the same for a client process."""
        return asdict(self.sign_in(email))

    def login_request(self, email: str) -> bytes:
        """Return a login with the password, without a page."""
        return post(self.login(email, world.PASSWORD))

    def new_user_request(self, email: str) -> bytes:
        """Return the creation of a user with a password by the administration."""
        return post(self.new_user(email, world.PASSWORD), self.administration)

    def client_credentials(self) -> bytes:
        """Return a token request of the back end."""
        return post((self.token, "grant_type=client_credentials", FORM["Content-Type"]), self.back_end)

    def introspection(self, token: str) -> bytes:
        """Return the back end's question about a token."""
        return post((self.introspect, urlencode({"token": token}), FORM["Content-Type"]), self.back_end)

    def refresh_template(self) -> tuple[str, str]:
        """Return head and body of a refresh: see bench/load.py."""
        head = f"POST {self.token} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {FORM['Content-Type']}\r\n"
        return head, f"grant_type=refresh_token&client_id={self.client_id}&refresh_token={{token}}"


def post(request: Post, authorization: str = "") -> bytes:
    """Return the bytes of a POST."""
    path, body, kind = request
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"Authorization: {authorization}"] if authorization else []
    return "\r\n".join([*lines, "", body]).encode("ascii")


def json_post(path: str, body: dict[str, Any]) -> Post:
    """Return a POST of JSON."""
    return path, json.dumps(body), JSON


def call(port: int, method: str, path: str, body: str | None = None, **headers: str) -> Any:
    """Send one request; return the JSON of its response, or None. Raises AssertionError for an error."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status < 300, (method, path, response.status, content[:500])
    return json.loads(content) if content else None
