"""A consumer that receives webhooks over HTTP and verifies them with the public library."""

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError


@dataclass
class Seen:
    """A received delivery."""

    id: str
    body: bytes
    headers: dict[str, str]
    answered: int

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass
class Consumer:
    """Respond as told: `answer` takes the delivery's event and returns a status and headers."""

    respond: Callable[[dict[str, Any]], tuple[int, dict[str, str]]] = field(default=lambda event: (204, {}))
    seen: list[Seen] = field(default_factory=list)
    slowness: float = 0.0

    def __post_init__(self) -> None:
        consumer = self
        # Unique to this consumer: messages left by another test may go to a port that was closed and reused.
        self.path = f"/hooks/{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self.at_once = self.most_at_once = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if self.path.startswith(consumer.path):
                    consumer.take(self)
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
        body = request.rfile.read(int(request.headers["Content-Length"]))
        if self.slowness:
            time.sleep(self.slowness)
        status, headers = self.respond(json.loads(body))
        sent = {name.lower(): value for name, value in request.headers.items()}
        with self._lock:
            self.at_once -= 1
            self.seen.append(Seen(sent["webhook-id"], body, sent, status))
        request.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            request.send_header(name, value)
        request.end_headers()

    def taken(self) -> list[Seen]:
        """The deliveries that got a 2xx response."""
        return [each for each in self.seen if 200 <= each.answered < 300]

    def names(self) -> list[str]:
        """The names in the accepted events, each once, in the order of their first delivery."""
        return list(dict.fromkeys(each.event["data"].get("name", "") for each in self.taken()))

    def wait_for(self, number: int, *, seconds: float = 60.0) -> list[Seen]:
        """Wait until this number of different messages was accepted."""
        ends = time.monotonic() + seconds
        while len({each.id for each in self.taken()}) < number and time.monotonic() < ends:
            time.sleep(0.02)
        return self.taken()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def verifies(seen: Seen, secret: str) -> bool:
    """Return whether the public library accepts the signature."""
    try:
        Webhook(secret).verify(seen.body, seen.headers)
    except WebhookVerificationError:
        return False
    return True
