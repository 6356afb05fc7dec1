"""deploy/Caddyfile in front of the platform: certificates for sign-in domains and for nothing else, and honest headers."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from drill.nginx import listens
from tests.machine.conftest import ROOT, Platform, environment, free_port, within
from tests.machine.groups import program

pytestmark = pytest.mark.needs("caddy")

PLATFORM, DOMAIN, UNVERIFIED = "id.example.org", "login.acme.example", "login.other.example"
CREATE = f"""
from tenants.addresses import domain_claims
from tenants.models import Tenant
tenant = Tenant.objects.first()
domain_claims.claim(tenant.pk, {DOMAIN!r}, "token")
domain_claims.set_sign_in(tenant.pk, {DOMAIN!r}, True)
domain_claims.claim(tenant.pk, {UNVERIFIED!r}, "token")
"""


class Caddy:
    """The deployed configuration with Caddy's own authority, in front of an instance at a port."""

    def __init__(self, folder: Path, upstream: int, *, port: int | None = None) -> None:
        self.port, self.folder = port or free_port(), folder
        site = (ROOT / "deploy" / "Caddyfile").read_text()
        options = [
            "admin off",
            "local_certs",
            "skip_install_trust",
            f"http_port {free_port()}",
            f"https_port {self.port}",
            f"storage file_system {folder / 'storage'}",
        ]
        assert (site.count("127.0.0.1:8000"), site.count("\ton_demand_tls {"), site.count(PLATFORM)) == (2, 1, 1)
        site = site.replace("127.0.0.1:8000", f"127.0.0.1:{upstream}")
        site = site.replace("\ton_demand_tls {", "\n".join(f"\t{line}" for line in [*options, "on_demand_tls {"]))
        (folder / "Caddyfile").write_text(site)
        with (folder / "caddy.log").open("w") as log:
            self.process = subprocess.Popen(
                [str(program("caddy")), "run", "--config", "Caddyfile"],
                cwd=folder,
                env={"HOME": str(folder), "XDG_DATA_HOME": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        assert within(60, lambda: listens(self.port) and self.root.exists()), (folder / "caddy.log").read_text()

    @property
    def root(self) -> Path:
        return self.folder / "storage" / "pki" / "authorities" / "local" / "root.crt"

    def get(self, host: str, path: str, **headers: str) -> HTTPResponse:
        """GET from a host as a browser does that trusts Caddy's authority."""
        connection = At(host, self.port, trusting(self))
        connection.request("GET", path, headers={name.replace("__", "-"): value for name, value in headers.items()})
        return connection.getresponse()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


def trusting(proxy: Caddy) -> ssl.SSLContext:
    """Trust the authority that Caddy has just made, also if the machine's clock has been set back since (X509_verify(3))."""
    context = ssl.create_default_context(cafile=str(proxy.root))
    context.verify_flags |= ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME
    return context


class At(HTTPSConnection):
    """A connection to a host that is on this machine."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=30, context=context)
        self.tls = context

    def connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.sock = self.tls.wrap_socket(plain, server_hostname=self.host)


@pytest.fixture
def caddy(tmp_path: Path) -> Iterator[Callable[..., Caddy]]:
    """`caddy(upstream)` puts the deployed configuration in front of the instance at this port."""
    started: list[Caddy] = []

    def start(upstream: int, *, port: int | None = None) -> Caddy:
        started.append(Caddy(tmp_path, upstream, port=port))
        return started[-1]

    yield start
    for proxy in started:
        proxy.end()


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that knows one sign-in domain and returns the headers of every other request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            is_check = url.path == "/t/domain-check"
            known = not is_check or parse_qs(url.query).get("domain") == [DOMAIN]
            body = json.dumps(self.headers.items()).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def test_caddy_serves_sign_in_domains_only(
    settled_home: Path, serve: Callable[..., Platform], caddy: Callable[..., Caddy]
) -> None:
    port = free_port()
    variables = {"BASE_URL": f"https://{PLATFORM}:{port}", "TRUSTED_PROXY_HOPS": "1", "ALLOWED_HOSTS": PLATFORM}
    platform = serve(settled_home, **variables)
    command = [sys.executable, str(ROOT / "manage.py"), "shell", "--no-imports", "-c", CREATE]
    subprocess.run(command, env=environment(settled_home, **variables), check=True, stdout=subprocess.DEVNULL)
    proxy = caddy(platform.port, port=port)
    page = proxy.get(DOMAIN, "/signin")
    assert page.status == 200
    metadata = json.load(proxy.get(DOMAIN, "/.well-known/openid-configuration"))
    assert metadata["issuer"] == f"https://{DOMAIN}:{port}"
    assert proxy.get(PLATFORM, "/uflow/live").status == 200
    assert proxy.get(DOMAIN, "/admin/").status == 404
    for host in (UNVERIFIED, "evil.example", f"x.{DOMAIN}"):
        with pytest.raises(ssl.SSLError):
            proxy.get(host, "/signin")


def test_caddy_replaces_headers_of_the_client(echo: int, caddy: Callable[..., Caddy]) -> None:
    forged = {
        "X__Forwarded__For": "203.0.113.9",
        "X_Forwarded_For": "203.0.113.9",
        "X__Forwarded__Proto": "http",
        "X__Forwarded__Host": "evil.example",
        "X_Forwarded_Proto": "http",
        "Forwarded": "for=203.0.113.9;host=evil.example",
    }
    response = caddy(echo).get(DOMAIN, "/signin", **forged)
    seen = [(name.lower(), value) for name, value in json.load(response)]
    named = dict(seen)
    assert len(named) == len(seen)
    assert named["host"].partition(":")[0] == DOMAIN
    assert (named["x-forwarded-for"], named["x-forwarded-proto"]) == ("127.0.0.1", "https")
    assert "forwarded" not in named
    assert not [name for name in named if "_" in name]
    assert not [value for value in named.values() if "evil" in value or "203.0.113.9" in value]


def test_caddy_rejects_large_bodies(echo: int, caddy: Callable[..., Caddy]) -> None:
    proxy = caddy(echo)
    connection = At(DOMAIN, proxy.port, trusting(proxy))
    connection.request("POST", "/signin", b"x" * (2 << 20))
    assert connection.getresponse().status == 413
