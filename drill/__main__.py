"""`python -m drill`: what bin/drill runs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError

from rich.console import Console

from bench import report as bench_report
from bench.home import ROOT, Home, production_environment
from bench.servers import platform
from drill import report
from drill.cluster import Cluster, NotThere
from drill.faults import DRILLS, Drill, World
from drill.load import Outcome, Writer, load, outcome
from identity_platform.serving import embedded

TENANTS = 4
USERS_PER_TENANT = 2
# Load before and after a fault.
CALM_SECONDS = 5.0


def main() -> int:
    """Run the drills that the arguments name; return 0 if all wanted values were met."""
    options = _options()
    console = Console()
    folder = Path(os.environ.get("IDENTITY_VAR") or ROOT / "var").resolve() / "drill"
    try:
        with _world(folder) as world, console.status("") as status:
            about = bench_report.machine(world.home)
            results = []
            for drill in DRILLS:
                if options.names and drill.name not in options.names:
                    continue
                outcomes, mended = [], True
                for number in range(options.runs):
                    status.update(f"{drill.name}: run {number + 1} of {options.runs}")
                    got, whole = _run(world, drill)
                    outcomes.append(got)
                    mended = mended and whole
                results.append(report.Result(drill.name, outcomes, mended))
                # Each at once: the next one may take the cluster with it.
                report.write(options.results, options.page, results, about)
    except NotThere as missing:
        console.print(str(missing))
        return 2
    report.show(console, results)
    console.print(f"Written to {options.results} and {options.page}")
    return 0 if all(result.met for result in results) else 1


def _options() -> argparse.Namespace:
    names = ", ".join(drill.name for drill in DRILLS)
    parser = argparse.ArgumentParser(prog="bin/drill", description="What the platform does when parts of it fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to drill (all): {names}")
    parser.add_argument("--runs", type=int, default=3, help="runs of every drill (3)")
    parser.add_argument("--results", type=Path, default=ROOT / "drill" / "results", help="folder (drill/results)")
    parser.add_argument(
        "--page", type=Path, default=ROOT / "docs" / "reliability.md", help="page (docs/reliability.md)"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - {drill.name for drill in DRILLS}:
        parser.error(f"there is no drill {', '.join(sorted(unknown))}")
    return options


@contextmanager
def _world(folder: Path) -> Iterator[World]:
    """Start everything in a new folder; stop and remove it at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o755)
    cluster = None
    try:
        cluster = Cluster(folder / "cluster")
        servers = embedded.attach(var=folder, postgres=False)
        environment = production_environment(folder, servers) | {"DATABASE_URL": cluster.url}
        os.environ.update(environment)
        home = Home(folder, environment)
        _prepare()
        with platform(home) as server:
            yield World(home, cluster, server)
    finally:
        if cluster is not None:
            cluster.end()
        embedded.leave(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    with contextlib.redirect_stdout(io.StringIO()):
        call_command("prepare", no_demo=True)


def _run(world: World, drill: Drill) -> tuple[Outcome, bool]:
    from django.db import connections

    from bench.world import tenants_with_users

    world.cluster.wait_until_healthy()
    # Those of this process to a primary of the drill before.
    connections.close_all()
    tenants = tenants_with_users(TENANTS, USERS_PER_TENANT, lambda _: None)
    writers = [
        Writer(world.server.port, tenant.tenant_id, user, tenant.token) for tenant in tenants for user in tenant.users
    ]
    with load(writers):
        time.sleep(CALM_SECONDS)
        mended = _mended(world, drill)
        time.sleep(CALM_SECONDS)
    try:
        world.manage("check_tenants")
    except CalledProcessError:
        mended = False
    return outcome(writers), mended


def _mended(world: World, drill: Drill) -> bool:
    """Act; return whether the cluster became healthy again by itself."""
    try:
        drill.act(world)
        world.cluster.wait_until_healthy()
    except NotThere as missing:
        print(f"{drill.name}: {missing}", file=sys.stderr)
        return False
    except CalledProcessError as failure:
        print(f"{drill.name}: {failure}\n{failure.stderr.decode()}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
