"""The shipped prometheus.yml and nginx-metrics.conf: a real Prometheus scrapes every process, settings as in production."""

import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from drill.nginx import OUTER, PLACES, Nginx
from tests.machine.conftest import ROOT, Platform, environment, within
from tests.machine.prometheus import TOKEN, Prometheus

pytestmark = [pytest.mark.needs("prometheus"), pytest.mark.needs("nginx")]
HOST = "id.example.org"
PRODUCTION = {
    "METRICS_TOKEN": TOKEN,
    "ALLOWED_HOSTS": HOST,
    "BASE_URL": f"https://{HOST}",
    "SECURE_SSL_REDIRECT": "1",
    "TRUSTED_PROXY_HOPS": "1",
    "WEB_WORKERS": "1",
}


def free_pair() -> int:
    """Return a free port of four digits whose port in nginx-metrics.conf, 10,000 above it, is free too."""
    while True:
        port = secrets.choice(range(5_000, 10_000))
        addresses = [("127.0.0.1", port), ("127.0.0.1", port + 10_000)]
        with suppress(OSError), socket.create_server(addresses[0]), socket.create_server(addresses[1]):
            return port


@dataclass
class Processes:
    """An instance, a worker and a deliverer, each with a metrics folder of its own as under systemd."""

    server: Platform
    # By the port that nginx-metrics.conf documents.
    ports: dict[int, int]


@pytest.fixture
def processes(settled_home: Path, tmp_path: Path, serve: Callable[..., Platform]) -> Iterator[Processes]:
    ports = {18001: free_pair(), 19464: free_pair(), 19465: free_pair()}

    def variables(name: str) -> dict[str, str]:
        return PRODUCTION | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / name)}

    server = serve(settled_home, port=ports[18001], **variables("server"))
    with ExitStack() as ending:
        for command, port in (("tenant_worker", ports[19464]), ("deliver_events", ports[19465])):
            process = subprocess.Popen(
                [sys.executable, "-P", ROOT / "manage.py", command, "--metrics", f"127.0.0.1:{port}"],
                env=environment(settled_home, **variables(command)),
                stdin=subprocess.DEVNULL,
            )
            ending.callback(process.wait, 60)
            ending.callback(process.terminate)
        yield Processes(server, ports)


@pytest.fixture
def proxied(processes: Processes, tmp_path: Path) -> Iterator[None]:
    """nginx with the shipped nginx-metrics.conf, its ports replaced by those of the processes plus 10,000."""
    site = (ROOT / "deploy" / "nginx-metrics.conf").read_text()
    for line in re.findall(r"^ +listen (\d+);\n", site, flags=re.MULTILINE):
        port = processes.ports.get(int(line))
        site = site.replace(f"    listen {line};\n", f"    listen 127.0.0.1:{port + 10_000};\n" if port else "")
    assert site.count("    listen ") == len(processes.ports)
    folder = tmp_path / "metrics-nginx"
    folder.mkdir()
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(OUTER)
    program = shutil.which("nginx", path=PLACES)
    assert program
    process = subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf", "-e", "nginx.log"])
    yield
    process.terminate()
    process.wait(20)


@pytest.fixture
def prometheus(processes: Processes, proxied: None, tmp_path: Path) -> Iterator[Prometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = Prometheus(folder, {f"id-1.internal:{name}": port + 10_000 for name, port in processes.ports.items()})
    yield server
    server.end()


def test_prometheus_scrapes_every_process(
    prometheus: Prometheus, processes: Processes, nginx: Callable[..., Nginx]
) -> None:
    everything = {job: ["up"] for job in ("identity-platform", "identity-worker", "identity-deliverer")}
    assert within(60, lambda: prometheus.health() == everything), prometheus.health()
    # Values of the platform, of the worker's machine, and none of it twice.
    assert within(30, lambda: prometheus.count("identity_tenants") > 0)
    assert prometheus.count("identity_build_info") == 3
    assert prometheus.count("identity_collector_up == 0") == 0
    # The public address does not give them, even with the token.
    public = HTTPConnection("127.0.0.1", nginx(processes.server.port).port, timeout=30)
    public.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}", "Host": HOST})
    assert public.getresponse().status == 404
