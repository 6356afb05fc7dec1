"""A local OpenID provider over HTTP, with switches for misbehavior; also in the shape of GitHub."""

import base64
import hashlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit
from uuid import uuid4

import jwt

from tests.userflow.clients.keys import PrivateKey, key_set, new_key, public_jwk

DISCOVERY = "/.well-known/openid-configuration"
SUBJECT = "248289761001"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass
class Response:
    """A response that replaces the provider's own one."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    # The provider sends nothing until the test ends.
    hangs: bool = False


@dataclass
class Request:
    """A request that the provider has received."""

    path: str
    form: dict[str, str]
    headers: dict[str, str]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about callers that hang up, as they do when a response is too long or a certificate unknown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Provider:
    """An OpenID provider that checks codes, PKCE verifiers, redirect URIs and secrets, as a real one does.

    `metadata`, `claims` and `token_response` replace values of the documents (in claims `...` removes one, else None);
    `responses` replace whole responses, by path; `documents` need the access token; `sign` replaces how ID tokens are signed.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.client_id, self.client_secret = f"client-{secrets.token_hex(4)}", f"s+/%:{secrets.token_hex(16)}"
        self.key: PrivateKey = new_key()
        self.kid = "first"
        self.jwks: dict[str, Any] = key_set(public_jwk(self.key, kid=self.kid, use="sig"))
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.token_response: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.responses: dict[str, Response] = {}
        self.documents: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        # Seconds by which the provider's clock is ahead.
        self.clock = 0
        self.requests: list[Request] = []
        self.scheme = "http"
        self._codes: dict[str, dict[str, str]] = {}
        self._ended = threading.Event()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.handle(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                provider.handle(self, dict(parse_qsl(body.decode())))

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self.server = _Server((host, 0), Handler)
        self.host = host
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def issuer(self) -> str:
        return f"{self.scheme}://{self.host}:{self.server.server_port}"

    def close(self) -> None:
        self._ended.set()
        self.server.shutdown()
        self.server.server_close()

    def paths(self) -> list[str]:
        """Return the paths of the requests so far."""
        return [request.path for request in self.requests]

    def handle(self, handler: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        path = urlsplit(handler.path).path
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(Request(path, form, headers))
        response = self.responses.get(path) or self._response(path, form, headers)
        if response.hangs:
            self._ended.wait(30)
            return
        handler.send_response(response.status)
        for name, value in {"Content-Length": str(len(response.body)), **response.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(response.body)

    def _response(self, path: str, form: dict[str, str], headers: dict[str, str]) -> Response:
        if path in self.documents:
            bearer = headers.get("authorization") == "Bearer provider-access-token"
            return _json(self.documents[path]) if bearer else _json({"message": "Requires authentication"}, 401)
        match path:
            case "/.well-known/openid-configuration":
                return _json(self._discovery())
            case "/jwks":
                return _json(self.jwks)
            case "/token" | "/login/oauth/access_token":
                return self._tokens(form, headers)
            case "/userinfo":
                return _json({"sub": SUBJECT, **self.userinfo})
        return Response(404)

    def _discovery(self) -> dict[str, Any]:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "private_key_jwt"],
            "response_types_supported": ["code"],
            **self.metadata,
        }
        return {name: value for name, value in document.items() if value is not None}

    def authorize(self, url: str) -> list[tuple[str, str]]:
        """Sign the user in, as the browser's visit to an authorization URL does; return the parameters of the callback."""
        query = dict(parse_qsl(urlsplit(url).query))
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        issuer = [("iss", self.issuer)] if self.metadata.get("authorization_response_iss_parameter_supported") else []
        return [("code", code), ("state", query["state"]), *issuer]

    def _tokens(self, form: dict[str, str], headers: dict[str, str]) -> Response:
        query = self._codes.pop(form.get("code", ""), None)
        if query is None or form.get("redirect_uri") != query["redirect_uri"]:
            return _json({"error": "invalid_grant"}, 400)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != query["code_challenge"]:
            return _json({"error": "invalid_grant"}, 400)
        if not self._is_authenticated(form, headers):
            return _json({"error": "invalid_client"}, 401)
        id_token = self.sign(self.id_token_claims(query.get("nonce")))
        tokens = {"access_token": "provider-access-token", "token_type": "Bearer", "id_token": id_token}
        response = {**tokens, **self.token_response}
        return _json({name: value for name, value in response.items() if value is not None})

    def _is_authenticated(self, form: dict[str, str], headers: dict[str, str]) -> bool:
        if "client_assertion" in form:
            return form["client_id"] == self.client_id  # tests verify it themselves
        if "client_secret" in form:
            return (form["client_id"], form["client_secret"]) == (self.client_id, self.client_secret)
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        identifier, _, secret = base64.b64decode(encoded).decode().partition(":")
        return scheme == "Basic" and (unquote_plus(identifier), unquote_plus(secret)) == (
            self.client_id,
            self.client_secret,
        )

    def id_token_claims(self, nonce: str | None) -> dict[str, Any]:
        """Return the claims of an ID token for the user."""
        moment = int(time.time()) + self.clock
        claims = {
            "iss": self.issuer,
            "sub": SUBJECT,
            "aud": self.client_id,
            "iat": moment,
            "exp": moment + 300,
            "nonce": nonce,
            "email": "jane@customer.example",
            "email_verified": True,
            "name": "Jane Doe",
            **self.claims,
        }
        if nonce is None and "nonce" not in self.claims:
            del claims["nonce"]
        return {name: value for name, value in claims.items() if value is not ...}

    def logout_token(self, **changes: Any) -> str:
        """Return a logout token for the user; a claim that is None is left out."""
        moment = int(time.time()) + self.clock
        claims = {
            "iss": self.issuer,
            "sub": SUBJECT,
            "aud": self.client_id,
            "iat": moment,
            "exp": moment + 120,
            "jti": uuid4().hex,
            "events": {LOGOUT_EVENT: {}},
            **changes,
        }
        return self.signed({name: value for name, value in claims.items() if value is not None}, typ="logout+jwt")

    def signed(self, claims: dict[str, Any], *, alg: str = "ES256", typ: str = "JWT") -> str:
        """Sign claims with the present key."""
        headers = {"kid": self.kid, "typ": typ}
        return jwt.PyJWS().encode(json.dumps(claims).encode(), self.key, algorithm=alg, headers=headers)

    def rotate(self, kid: str) -> None:
        """Replace the key, and publish only the new one."""
        self.key, self.kid = new_key(), kid
        self.jwks = key_set(public_jwk(self.key, kid=kid, use="sig"))


def _json(document: object, status: int = 200) -> Response:
    return Response(status, json.dumps(document).encode(), {"Content-Type": "application/json"})
