"""Target 4: the time to create a tenant, against django-tenants with the same tables."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench import environments, world
from bench.home import ROOT, Home
from bench.run import Row, Run
from tenants.entering import lookup
from tenants.lifecycle.capacity import main_server
from tenants.lifecycle.warm_pool import refill
from tenants.models import DatabaseServer, Tenant
from userflow.tenants.actions import open_tenant

PEER = ROOT / "bench" / "peers" / "django_tenants"
# Tenants created in each round; few, because they stay.
CLAIMS, COPIES, SCHEMAS = 4, 2, 2


def measure(run: Run) -> list[Row]:
    """Measure claims from the warm pool, copies of the template and schemas of django-tenants, with more and more tenants."""
    claims: dict[int, list[float]] = {}
    copies: dict[int, list[float]] = {}
    schemas: dict[int, list[float]] = {}
    world.grow(1, run.say)
    # More than the tenants of all steps and rounds.
    DatabaseServer.objects.update(capacity=10 * run.sizes.steps[-1] + 1_000)
    with _django_tenants(run.home, run.say) as make_schemas:
        for step in run.sizes.steps:
            world.grow(step, run.say)
            _open_tenants(1)  # first use: connection and template check
            for number in range(run.rounds):
                run.say(f"{step} tenants, round {number + 1} of {run.rounds}")
                refill(main_server(), CLAIMS)
                claims.setdefault(step, []).extend(_open_tenants(CLAIMS))
                copies.setdefault(step, []).extend(_open_tenants(COPIES))
                # The peer's time does not count here.
                schemas.setdefault(step, []).extend(make_schemas(SCHEMAS))
    run.raw["provisioning"] = {"claims_ms": claims, "copies_ms": copies, "django_tenants_ms": schemas}
    first, last = run.sizes.steps[0], run.sizes.steps[-1]
    theirs = statistics.median(schemas[first])
    rows = [
        _against_schemas("a new tenant, warm pool filled", claims[first], theirs, least=50.0),
        _against_schemas("a new tenant, copied from the template", copies[first], theirs, least=None),
    ]
    growth = statistics.median(claims[last]) / statistics.median(claims[first])
    rows.append(
        Row(
            "4",
            f"a new tenant with {last} there, warm pool filled",
            ours=f"{statistics.median(claims[last]):.2f} ms",
            against=f"with {first} there: {statistics.median(claims[first]):.2f} ms",
            ratio=growth,
            wanted="≤ 1.3",
            met=growth <= 1.3,
            beside=", ".join(f"at {step}: {statistics.median(found):.2f} ms" for step, found in claims.items()),
        )
    )
    return rows


def _against_schemas(what: str, ours: list[float], theirs: float, *, least: float | None) -> Row:
    mine = statistics.median(ours)
    return Row(
        "4" if least else "–",
        what,
        ours=f"{mine:.2f} ms",
        against=f"django-tenants: {theirs:.0f} ms",
        ratio=theirs / mine,
        wanted=f"≥ {least:.0f}" if least else "no target",
        met=least is None or theirs / mine >= least,
    )


def _open_tenants(number: int) -> list[float]:
    times = []
    for _ in range(number):
        began = time.perf_counter()
        open_tenant(name="A new tenant")
        times.append((time.perf_counter() - began) * 1000)
    return times


# --- the peer --------------------------------------------------------------------------------------------------------


@contextmanager
def _django_tenants(home: Home, say: world.Say) -> Iterator[Schemas]:
    """Start a process of django-tenants that waits for commands, in a database of its own."""
    say("django-tenants")
    python = environments.python_of("django_tenants", home.folder.parent)
    with psycopg.connect(home.environment["DATABASE_URL"], autocommit=True) as raw:
        raw.execute("DROP DATABASE IF EXISTS django_tenants WITH (FORCE)")
        raw.execute("CREATE DATABASE django_tenants")
    folder = home.folder / "django_tenants"
    source = lookup.find(Tenant.objects.filter(database__status="active").order_by("created_at")[0].pk).database
    environment = {
        **os.environ,
        "PEER_FOLDER": str(folder),
        "PEER_DATABASE_URL": home.with_database("django_tenants"),
        "PEER_SOURCE_URL": home.with_database(source),
    }
    for step in ("read", "migrate"):
        subprocess.run([python, PEER / "peer.py", step], env=environment, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(
        [python, PEER / "peer.py", "make"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        schemas = Schemas(process)
        schemas(1)
        yield schemas
    finally:
        process.terminate()
        process.wait()


class Schemas:
    """Create schema tenants in the peer's process; return their times in ms as measured there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None  # stdin and stdout are pipes
        assert process.stdout is not None
        self._orders, self._answers = process.stdin, process.stdout
        self._answers.readline()

    def __call__(self, number: int) -> list[float]:
        self._orders.write(f"{number}\n")
        self._orders.flush()
        return [float(time) for time in json.loads(self._answers.readline())]
