"""deploy/nginx.conf in front of the platform: slow clients delay no others, and nginx's own errors have the platform's form."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import create_connection, socket

import pytest

from drill.nginx import Nginx
from identity_platform.api.errors import BodyTooLarge
from tests.machine.conftest import Platform, within

pytestmark = pytest.mark.needs("nginx")

SLOW_CLIENTS = 200


@pytest.fixture
def shut() -> Iterator[int]:
    """A port that rejects all connections: it is bound, so that no other program gets it, and not listened on."""
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json"} | headers)
    response = connection.getresponse()
    return response, response.read()


def ordinary_requests(port: int) -> float:
    """Give the median time of requests as other people make them meanwhile, a look and a body."""
    times = []
    for _ in range(25):
        for method, path, body, status in (
            ("GET", "/uflow/live", None, 200),
            ("POST", "/uflow/admin/auth/login", b"{}", 400),
        ):
            began = time.monotonic()
            response, _ = ask(port, method, path, body)
            times.append(time.monotonic() - began)
            assert response.status == status
    return statistics.median(times)


class SlowClients:
    """Clients that have announced a body and send one byte of it every now and then."""

    def __init__(self, port: int, number: int) -> None:
        self.connections: list[socket] = []
        self.stopped = threading.Event()
        for _ in range(number):
            connection = create_connection(("127.0.0.1", port), timeout=60)
            connection.sendall(
                b"POST /uflow/admin/auth/login HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
            self.connections.append(connection)
        self.thread = threading.Thread(target=self._drip)

    def __enter__(self) -> SlowClients:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        for connection in self.connections:
            connection.close()

    def _drip(self) -> None:
        while not self.stopped.wait(0.5):
            for connection in self.connections:
                connection.sendall(b" ")

    def still_waiting(self) -> int:
        waiting = 0
        for connection in self.connections:
            connection.setblocking(False)
            try:
                connection.recv(1)
            except BlockingIOError:
                waiting += 1
            connection.setblocking(True)
        return waiting


@pytest.mark.quiet_machine
def test_two_hundred_slow_clients_delay_no_others(
    settled_home: Path, serve: Callable[..., Platform], nginx: Callable[..., Nginx]
) -> None:
    more = {"TRUSTED_PROXY_HOPS": "1", "WEB_WORKERS": "2", "LIMIT_SIGNIN_PER_MINUTE": "1000"}
    port = nginx(serve(settled_home, **more).port).port
    alone = ordinary_requests(port)
    with SlowClients(port, SLOW_CLIENTS) as slow:
        for _ in range(5):  # again where the machine was busy
            beside = ordinary_requests(port)
            if beside < 3 * alone + 0.1:
                break
        assert slow.still_waiting() == SLOW_CLIENTS
    # Without the buffering each of these requests waits for a slow one to time out. The margin is for a busy machine.
    assert beside < 3 * alone + 0.1


def test_body_over_one_mebibyte_gets_envelope_of_its_group(nginx: Callable[..., Nginx], shut: int) -> None:
    port = nginx(shut).port
    for path, envelope in (
        ("/exsvc/api/v1/services", {"error": {"code": "BODY_TOO_LARGE", "message": BodyTooLarge.message}}),
        (
            "/uflow/ready",
            {"error": "Request Entity Too Large", "code": BodyTooLarge.code, "message": BodyTooLarge.message},
        ),
    ):
        response, body = ask(port, "POST", path, b"x" * (1024 * 1024 + 1))
        assert (response.status, response.headers["Content-Type"]) == (413, "application/json")
        assert json.loads(body) == envelope


@pytest.mark.parametrize("path", ["/exsvc/api/v1/services", "/authmgr/token", "/uflow/ready"])
def test_a_platform_that_is_away_is_a_503_in_json(nginx: Callable[..., Nginx], shut: int, path: str) -> None:
    response, body = ask(nginx(shut).port, "GET", path)
    assert (response.status, response.headers["Content-Type"]) == (503, "application/json")
    assert response.headers["Retry-After"] == "2"
    assert response.headers["X-Request-ID"]
    assert "error" in json.loads(body)


def test_what_a_client_claims_about_its_address_does_not_pass(nginx: Callable[..., Nginx]) -> None:
    seen: list[dict[str, str]] = []

    class Upstream(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        threading.Thread(target=upstream.serve_forever, args=(0.02,), daemon=True).start()
        forged = {"X-Forwarded-For": "203.0.113.9", "X_Forwarded_For": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
        port = nginx(upstream.server_address[1]).port
        ask(port, "GET", "/", **forged, Host="platform.example.org")
        ask(port, "GET", "/", **{"X-Request-ID": "known-1"})
        ask(port, "GET", "/", **{"X-Request-ID": "not well formed"})
        upstream.shutdown()
    assert seen[0]["x-forwarded-for"] == "127.0.0.1"
    assert seen[0]["host"] == "platform.example.org"
    assert "203.0.113.9" not in seen[0].values()
    made_up, passed, replaced = [headers["x-request-id"] for headers in seen]
    assert (len(made_up), passed, len(replaced)) == (32, "known-1", 32)


def test_nginx_logs_the_request_id_and_no_query(
    settled_home: Path, serve: Callable[..., Platform], nginx: Callable[..., Nginx]
) -> None:
    platform = serve(settled_home, TRUSTED_PROXY_HOPS="1")
    proxy = nginx(platform.port)
    response, _ = ask(proxy.port, "GET", "/uflow/live?email=hidden@example.com")
    request_id = response.headers["X-Request-ID"]
    assert within(10, lambda: request_id in proxy.log.read_text())
    (line,) = [json.loads(line) for line in proxy.log.read_text().splitlines()]
    assert (line["request_id"], line["path"], line["status"]) == (request_id, "/uflow/live", "200")
    assert within(10, lambda: f'"request_id":"{request_id}"' in platform.log.read_text())
