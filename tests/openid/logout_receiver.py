"""An application that receives logout tokens over HTTP and verifies them with a public library."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import KeySet

from tests.world import Api, TestTenant

EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass
class LogoutReceiver:
    """Keeps the logout tokens; `respond` returns the status and headers of each response."""

    respond: Callable[[], tuple[int, dict[str, str]]] = field(default=lambda: (200, {}))
    received: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    slowness: float = 0.0

    def __post_init__(self) -> None:
        receiver = self
        # Unique to this receiver: tokens of another test may go to a port that was closed and reused.
        self.path = f"/logout/{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self.at_once = self.most_at_once = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if self.path == receiver.path:
                    receiver.take(self)
                else:
                    self.close_connection = True
                    self.send_error(404)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}{self.path}"

    def take(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
        sent = parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode(), strict_parsing=True)
        time.sleep(self.slowness)
        status, headers = self.respond()
        with self._lock:
            self.at_once -= 1
            self.received += sent["logout_token"]
            if status < 300:
                self.taken += sent["logout_token"]
        request.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            request.send_header(name, value)
        request.end_headers()

    def wait_for(self, number: int, *, seconds: float = 60.0) -> list[str]:
        """Wait until this number of tokens was accepted."""
        ends = time.monotonic() + seconds
        while len(self.taken) < number and time.monotonic() < ends:
            time.sleep(0.02)
        return list(self.taken)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def verified(token: str, tenant: TestTenant, client_id: object, algorithm: str = "ES256") -> dict[str, Any]:
    """Return the claims of a logout token, verified as an application does (Back-Channel Logout section 2.6)."""
    published = Api().get(f"/t/{tenant.slug}/.well-known/openid-configuration").json()
    keys = KeySet.import_key_set(Api().get(f"/t/{tenant.slug}/jwks").json())
    decoded = jwt.decode(token, keys, algorithms=[algorithm])
    jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": published["issuer"]},
        aud={"essential": True, "value": str(client_id)},
        iat={"essential": True},
        exp={"essential": True},
        jti={"essential": True},
        events={"essential": True, "value": {EVENT: {}}},
    ).validate(decoded.claims)
    assert decoded.header["typ"] == "logout+jwt"
    assert "nonce" not in decoded.claims
    return dict(decoded.claims)
