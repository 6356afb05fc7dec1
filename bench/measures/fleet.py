"""Targets 10 and 11: the cost of many idle tenants."""

from __future__ import annotations

import http.client
import statistics
import subprocess
import sys
import time

import psycopg
from django.core.management import get_commands

from bench import servers, world
from bench.home import ROOT, Home
from bench.run import Row, Run

STARTS_REQUESTS = 50


class NotThere(Exception):
    """The measured command does not exist in this tree."""


def measure_migrate(run: Run) -> list[Row]:
    """Target 10: `migrate_tenants` with every tenant at the newest schema, the whole process."""
    if "migrate_tenants" not in get_commands():
        raise NotThere("There is no command migrate_tenants.")
    world.know(run.sizes.fleet)
    times = []
    for number in range(run.rounds):
        run.say(f"migrate_tenants, round {number + 1} of {run.rounds}")
        began = time.perf_counter()
        _manage(run.home.environment, "migrate_tenants")
        times.append(time.perf_counter() - began)
    run.raw["migrate"] = {"seconds": times}
    found = statistics.median(times)
    return [
        Row(
            "10",
            f"migrate_tenants, {run.sizes.fleet} tenants, nothing to do",
            ours=f"{found:.2f} s",
            against="2 s",
            ratio=found / 2,
            wanted="≤ 1",
            met=found <= 2,
            beside="the whole process",
        )
    ]


def measure_start(run: Run) -> list[Row]:
    """Target 11: seconds until the first response and memory of a worker, with many tenants and with one."""
    world.know(run.sizes.known)
    few = _with_one_tenant(run.home)
    starts: dict[str, list[float]] = {"many": [], "one": []}
    memory: dict[str, list[float]] = {"many": [], "one": []}
    for number in range(run.rounds):
        for name, settings in (("many", {}), ("one", few))[:: 1 if number % 2 == 0 else -1]:
            run.say(f"start, round {number + 1} of {run.rounds}: {name}")
            with servers.platform(run.home, f"start-{name}", **settings) as server:
                starts[name].append(server.seconds_to_start)
                _use(server)
                memory[name].append(server.worker_memory() / 2**20)
    run.raw["start"] = {"seconds": starts, "memory_mib": memory}
    return [
        _row(f"start-up with {run.sizes.known} tenants known", starts, "s"),
        _row(f"memory of a worker with {run.sizes.known} tenants known", memory, "MiB"),
    ]


def _row(what: str, found: dict[str, list[float]], unit: str) -> Row:
    ratio = statistics.median(many / one for many, one in zip(found["many"], found["one"], strict=True))
    return Row(
        "11",
        what,
        ours=f"{statistics.median(found['many']):.2f} {unit}",
        against=f"with one: {statistics.median(found['one']):.2f} {unit}",
        ratio=ratio,
        wanted="≤ 1.05",
        met=ratio <= 1.05,
    )


def _with_one_tenant(home: Home) -> dict[str, str]:
    with psycopg.connect(home.environment["DATABASE_URL"], autocommit=True) as raw:
        there = raw.execute("SELECT 1 FROM pg_database WHERE datname = 'few'").fetchone()
        if not there:
            raw.execute("CREATE DATABASE few")
    settings = {"DATABASE_URL": home.with_database("few"), "TENANT_DATABASE_PREFIX": "few_"}
    if not there:
        environment = {**home.environment, **settings}
        _manage(environment, "prepare")
        _manage(environment, "create_tenant", "One", "--slug", "one")
    return settings


def _manage(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-P", "manage.py", *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        check=True,
        capture_output=True,
    )


def _use(server: servers.Server) -> None:
    """Send requests over separate connections, so that each worker responds once."""
    for _ in range(STARTS_REQUESTS):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/uflow/ready")
        connection.getresponse().read()
        connection.close()
