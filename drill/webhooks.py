"""A receiver of webhooks, and the comparison of what has arrived with what was acknowledged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Keeps the new name in each `end_user.updated`, by user, in the order of the first arrivals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[str] = set()
        self._names: dict[str, list[str]] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.keep(self.headers["webhook-id"], body)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"

    def keep(self, message_id: str, body: bytes) -> None:
        """Keep a message, unless it has arrived before: a deliverer that is killed sends it again with the same id."""
        data = json.loads(body)["data"]
        with self._lock:
            if message_id not in self._ids:
                self._ids.add(message_id)
                self._names.setdefault(str(data["user_id"]), []).append(str(data["name"]))

    def names(self, user: str) -> list[str]:
        """Return the names that the user has got, in their order."""
        with self._lock:
            return list(self._names.get(user, ()))


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive during the block."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()


def missing(acknowledged: Sequence[str], arrived: Sequence[str]) -> int:
    """Return how many acknowledged changes have not arrived."""
    return len(set(acknowledged) - set(arrived))


def out_of_order(acknowledged: Sequence[str], arrived: Sequence[str]) -> int:
    """Return how many acknowledged changes arrived after a later one. Names are unique."""
    places = {name: place for place, name in enumerate(acknowledged)}
    latest, found = -1, 0
    for place in (places[name] for name in arrived if name in places):
        found += place < latest
        latest = max(latest, place)
    return found
