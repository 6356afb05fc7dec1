"""Calls to addresses that tenants configure cannot reach internal networks (CWE-918)."""

import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from identity_platform.outbound import (
    MOST_ADDRESSES,
    GuardedSession,
    NotResolved,
    Reach,
    TargetRejected,
    TooSlow,
    check_url,
    connect,
    post,
)

LOOPBACK = Reach.of(["127.0.0.0/8"], plain_http=True)
INTERNAL = [
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://0/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://localhost/",
    "https://localhost./",
    "https://169.254.169.254/latest/meta-data/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "http://93.184.215.14/",
    "https://user:pass@93.184.215.14/",
    "ftp://93.184.215.14/",
]

MOVED = {"/moved": "/secret", "/moved-odd": "http://["}
ENDLESS = {
    "/drip": b"HTTP/1.1 200 OK\r\nX-Drip: ",
    "/long": b"HTTP/1.1 200 OK\r\n\r\n",
    "/moved-long": b"HTTP/1.1 302 Found\r\nLocation: /secret\r\n\r\n",
}


class Site(BaseHTTPRequestHandler):
    """/moved redirects, /drip never ends its header, /long and /moved-long never their bodies, and /moved-odd redirects
    to a malformed URL."""

    protocol_version = "HTTP/1.1"
    asked: list[str] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path in ENDLESS:
            self.close_connection = True
            self.wfile.write(ENDLESS[self.path])
            while True:
                try:
                    self.wfile.write(b"x" if self.path == "/drip" else b"x" * 1000)
                except OSError:
                    return
                time.sleep(0.05)
        self.send_response(302 if self.path in MOVED else 204)
        if self.path in MOVED:
            self.send_header("Location", MOVED[self.path])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    Site.asked.clear()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "address",
    [
        *("192.0.0.9", "192.0.0.192", "192.88.99.1", "168.63.129.16", "100.100.100.200", "198.18.0.1", "240.0.0.1"),
        *("::ffff:0:127.0.0.1", "::ffff:0:93.184.215.14", "::ffff:168.63.129.16", "64:ff9b:1::5db8:d70e"),
        *("100::1", "fec0::1", "4000::1", "5f00::1", "ff0e::1", "2001:1::1", "2001:20::1", "2001:db8::1", "3fff::1"),
    ],
)
def test_special_purpose_addresses_are_rejected(address: str) -> None:
    found = ipaddress.ip_address(address)
    with pytest.raises(TargetRejected):
        Reach().check(found, plain=False)
    Reach.of([str(getattr(found, "ipv4_mapped", None) or found)]).check(found, plain=True)


@pytest.mark.parametrize("address", ["93.184.215.14", "::ffff:93.184.215.14", "192.0.1.1", "2606:2800::1", "2a00::1"])
def test_public_addresses_are_reached(address: str) -> None:
    Reach().check(ipaddress.ip_address(address), plain=False)


@pytest.mark.parametrize("url", INTERNAL)
def test_internal_urls_are_rejected_when_set_and_when_called(url: str) -> None:
    with pytest.raises(TargetRejected):
        check_url(url, Reach())
    with GuardedSession(Reach()) as session, pytest.raises(TargetRejected):
        post(session, url, body=b"{}", headers={}, seconds=2)


def test_host_name_is_judged_by_its_addresses() -> None:
    # The name of this machine resolves to a private or loopback address.
    with pytest.raises(TargetRejected):
        check_url(f"https://{socket.gethostname()}/", Reach())
    with pytest.raises(NotResolved):
        check_url("https://no-such-name.invalid/", Reach())


def test_allowed_networks_are_reached_and_may_skip_tls(site: str) -> None:
    check_url(site, LOOPBACK)
    with GuardedSession(LOOPBACK) as session:
        assert [post(session, site, body=b"{}", headers={}, seconds=5).status for _ in range(2)] == [204, 204]
    with pytest.raises(TargetRejected):
        check_url(site, Reach.of(["127.0.0.0/8"]))
    with pytest.raises(TargetRejected):
        check_url("http://93.184.215.14/", LOOPBACK)


@pytest.mark.parametrize("path", ["/moved", "/moved-odd", "/moved-long"])
def test_redirect_is_neither_followed_nor_read(site: str, path: str) -> None:
    with GuardedSession(LOOPBACK) as session:
        response = post(session, f"{site}{path}", body=b"{}", headers={}, seconds=20)
    assert (response.status, len(response.beginning)) == (302, 4096 if path == "/moved-long" else 0)
    assert Site.asked == [path]


@pytest.mark.quiet_machine
def test_slow_response_times_out_and_long_one_is_cut(site: str) -> None:
    began = time.monotonic()
    with GuardedSession(LOOPBACK) as session:
        with pytest.raises(TooSlow):
            post(session, f"{site}/drip", body=b"{}", headers={}, seconds=1)
        assert len(post(session, f"{site}/long", body=b"{}", headers={}, seconds=5).beginning) == 4096
    # /drip never ends.
    assert time.monotonic() - began < 20


def test_proxy_variables_are_ignored(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with GuardedSession(LOOPBACK) as session:
        assert post(session, site, body=b"{}", headers={}, seconds=5).status == 204


def test_untrusted_certificate_is_rejected(site: str) -> None:
    with GuardedSession(LOOPBACK) as session, pytest.raises(requests.exceptions.SSLError):
        post(session, site.replace("http:", "https:"), body=b"{}", headers={}, seconds=5)


def resolve_to(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Resolve `many.example` to that many addresses, from 127.0.9.1 on."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.9.{n}", 0)) for n in range(1, number + 1)]
    original = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: found if host == "many.example" else original(host, *rest, **more),
    )


@pytest.mark.parametrize(("last", "reached"), [(MOST_ADDRESSES, True), (MOST_ADDRESSES + 1, False)])
def test_only_the_first_addresses_of_a_name_are_tried(
    monkeypatch: pytest.MonkeyPatch, last: int, reached: bool
) -> None:
    resolve_to(monkeypatch, last)
    with socket.create_server((f"127.0.9.{last}", 0)) as listener:
        port = listener.getsockname()[1]
        if reached:
            connect("many.example", port, LOOPBACK, seconds=5).close()
            return
        with pytest.raises(OSError, match="refused"):
            connect("many.example", port, LOOPBACK, seconds=5)


@pytest.mark.quiet_machine
def test_silent_addresses_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, 8)
    with socket.create_server(("0.0.0.0", 0), backlog=0) as full, GuardedSession(LOOPBACK) as session:
        port = full.getsockname()[1]
        # The kernel accepts no connection while its queue is full.
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(1)]
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            connect("many.example", port, LOOPBACK, seconds=0.8)
        with pytest.raises(requests.RequestException):
            post(session, f"http://many.example:{port}/", body=b"", headers={}, seconds=0.8)
        # Twice 0.8 s; with a limit for each of the eight addresses it would be nearly 13 s.
        assert time.monotonic() - began < 6
        for connection in waiting:
            connection.close()
