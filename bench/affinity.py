"""How many connections to tenants' databases are opened with and without `hash` in deploy/nginx.conf?

The same random reads of many tenants go through nginx to instances with one worker each. `python -m bench.affinity --help`
says how to run it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from bench import home

TOKEN = "bench"
CLIENTS = 4
_OUTER = """
daemon off;
pid nginx.pid;
events { worker_connections 1024; }
http {
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
"""
_INSTANCE = "    server 127.0.0.1:8000 max_fails=0;\n"
_HASH = "    hash $tenant_key consistent;\n"


def main() -> None:
    """Measure, and print one line for each configuration."""
    parser = argparse.ArgumentParser(
        prog="bench.affinity", description="Connections opened, with and without affinity."
    )
    parser.add_argument("--instances", type=int, default=8, help="processes with one worker (default 8)")
    parser.add_argument("--tenants", type=int, default=100, help="tenants (default 100)")
    parser.add_argument("--budget", type=int, default=20, help="TENANT_CONNECTION_BUDGET of each (default 20)")
    parser.add_argument("--requests", type=int, default=4000, help="reads of random tenants (default 4000)")
    options = parser.parse_args()
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    with home.opened(var / "bench-affinity", keep=False) as own:
        os.environ.update(own.environment, LOG_LEVEL="ERROR", DJANGO_SETTINGS_MODULE="identity_platform.settings")
        import django
        from django.core.management import call_command

        django.setup()
        call_command("prepare", no_demo=True)
        from django.db import connections

        from bench import servers, world
        from tenants.backend.pool import POOL

        tenants = world.tenants_with_users(options.tenants, 1, lambda text: print(text, flush=True))
        reads = [(f"/uflow/user/enduser/{tenant.tenant_id}/{tenant.users[0]}", tenant.token) for tenant in tenants]
        connections.close_all()
        POOL.close_idle()
        settings = {
            "WEB_WORKERS": "1",
            "WEB_THREADS": "4",
            "TENANT_CONNECTION_BUDGET": str(options.budget),
            "PLATFORM_HOSTS": str(options.instances),
            "METRICS_TOKEN": TOKEN,
        }
        with ExitStack() as running:
            ports = [running.enter_context(servers.platform(own, **settings)).port for _ in range(options.instances)]
            for name, affinity in (("without", False), ("with", True)):
                opened = _run(own.folder, ports, reads, options.requests, affinity=affinity)
                print(f"{name} affinity: {opened} connections opened for {options.requests} requests")


def _run(folder: Path, ports: list[int], reads: list[tuple[str, str]], requests: int, *, affinity: bool) -> int:
    """Return how many connections the reads open. Both runs make the same ones."""
    choose = random.Random(7)
    walks = [[choose.choice(reads) for _ in range(requests // CLIENTS)] for _ in range(CLIENTS)]
    with _nginx(folder / f"nginx-{affinity}", ports, affinity=affinity) as port, ThreadPoolExecutor(CLIENTS) as clients:
        before = _opened(ports[0])
        list(clients.map(partial(_walk, port), walks))
        return _opened(ports[0]) - before


def _walk(port: int, reads: list[tuple[str, str]]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for path, token in reads:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status}")


def _opened(port: int) -> int:
    """Return the counter of all processes, which share their metrics."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    lines = connection.getresponse().read().decode().splitlines()
    return sum(
        int(float(line.split()[1])) for line in lines if line.startswith("identity_tenant_connections_opened_total ")
    )


@contextmanager
def _nginx(folder: Path, ports: list[int], *, affinity: bool) -> Iterator[int]:
    """Run the deployed configuration in front of these ports; without `affinity` without its line `hash`."""
    from bench.servers import free_port

    folder.mkdir()
    port, site = free_port(), (home.ROOT / "deploy" / "nginx.conf").read_text()
    for deployed, here in (
        (_INSTANCE, "".join(_INSTANCE.replace("8000", str(each)) for each in ports)),
        (_HASH, _HASH if affinity else ""),
        ("listen 80;", f"listen 127.0.0.1:{port};"),
        ("/var/log/nginx/access.log", str(folder / "access.log")),
    ):
        site = site.replace(deployed, here)
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(_OUTER)
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise SystemExit("bench.affinity needs nginx.")
    process = subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf", "-e", "nginx.log"])
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                HTTPConnection("127.0.0.1", port, timeout=5).connect()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
