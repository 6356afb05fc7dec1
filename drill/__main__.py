"""`python -m drill`: what bin/drill runs."""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from rich.console import Console
from rich.status import Status

from bench import report as bench_report
from bench.home import ROOT, Home, production_environment
from bench.servers import platform
from drill import report, sustained
from drill.cluster import Cluster, NotThere
from drill.drills import DRILLS, Drill
from drill.instances import front
from drill.load import Outcome, Writer, load, outcome
from drill.network import Network
from drill.visitors import Visitor
from drill.world import World
from identity_platform.serving import embedded

TENANTS = 4
# The name of the load without a fault.
LOAD = "load"
USERS_PER_TENANT, WRITERS_PER_TENANT = 3, 2
# Load before and after a fault.
CALM_SECONDS = 5.0
# Between two turns of a user, where all clients are users.
USERS_PAUSE_SECONDS = 2.0


def main() -> int:
    """Run the drills that the arguments name; return 0 if all wanted values were met."""
    options = _options()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    console = Console()
    folder = Path(os.environ.get("IDENTITY_VAR") or ROOT / "var").resolve() / "drill"
    chosen = [drill for drill in DRILLS if not options.names or drill.name in options.names]
    try:
        if options.single:
            return _single(folder, chosen[0], options.results)
        if options.names == [LOAD]:
            return _load(folder, options, console)
        with console.status("") as status:
            results = _run_all(folder, chosen, options, status)
    except NotThere as missing:
        console.print(str(missing))
        return 2
    report.show(console, results)
    console.print(f"Written to {options.results} and {options.page}")
    return 0 if all(result.met for result in results) else 1


def _end(number: int, _: object) -> None:
    """Clean up and exit, also on SIGTERM. A further signal does not interrupt it."""
    for further in (signal.SIGTERM, signal.SIGINT):
        signal.signal(further, signal.SIG_IGN)
    sys.exit(128 + number)


def _load(folder: Path, options: argparse.Namespace, console: Console) -> int:
    with _world(folder) as world:
        about = bench_report.machine(world.home)
        measured = sustained.run(world, options.minutes, console)
    section = sustained.lines(measured, options.minutes, about)
    sustained.write(options.results, options.page, measured, section)
    console.print("\n".join(section))
    return 0 if sustained.met(measured) else 1


def _run_all(folder: Path, chosen: list[Drill], options: argparse.Namespace, status: Status) -> list[report.Result]:
    missing = {drill.name: drill.lacks() for drill in chosen}
    results = [report.Result(name, [], skipped=reason) for name, reason in missing.items() if reason]
    report.write(options.results, options.page, results, {})
    # Before a world changes it.
    environment = dict(os.environ)

    def add(drill: Drill, runs: list[tuple[Outcome, bool]], about: dict[str, Any]) -> None:
        whole = all(mended for _, mended in runs)
        chosen_seconds = options.seconds if drill.seconds else 0.0
        results.append(report.Result(drill.name, [got for got, _ in runs], whole, seconds=chosen_seconds))
        # Each at once: the next one may take the cluster with it.
        report.write(options.results, options.page, results, about)

    shared = [drill for drill in chosen if not drill.apart and not missing[drill.name]]
    if shared:
        with _world(folder) as world:
            about = bench_report.machine(world.home)
            for drill in shared:
                runs = []
                for number in range(options.runs):
                    status.update(f"{drill.name}: run {number + 1} of {options.runs}")
                    runs.append(_run(world, drill, options.seconds))
                add(drill, runs, about)
    for drill in chosen:
        if drill.apart and not missing[drill.name]:
            runs = []
            for number in range(options.runs):
                status.update(f"{drill.name}: run {number + 1} of {options.runs}")
                got, mended, about = _run_apart(drill, options.results, environment)
                runs.append((got, mended))
            add(drill, runs, about)
    return results


def _run_apart(drill: Drill, folder: Path, environment: dict[str, str]) -> tuple[Outcome, bool, dict[str, Any]]:
    """Run a drill once with servers of its own, in a process of its own: Django's settings are those of one world."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{drill.name}.json"
    command = [sys.executable, "-P", "-m", "drill", drill.name, "--single", "--results", str(file)]
    running = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code = running.wait()
    except BaseException:
        running.terminate()
        running.wait()
        raise
    if code != 0:
        raise NotThere(f"{drill.name} ended with {code}.")
    said = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return Outcome(**said["outcome"]), said["mended"], said["about"]


def _single(folder: Path, drill: Drill, file: Path) -> int:
    with _world(folder, machines=drill.machines) as world:
        about = bench_report.machine(world.home)
        got, mended = _run(world, drill)
    said = {"outcome": asdict(got), "mended": mended, "about": about}
    file.write_text(json.dumps(said), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    names = ", ".join(drill.name for drill in DRILLS)
    parser = argparse.ArgumentParser(prog="bin/drill", description="What the platform does when parts of it fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to drill (all): {names}; or {LOAD}")
    parser.add_argument("--minutes", type=float, default=30.0, help=f"how long {LOAD} lasts (30)")
    parser.add_argument("--runs", type=int, default=3, help="runs of every drill (3)")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="how long a fault lasts, in drills of one whose length can be chosen"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "drill" / "results", help="folder (drill/results)")
    parser.add_argument(
        "--page", type=Path, default=ROOT / "docs" / "reliability.md", help="page (docs/reliability.md)"
    )
    parser.add_argument("--single", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.names == [LOAD]:
        return options
    if unknown := set(options.names) - {drill.name for drill in DRILLS}:
        parser.error(f"there is no drill {', '.join(sorted(unknown))}")
    return options


@contextmanager
def _world(folder: Path, *, machines: bool = False) -> Iterator[World]:
    """Start everything in a new folder; stop and remove it at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o755)
    with ExitStack() as kept:
        kept.callback(shutil.rmtree, folder, ignore_errors=True)
        network = None
        if machines:
            network = Network("abc")
            kept.callback(network.end)
        cluster = Cluster(folder / "cluster", network.machines) if network else Cluster(folder / "cluster")
        kept.callback(cluster.end)
        kept.callback(embedded.leave, folder)
        servers = embedded.attach(var=folder, postgres=False)
        environment = production_environment(folder, servers) | {"DATABASE_URL": cluster.url}
        # One more, so that the ring can be rotated; the platform of the other drills can read what either encrypts.
        environment["ENCRYPTION_KEYS"] += f",k2:{base64.b64encode(secrets.token_bytes(32)).decode()}"
        environment |= {"WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8", "WEBHOOK_PLAIN_HTTP": "true"}
        os.environ.update(environment)
        home = Home(folder, environment)
        _prepare()
        server = kept.enter_context(platform(home))
        yield World(home, cluster, server, kept, network=network)


def _prepare() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    with contextlib.redirect_stdout(io.StringIO()):
        call_command("prepare", no_demo=True)


def _run(world: World, drill: Drill, seconds: float = 0.0) -> tuple[Outcome, bool]:
    from django.db import connections

    from bench.world import PASSWORD, tenants_with_users

    world.cluster.wait_until_healthy()
    # Those of this process to a primary of the drill before.
    connections.close_all()
    tenants = tenants_with_users(TENANTS, USERS_PER_TENANT, lambda _: None)
    world.tenants = tenants
    world.about = [tenants[0].tenant_id] if drill.others is not None else []
    world.lost = world.wrong = world.connections = world.connection_limit = 0
    world.seconds = seconds or drill.seconds
    world.clients, world.more_tenants = [], []
    mended = Mended(drill.name)
    with mended.noted(), ExitStack() as run:
        run.callback(setattr, world, "front", None)
        world.settings = {}
        if drill.around is not None:
            run.enter_context(drill.around(world))
        if drill.instances:
            world.front = run.enter_context(front(world.home, drill.instances, **world.settings))
        writers = 0 if drill.users_only else WRITERS_PER_TENANT
        world.clients = [
            Writer(world.port, tenant.tenant_id, user, tenant.token)
            for tenant in tenants
            for user in tenant.users[:writers]
        ]
        if drill.instances or drill.users_only:
            # The other users sign in.
            world.clients += [
                Visitor(world.port, tenant.tenant_id, tenant.client_id, email, PASSWORD)
                for tenant in tenants
                for email in tenant.emails[writers:]
            ]
        for number, client in enumerate(world.clients):
            client.keeps_connection = not drill.instances
            if drill.users_only:
                # Sign-ins that all begin at once would wait for a core to hash on, which is not what is measured.
                client.pause = USERS_PAUSE_SECONDS
                client.delay = USERS_PAUSE_SECONDS * number / len(world.clients)
        with load(world.clients):
            time.sleep(CALM_SECONDS)
            # What the fault has left must be gone before the load ends.
            with mended.noted():
                drill.act(world)
                world.cluster.wait_until_healthy()
            time.sleep(CALM_SECONDS)
    with mended.noted():
        world.manage("check_tenants")
    got = outcome(world.clients, world.about)
    got = replace(got, lost=got.lost + world.lost, wrong=got.wrong + world.wrong)
    return replace(got, connections=world.connections, connection_limit=world.connection_limit), mended.whole


class Mended:
    """Whether everything has become healthy again by itself."""

    def __init__(self, name: str) -> None:
        self.name, self.whole = name, True

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Print what a block says is missing or failed, and go on after it."""
        try:
            yield
        except NotThere as missing:
            self.whole = False
            print(f"{self.name}: {missing}", file=sys.stderr)
        except CalledProcessError as failure:
            self.whole = False
            print(f"{self.name}: {failure}\n{failure.stdout.decode()}{failure.stderr.decode()}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
