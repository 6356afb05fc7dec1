"""How fast are random tenants with the connections that users get, and with the background processes beside the server?

`bin/bench served` starts the servers with the limits of bin/serve, reads users of 1, 25 and 100 tenants, and counts the
connections that are opened and those that are left a minute later. With `--beside`, the same load runs in turns with and
without a `tenant_worker` that sweeps all tenants. docs/sizing.md has the rule that this load obeys.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench import console as bench_console
from bench import home

STEPS = (1, 25, 100)
TOKEN = "bench-metrics-token"
# So often the background collects its figures here: without a pause, it visits one tenant after the other.
SWEEP_SECONDS = "1"
# Idle connections beyond the first one of a tenant and worker are closed after half a minute.
LATER_SECONDS = 60.0


def main() -> None:
    """Measure and print a table; exit 1 if a value is not met."""
    parser = argparse.ArgumentParser(prog="bin/bench served", description=__doc__.partition("\n")[0])
    parser.add_argument("--tenants", type=int, nargs="+", default=list(STEPS), help="numbers of tenants (1 25 100)")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a round (8)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument("--idle", type=float, default=LATER_SECONDS, help="seconds until backends are counted (60)")
    parser.add_argument("--beside", action="store_true", help="compare with and without a sweeping tenant_worker")
    parser.add_argument("--max-connections", type=int, help="of PostgreSQL, instead of what bin/serve sets")
    options = parser.parse_args()
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve() / "bench-served"
    with home.opened(var, keep=False, max_connections=options.max_connections) as opened:
        os.environ.update(opened.environment)
        bench_console._prepare()
        rows = _measure_beside(opened, options) if options.beside else _measure_steps(opened, options)
    table = Table("load", "requests/s", "of the first", "opened per 1,000", "backends a minute later", "p99 (ms)")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)


def _measure_steps(opened: home.Home, options: argparse.Namespace) -> list[list[str]]:
    """Return a row for each number of tenants."""
    tenants = _tenants(max(options.tenants))
    rows: list[list[str]] = []
    first = 0.0
    with _processes(opened, beside=True) as server:
        for number in options.tenants:
            requests = _reads(tenants[:number])
            _load(opened, server, requests, options.seconds)
            before = _opened_by_requests(server)
            samples = [_load(opened, server, requests, options.seconds) for _ in range(options.rounds)]
            opened_connections = _opened_by_requests(server) - before
            answers = sum(sample.answers for sample in samples)
            time.sleep(options.idle)
            speed = statistics.median(sample.per_second for sample in samples)
            first = first or speed
            rows.append(
                [
                    f"{number} tenants",
                    f"{speed:.0f}",
                    f"{speed / first:.2f}x",
                    f"{opened_connections * 1000 / answers:.2f}",
                    f"{_backends(opened)}",
                    f"{statistics.median(sample.p99_ms for sample in samples):.1f}",
                ]
            )
    return rows


def _measure_beside(opened: home.Home, options: argparse.Namespace) -> list[list[str]]:
    """Return a row for each number of tenants without and with a tenant_worker that sweeps them all."""
    tenants = _tenants(max(options.tenants))
    rows: list[list[str]] = []
    for number in options.tenants:
        requests, taken = _reads(tenants[:number]), {False: [], True: []}  # type: ignore[var-annotated]
        with _processes(opened, beside=False) as server:
            _load(opened, server, requests, 20.0)
            for _ in range(options.rounds):
                for sweeps in (False, True):
                    with _sweeping(opened, sweeps):
                        before = _opened_by_requests(server)
                        sample = _load(opened, server, requests, options.seconds)
                        taken[sweeps].append((sample, _opened_by_requests(server) - before))
        base = statistics.median(sample.per_second for sample, _ in taken[False])
        for sweeps in (False, True):
            speed = statistics.median(sample.per_second for sample, _ in taken[sweeps])
            answers = sum(sample.answers for sample, _ in taken[sweeps])
            rows.append(
                [
                    f"{number} tenants{', a worker sweeps' if sweeps else ''}",
                    f"{speed:.0f}",
                    f"{speed / base:.2f}x",
                    f"{sum(number for _, number in taken[sweeps]) * 1000 / answers:.2f}",
                    "-",
                    f"{statistics.median(sample.p99_ms for sample, _ in taken[sweeps]):.1f}",
                ]
            )
    return rows


@contextmanager
def _processes(opened: home.Home, *, beside: bool) -> Iterator[Any]:
    """Run the server, and with `beside` what bin/serve runs beside it."""
    from bench.servers import command, platform

    with ExitStack() as stack:
        server = stack.enter_context(platform(opened, METRICS_TOKEN=TOKEN))
        if beside:
            stack.enter_context(command(opened, "tenant_worker"))
            stack.enter_context(command(opened, "deliver_events"))
        yield server


@contextmanager
def _sweeping(opened: home.Home, sweeps: bool) -> Iterator[None]:
    if not sweeps:
        yield
        return
    from bench.servers import command

    with command(opened, "tenant_worker", "--figures-every", SWEEP_SECONDS, "--seal-every", SWEEP_SECONDS):
        # Until it has begun.
        time.sleep(5)
        yield


def _tenants(number: int) -> list[Any]:
    """Return tenants with users; this process keeps no connection to them."""
    from django.db import connections

    from bench.world import tenants_with_users
    from tenants.backend.pool import POOL

    tenants = tenants_with_users(number, 10, lambda _: None)
    connections.close_all()
    POOL.close_idle()
    return tenants


def _reads(tenants: Sequence[Any]) -> list[bytes]:
    from bench.world import get

    walk = [(tenant, user) for tenant in tenants for user in tenant.users]
    random.Random(3).shuffle(walk)
    return [get(f"/uflow/user/enduser/{tenant.tenant_id}/{user}", tenant.token) for tenant, user in walk]


def _load(opened: home.Home, server: Any, requests: list[bytes], seconds: float) -> Any:
    from bench.rounds import Subject, sample

    return sample(opened, Subject("reads", server, requests), seconds)


def _opened_by_requests(server: Any) -> int:
    """Return how many connections to tenant databases the server's workers have opened."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    lines = connection.getresponse().read().decode().splitlines()
    return sum(
        int(float(line.split()[1])) for line in lines if line.startswith("identity_tenant_connections_opened_total ")
    )


def _backends(opened: home.Home) -> int:
    """Return how many connections to tenant databases are open."""
    with psycopg.connect(opened.environment["DATABASE_URL"], autocommit=True) as raw:
        row = raw.execute("SELECT count(*) FROM pg_stat_activity WHERE starts_with(datname, 'bench_')").fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    main()
