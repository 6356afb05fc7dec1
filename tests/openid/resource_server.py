"""An API of a customer: Authlib checks its tokens (RFC 9068), and it names its authorization server (RFC 9728)."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests
from authlib.oauth2 import OAuth2Error, ResourceProtector
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
from joserfc.jwk import KeySet

PATH = "/mcp"
METADATA = f"/.well-known/oauth-protected-resource{PATH}"


class _Validator(JWTBearerTokenValidator):  # type: ignore[misc]  # Authlib is not typed
    def get_jwks(self) -> Any:
        metadata = requests.get(f"{self.issuer}/.well-known/openid-configuration", timeout=60).json()
        return KeySet.import_key_set(requests.get(metadata["jwks_uri"], timeout=60).json())


class ResourceServer(ThreadingHTTPServer):
    """The API at a port of its own; `accepted` are the claims of the tokens that it has accepted."""

    daemon_threads = True

    def __init__(self, issuer: str, scope: str) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.resource = f"http://127.0.0.1:{self.server_port}{PATH}"
        self.metadata = {"resource": self.resource, "authorization_servers": [issuer], "scopes_supported": [scope]}
        self.scope = scope
        self.protector = ResourceProtector()
        self.protector.register_token_validator(_Validator(issuer, self.resource))
        self.accepted: list[dict[str, Any]] = []


class _Api(BaseHTTPRequestHandler):
    server: ResourceServer

    def do_GET(self) -> None:
        if self.path == METADATA:
            self._respond(200, self.server.metadata)
        elif self.path == PATH:
            self._call()
        else:
            self._respond(404, {})

    do_POST = do_GET

    def _call(self) -> None:
        try:
            token = self.server.protector.validate_request([self.server.scope], self)
        except OAuth2Error as problem:
            address = self.server.resource.removesuffix(PATH) + METADATA
            challenge = f'Bearer error="{problem.error}", resource_metadata="{address}"'
            self._respond(problem.status_code, {"error": problem.error}, {"WWW-Authenticate": challenge})
            return
        self.server.accepted.append(dict(token))
        self._respond(200, {"sub": token["sub"]})

    def _respond(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def running_resource_server(issuer: str, scope: str = "openid") -> Iterator[ResourceServer]:
    """Run the API until the end of the block."""
    with ResourceServer(issuer, scope) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
