"""An application that signs users in through a tenant's OpenID endpoints."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from openid.browser import SESSION, cookie_name
from tests.copies import change_client
from tests.openid.application_sessions import cookie_of
from tests.userflow.sessions.clients import FORM
from tests.world import Api, TestTenant, User, assert_created

CALLBACK = "https://app.example.com/callback"


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a verifier (RFC 7636 section 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def register_application(tenant: TestTenant, **fields: Any) -> dict[str, Any]:
    """Create a client through the API; `fields` that the API does not take yet are stored directly."""
    stored = {name: fields.pop(name) for name in list(fields) if name not in API_FIELDS}
    body = {"name": "Shop", "type": "public", "redirect_uris": [CALLBACK], **fields}
    created = assert_created(tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body))
    if stored:
        change_client(created["client_id"], **stored)
    return created


API_FIELDS = frozenset({"name", "type", "redirect_uris", "scopes"})


@dataclass
class Application:
    """An application and the browser of one user at it."""

    tenant: TestTenant
    client: dict[str, Any]
    browser: Api = field(default_factory=Api)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def issuer(self) -> str:
        return f"/t/{self.tenant.slug}"

    def parameters(self, **changed: Any) -> dict[str, Any]:
        """Return the parameters of an authorization request; None removes one."""
        sent = {
            "client_id": self.client["client_id"],
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "scope": "openid",
            "state": "a state",
            "nonce": "a nonce",
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            **changed,
        }
        return {name: value for name, value in sent.items() if value is not None}

    def authorize(self, **changed: Any) -> Any:
        """Send the browser to the authorization endpoint."""
        query = urlencode(self.parameters(**changed), doseq=True)
        return self.browser.get(f"{self.issuer}/authorize?{query}")

    def sign_in(self, user: User) -> None:
        """Give the browser a session of the user."""
        cookie = cookie_of(self.tenant, user.email, user.password)
        self.browser.client.cookies[cookie_name(SESSION, self.tenant.id)] = cookie

    def code(self, **changed: Any) -> str:
        """Return a code for the user of the browser."""
        response = self.authorize(**changed)
        assert response.status_code == 303, response.content
        return query_of(response.headers["Location"])["code"]

    def exchange(self, code: str, **changed: Any) -> Any:
        """Send a code to the token endpoint as the application does; None removes a parameter."""
        sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
        return self.token(**{**sent, "code_verifier": self.verifier, **changed})

    def token(self, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
        """Call the token endpoint: by client id, or with `headers` that authenticate the client."""
        own = {} if headers else {"client_id": self.client["client_id"]}
        sent = {name: value for name, value in {**own, **parameters}.items() if value is not None}
        raw = urlencode(sent, doseq=True).encode()
        return self.new_caller().post(f"{self.issuer}/token", raw=raw, content_type=FORM, headers=headers)

    def new_caller(self) -> Api:
        """Return the application's server, at an address of its own."""
        return Api()

    def tokens(self, **changed: Any) -> dict[str, Any]:
        """Return the response for a new code."""
        response = self.exchange(self.code(**changed))
        assert response.status_code == 200, response.content
        return dict(response.json())


def page_of(response: Any) -> str:
    """Return the address of the hosted page that a request begins with: where it leads, or where the shown form is sent."""
    if "Location" in response.headers:
        return str(response.headers["Location"])
    action = re.search(r'<form method="post" action="([^"]+)"', response.content.decode())
    assert action, response.content
    return unescape(action[1])


def query_of(address: str) -> dict[str, str]:
    """Return the query of an address, each parameter once."""
    parts = parse_qs(urlsplit(address).query, strict_parsing=True)
    assert all(len(values) == 1 for values in parts.values()), address
    return {name: values[0] for name, values in parts.items()}
