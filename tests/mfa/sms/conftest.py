"""A provider of messages on this machine, and a Valkey that a test may kill."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.identity_platform.api.conftest import absent_valkey, valkey

__all__ = ["absent_valkey", "provider", "valkey"]


class Provider:
    """Speaks the protocols of Twilio and of the generic gateway, and answers as the test says.

    `answers` are used one after the other: a status, "hang" (accepts, then no answer in time), or "cut" (accepts, then closes
    the connection). Later requests get 201. `delivered` is what a real provider would have sent: one message for each
    accepted request, one for each idempotency key.
    """

    def __init__(self) -> None:
        self.answers: list[int | str] = []
        self.requests: list[dict[str, Any]] = []
        self.delivered: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                provider.take(self)

            def log_message(self, *_: Any) -> None:
                """Nothing on the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, request: BaseHTTPRequestHandler) -> None:
        raw = request.rfile.read(int(request.headers["Content-Length"]))
        is_json = request.headers["Content-Type"].startswith("application/json")
        body = json.loads(raw) if is_json else {name: values[0] for name, values in parse_qs(raw.decode()).items()}
        key = request.headers.get("Idempotency-Key") or f"request {len(self.requests)}"
        self.requests.append({"path": request.path, "body": body, "headers": dict(request.headers), "key": key})
        response = self.answers.pop(0) if self.answers else 201
        if response in ("hang", "cut") or int(response) < 300:
            self.delivered[key] = body
        if response == "hang":
            time.sleep(15)
        if response in ("hang", "cut"):
            request.close_connection = True
            return
        request.send_response(int(response))
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"{}")


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A running provider."""
    made = Provider()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
