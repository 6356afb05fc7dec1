"""A local server that takes POST requests, as applications and consumers do."""

import secrets
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(kw_only=True)
class Receiver:
    """Takes requests below its path; a subclass chooses the response in `decide` and keeps what it wants in `keep`."""

    slowness: float = 0.0
    # Another address of the loopback network is another host.
    host: str = "127.0.0.1"
    # https once the server has a certificate.
    scheme: str = "http"
    response_body: bytes = b""

    def __post_init__(self) -> None:
        receiver = self
        # Unique to this receiver: what another test has left may go to a port that was closed and reused.
        self.path = f"/{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self.at_once = self.most_at_once = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if self.path.startswith(receiver.path):
                    receiver.take(self)
                else:
                    self.close_connection = True
                    self.send_error(404)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer((self.host, 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.server.server_port}{self.path}"

    def decide(self, body: bytes) -> tuple[int, dict[str, str]]:
        """Return the status and headers of a response."""
        raise NotImplementedError

    def keep(self, body: bytes, headers: dict[str, str], status: int) -> None:
        """Keep a request and the status of its response; `headers` have lower-case names."""
        raise NotImplementedError

    def accepted(self) -> int:
        """Return how many different deliveries got a 2xx response."""
        raise NotImplementedError

    def take(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        body = request.rfile.read(int(request.headers["Content-Length"]))
        if self.slowness:
            time.sleep(self.slowness)
        status, headers = self.decide(body)
        with self._lock:
            self.at_once -= 1
            self.keep(body, {name.lower(): value for name, value in request.headers.items()}, status)
        request.send_response(status)
        for name, value in {"Content-Length": str(len(self.response_body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(self.response_body)

    def await_accepted(self, number: int, seconds: float) -> None:
        """Wait until this number of different deliveries was accepted."""
        ends = time.monotonic() + seconds
        while self.accepted() < number and time.monotonic() < ends:
            time.sleep(0.02)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
