"""nginx as deploy/kubernetes.yaml configures it, between an ingress controller and the instances."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from drill.nginx import PLACES, listens
from tests.machine.conftest import ROOT, free_port, within

pytestmark = pytest.mark.needs("nginx")


class Instance(BaseHTTPRequestHandler):
    """Responds with its port and the headers that it received."""

    def do_GET(self) -> None:
        content = json.dumps({"port": self.server.server_address[1], **dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def instances() -> Iterator[list[int]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Instance) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [server.server_address[1] for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def port(instances: list[int], tmp_path: Path) -> Iterator[int]:
    """nginx with the shipped files; names of the cluster are addresses here, and this machine is the ingress controller."""
    documents = [each for each in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()) if each]
    (files,) = [
        each["data"]
        for each in documents
        if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", "identity-nginx")
    ]
    chosen = free_port()
    here = {f"identity-platform-{number}:8000": f"127.0.0.1:{port}" for number, port in enumerate(instances)}
    here |= {"/etc/nginx/identity/": f"{tmp_path}/", "listen 8080;": f"listen 127.0.0.1:{chosen};"}
    here |= {"/tmp/": f"{tmp_path}/", "/dev/stdout": f"{tmp_path}/access.log", "/dev/stderr": f"{tmp_path}/error.log"}
    here |= {"set_real_ip_from 10.0.0.0/8;": "set_real_ip_from 127.0.0.0/8;"}
    for name, text in files.items():
        # In one pass: a replacement is not replaced again.
        pattern = "|".join(re.escape(documented) for documented in here)
        (tmp_path / name).write_text(re.sub(pattern, lambda found: here[found[0]], text))
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    program = shutil.which("nginx", path=PLACES)
    assert program
    command = [program, "-c", f"{tmp_path}/nginx.conf", "-g", "daemon off;", "-e", f"{tmp_path}/start.log"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    assert within(30, lambda: listens(chosen))
    yield chosen
    process.terminate()
    process.wait(20)


def received(port: int, path: str, **headers: str) -> dict[str, str]:
    """Return the headers that an instance receives, and its port."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    found: dict[str, str] = json.loads(connection.getresponse().read())
    return found


def test_instances_see_the_client_that_the_ingress_names(port: int) -> None:
    found = received(
        port, "/", Host="id.example.org", X_Forwarded_For="198.51.100.9, 203.0.113.7", X_Forwarded_Proto="https"
    )
    # What a client says itself, before the controller adds its address, does not count.
    assert found["X-Forwarded-For"] == "203.0.113.7"
    assert found["X-Forwarded-Proto"] == "https"
    assert found["Host"] == "id.example.org"


def test_requests_of_a_tenant_reach_one_instance(port: int, instances: list[int]) -> None:
    reached = [
        {
            received(
                port, f"/t/tenant-{number}/authorize", Host="id.example.org", X_Forwarded_For=f"203.0.113.{client}"
            )["port"]
            for client in range(3)
        }
        for number in range(16)
    ]
    assert {len(ports) for ports in reached} == {1}
    assert {port for ports in reached for port in ports} == set(instances)


def test_requests_without_a_tenant_go_by_the_address_of_the_client(port: int, instances: list[int]) -> None:
    reached = {received(port, "/", Host="id.example.org", X_Forwarded_For=f"203.0.113.{n}")["port"] for n in range(32)}
    assert reached == set(instances)
