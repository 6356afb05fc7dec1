"""How do the costs of an installation grow with its tenants?

Each step has more tenants with databases of their own, on one server. `python -m bench.curves --help` says how to run it;
`docs/sizing.md` explains the results. The largest step of the default run needs about 30 GB of disk for some minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from rich.console import Console
from rich.table import Table

from bench import home, plots, report

STEPS = (1, 100, 1000, 2000)
# How many tenants of a step are read, turned back and migrated, or backed up. More would only take longer.
SAMPLE = 100
IMAGES = home.ROOT / "docs" / "images"
# Column: its head in the table.
HEADS = {
    "claim_ms": "new tenant, warm pool (ms)",
    "copy_ms": "new tenant, template (ms)",
    "cold_ms": "first request of a tenant (ms)",
    "warm_ms": "the next ones (ms)",
    "worker_mib": "memory of a worker (MiB)",
    "backend_mib": "memory of a connection (MiB)",
    "connections": "connections",
    "database_mib": "disk of a tenant (MiB)",
    "no_op_s": "migrate_tenants, nothing to do (s)",
    "migration_ms": "one migration of a tenant (ms)",
    "backup_ms": "backup of a tenant (ms)",
    "start_s": "start of PostgreSQL (s)",
    "crash_syncfs_s": "after a crash, syncfs (s)",
    "crash_fsync_s": "after a crash, fsync (s)",
}
# File and title of a plot: unit, and the columns in it.
PLOTS = {
    "curve-provisioning": ("Creating a tenant", "ms", ("claim_ms", "copy_ms")),
    "curve-requests": ("Requests", "ms", ("cold_ms", "warm_ms")),
    "curve-jobs": ("Jobs, for each tenant", "ms", ("migration_ms", "backup_ms")),
    "curve-crash": ("PostgreSQL's start", "s", ("start_s", "crash_syncfs_s", "crash_fsync_s")),
}

Values = dict[str, float]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Repeats:
    """How many tenants are created in each way, and how often PostgreSQL is started in each way."""

    created: int = 10
    starts: int = 3


# A start that takes longer is not repeated.
LONG_START_SECONDS = 60.0
SMOKE_STEPS, SMOKE = (2,), Repeats(created=2, starts=1)


def main() -> None:
    """Measure every step, print the table, write bench/results/curves.{json,md} and the plots."""
    parser = argparse.ArgumentParser(prog="bench.curves", description="Costs over the number of tenants.")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=list(STEPS), help="numbers of tenants (1 100 1000 2000)"
    )
    parser.add_argument("--smoke", action="store_true", help="few tenants: shows that it works")
    parser.add_argument("--results", type=Path, default=home.ROOT / "bench" / "results", help="where the files go")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the plots go (docs/images)")
    options = parser.parse_args()
    steps, repeats = (SMOKE_STEPS, SMOKE) if options.smoke else (sorted(options.steps), Repeats())
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    console = Console()
    with home.opened(var / "bench-curves", keep=False) as own:
        os.environ.update(own.environment)
        _prepare()
        about = report.machine(own)
        found: dict[int, Values] = {}
        with console.status("") as status:
            for step in steps:
                say: Say = lambda what, step=step: status.update(f"{step} tenants: {what}")  # noqa: E731
                found[step] = _step(own, step, repeats, say)
        about["load_average_after"] = report.load_average()
    console.print(_table(found))
    _write(options.results, about, found)
    for name, (title, unit, columns) in PLOTS.items():
        lines = {HEADS[column]: [found[step][column] for step in steps] for column in columns}
        plots.draw(options.images / f"{name}.svg", title=title, unit=unit, over="tenants", at=list(steps), lines=lines)
    console.print(f"Written to {options.results / 'curves.json'}, curves.md and {options.images}")


def _prepare() -> None:
    import django
    from django.core.management import call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    django.setup()
    with contextlib.redirect_stdout(io.StringIO()):
        call_command("prepare")


def _step(own: home.Home, tenants: int, repeats: Repeats, say: Say) -> Values:
    from django.db import connections

    from bench import world
    from tenants.models import DatabaseServer

    DatabaseServer.objects.update(capacity=tenants + 1_000)
    world.grow(tenants, say)
    values = _requests(own, tenants, say) | _jobs(own, tenants, say)
    # PostgreSQL is restarted.
    connections.close_all()
    # Last, because the tenants that it creates stay, and belong to the next step.
    return values | _starts(own, repeats.starts, say) | _provisioning(repeats.created, say)


def _provisioning(number: int, say: Say) -> Values:
    from tenants.lifecycle.capacity import main_server
    from tenants.lifecycle.warm_pool import refill
    from userflow.tenants.actions import open_tenant

    def milliseconds() -> float:
        began = time.perf_counter()
        open_tenant(name="A new tenant")
        return (time.perf_counter() - began) * 1000

    say("creating tenants")
    milliseconds()  # first use: connection and check of the template
    copies = [milliseconds() for _ in range(number)]
    refill(main_server(), number)
    return {"copy_ms": statistics.median(copies), "claim_ms": statistics.median(milliseconds() for _ in range(number))}


def _requests(own: home.Home, tenants: int, say: Say) -> Values:
    """Read one user each of a sample of tenants with a new server, which has no connection to any of them, and again."""
    from bench import servers, world

    chosen = world.tenants_with_users(min(tenants, SAMPLE), 1, say)
    random.Random(7).shuffle(chosen)
    say("requests")
    with psycopg.connect(own.environment["DATABASE_URL"], autocommit=True) as raw:
        row = raw.execute("SELECT avg(pg_database_size(datname)) FROM pg_database WHERE datname ~ '^bench_'").fetchone()
        assert row is not None  # an aggregate always has a row
        disk = float(row[0]) / 2**20
        with servers.platform(own, "curves", WEB_WORKERS="1", TENANT_CONNECTION_BUDGET="20") as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            _read(connection, chosen[0])  # the worker's own first request
            cold = [_read(connection, tenant) for tenant in chosen[1:] or chosen]
            warm = [_read(connection, chosen[-1]) for _ in range(50)]
            memory = server.worker_memory() / 2**20
            rows = raw.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname ~ '^bench_' "
                "AND application_name <> 'identity-admin'"
            ).fetchall()
            backends = [psutil.Process(pid).memory_full_info().uss / 2**20 for (pid,) in rows]
    return {
        "cold_ms": statistics.median(cold),
        "warm_ms": statistics.median(warm),
        "worker_mib": memory,
        "connections": len(backends),
        "backend_mib": statistics.median(backends),
        "database_mib": disk,
    }


def _read(connection: http.client.HTTPConnection, tenant: Any) -> float:
    began = time.perf_counter()
    path = f"/uflow/user/enduser/{tenant.tenant_id}/{tenant.users[0]}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {tenant.token}"})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {body!r}")
    return (time.perf_counter() - began) * 1000


def _jobs(own: home.Home, tenants: int, say: Say) -> Values:
    from bench import world
    from tenants.backups.backup_folders import Folder
    from tenants.backups.backup_sets import write
    from tenants.jobs.fleet import Result, migrate_tenants
    from tenants.models import Tenant

    say("migrate_tenants, nothing to do")
    no_op = _manage(own, "migrate_tenants")
    slugs = list(
        Tenant.objects.filter(database__status="active").order_by("created_at").values_list("slug", flat=True)[:SAMPLE]
    )
    say("turning tenants back")
    _turn_back(slugs)
    say("migrate_tenants")
    began = time.perf_counter()
    if migrate_tenants(only=slugs).count(Result.MIGRATED) != len(slugs):
        raise RuntimeError("Not every tenant was migrated.")
    migrated = time.perf_counter() - began
    say("backup")
    with tempfile.TemporaryDirectory(dir=own.folder) as folder:
        began = time.perf_counter()
        made = write(Folder(Path(folder)), jobs=2, only=slugs)
        backup = time.perf_counter() - began
    if made.failed or len(made.tenants) != len(slugs):
        raise RuntimeError(f"Not backed up: {made.failed}")
    assert world.tenants_with_database() >= tenants
    return {
        "no_op_s": no_op,
        "migration_ms": migrated / len(slugs) * 1000,
        "backup_ms": backup / len(slugs) * 1000,
    }


def _manage(own: home.Home, *arguments: str) -> float:
    """Run a management command; return the seconds of the whole process."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-P", "manage.py", *arguments],
        env={**own.environment, "PYTHONPATH": str(home.ROOT)},
        cwd=home.ROOT,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


def _turn_back(slugs: list[str]) -> None:
    """Take the newest migration of `userflow` back in these tenants, as if they had been left out of the last upgrade."""
    from django.db import connections
    from django.db.migrations.executor import MigrationExecutor

    from tenants.entering.target import TENANT_ALIAS, DatabaseTarget, in_target
    from tenants.models import TenantDatabase

    mappings = TenantDatabase.objects.select_related("server").filter(tenant__slug__in=slugs)
    for mapping in mappings:
        with in_target(DatabaseTarget.for_maintenance(mapping.server, mapping.name)):
            executor = MigrationExecutor(connections[TENANT_ALIAS])
            [leaf] = executor.loader.graph.leaf_nodes("userflow")
            before = [node for node in executor.loader.graph.forwards_plan(leaf) if node[0] == "userflow"][-2]
            executor.migrate([before])
    mappings.update(schema_version="1-000000000000")


def _starts(own: home.Home, number: int, say: Say) -> Values:
    """Restart PostgreSQL after a clean stop, and after crashes with both ways of writing out its files."""
    from identity_platform.serving.embedded import starting_or_stopping
    from identity_platform.serving.embedded.postgres import Postgres

    server = Postgres(own.folder)
    overrides = server.data / "postgresql.conf"
    usual = overrides.read_text(encoding="utf-8")
    values: Values = {}
    for name, crash, method in (
        ("start_s", False, "syncfs"),
        ("crash_syncfs_s", True, "syncfs"),
        ("crash_fsync_s", True, "fsync"),
    ):
        overrides.write_text(f"{usual}recovery_init_sync_method = {method}\n", encoding="utf-8")
        times = []
        for count in range(number):
            say(f"start of PostgreSQL: {name}, {count + 1} of {number}")
            with starting_or_stopping(own.folder):
                _kill(server) if crash else server.stop()
                times.append(_seconds_until_started(own, server))
            if times[-1] > LONG_START_SECONDS:
                break
        values[name] = statistics.median(times)
    overrides.write_text(usual, encoding="utf-8")
    return values


def _kill(server: Any) -> None:
    pid = int((server.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
    postmaster = psutil.Process(pid)
    killed = [postmaster, *postmaster.children(recursive=True)]
    for process in killed:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(killed, timeout=20)


def _seconds_until_started(own: home.Home, server: Any) -> float:
    from identity_platform.serving.embedded import EmbeddedServerFailed

    began = time.perf_counter()
    # It gives up after a minute, which writing out the files of thousands of databases may take; the server goes on.
    with contextlib.suppress(EmbeddedServerFailed):
        server.run(unsafe_fast=False)
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(own.environment["DATABASE_URL"], connect_timeout=5).close()
            return time.perf_counter() - began
        time.sleep(0.05)


def _table(found: dict[int, Values]) -> Table:
    table = Table("", *(f"{step} tenants" for step in found), title="Costs over tenants")
    for column, head in HEADS.items():
        table.add_row(head, *(f"{values[column]:.2f}" for values in found.values()))
    return table


def _write(folder: Path, about: dict[str, Any], found: dict[int, Values]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"about": about, "steps": found}
    (folder / "curves.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = ["# Costs over the number of tenants (python -m bench.curves)", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", f"| | {' | '.join(f'{step} tenants' for step in found)} |", "|---" * (len(found) + 1) + "|"]
    for column, head in HEADS.items():
        lines.append(f"| {head} | {' | '.join(f'{values[column]:.2f}' for values in found.values())} |")
    (folder / "curves.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
