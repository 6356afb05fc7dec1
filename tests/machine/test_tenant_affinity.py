"""deploy/nginx.conf sends the requests of a tenant to one instance, and to another one if that is away."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest

from drill.nginx import Nginx
from tests.world import TestTenant

pytestmark = pytest.mark.needs("nginx")
INSTANCES = 3
UUID4 = "5f0f7f4e-8a0c-4f7a-9a33-3f1b9c7f{:04x}"


class Instance(BaseHTTPRequestHandler):
    """Responds with the port that it listens on, and closes the connection."""

    def do_GET(self) -> None:
        content = str(self.server.server_address[1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def instances() -> Iterator[list[ThreadingHTTPServer]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Instance) for _ in range(INSTANCES)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def proxy(instances: list[ThreadingHTTPServer], nginx: Callable[..., Nginx]) -> Nginx:
    return nginx(*[server.server_address[1] for server in instances])


def reached(proxy: Nginx, path: str = "/", **headers: str) -> int:
    """Return the port of the instance that a request reaches."""
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return int(connection.getresponse().read())


def token_of(tenant_id: str | None) -> str:
    """Return a token in the form of the platform's, with random claims after the first."""
    claims = {"tenant_id": tenant_id, "aud": "identity-api", "jti": str(uuid4())}
    header, payload = (
        base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()
        for part in ({"alg": "ES256", "kid": str(uuid4())}, claims)
    )
    return f"{header}.{payload}.{base64.urlsafe_b64encode(os.urandom(64)).decode()}"


REQUESTS: dict[str, Callable[[Nginx, int], int]] = {
    "token": lambda proxy, n: reached(proxy, Authorization=f"Bearer {token_of(UUID4.format(n * 256))}"),
    "dpop": lambda proxy, n: reached(proxy, Authorization=f"DPoP {token_of(UUID4.format(n * 256))}"),
    "header": lambda proxy, n: reached(proxy, X_Tenant_ID=UUID4.format(n)),
    "slug": lambda proxy, n: reached(proxy, f"/t/tenant-{n}/authorize?state={uuid4()}"),
    "path": lambda proxy, n: reached(proxy, f"/uflow/user/enduser/{UUID4.format(n)}/{uuid4()}"),
    "query": lambda proxy, n: reached(proxy, f"/uflow/user/enduser/list?tenant_id={UUID4.format(n)}"),
    "domain": lambda proxy, n: reached(proxy, Host=f"login.tenant-{n}.example"),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_requests_of_a_tenant_reach_one_instance(kind: str, proxy: Nginx) -> None:
    found: dict[int, set[int]] = defaultdict(set)
    for _ in range(4):
        for number in range(24):
            found[number].add(REQUESTS[kind](proxy, number))
    assert {len(ports) for ports in found.values()} == {1}
    # Different tenants are spread over all of them.
    spread = Counter(port for ports in found.values() for port in ports)
    assert len(spread) == INSTANCES, spread


def test_token_decides_before_path_and_host(proxy: Nginx) -> None:
    headers = {"Authorization": f"Bearer {token_of(UUID4.format(7))}"}
    ports = {reached(proxy, f"/t/tenant-{n}/x", Host=f"login.tenant-{n}.example", **headers) for n in range(20)}
    assert len(ports) == 1


def test_operator_token_goes_by_header_or_address(proxy: Nginx) -> None:
    assert len({reached(proxy, Authorization=f"Bearer {token_of(None)}") for _ in range(8)}) == 1
    named = {
        reached(proxy, Authorization=f"Bearer {token_of(None)}", X_Tenant_ID=UUID4.format(number))
        for number in range(24)
    }
    assert len(named) == INSTANCES


def test_tenants_of_a_lost_instance_reach_another(proxy: Nginx, instances: list[ThreadingHTTPServer]) -> None:
    before = [REQUESTS["slug"](proxy, number) for number in range(24)]
    lost = instances.pop()
    lost.shutdown()
    lost.server_close()
    after = [REQUESTS["slug"](proxy, number) for number in range(24)]
    port = lost.server_address[1]
    assert port in before
    assert port not in after
    assert all(was == now for was, now in zip(before, after, strict=True) if was != port)


def test_tenant_is_the_first_claim_of_every_token(tenant: TestTenant) -> None:
    begins = {payload_of(str(tenant.api.token))[:64], token_of(str(tenant.id)).split(".")[1][:64]}
    assert len(begins) == 1


def payload_of(token: str) -> str:
    return token.split(".")[1]
