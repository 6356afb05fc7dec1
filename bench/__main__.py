"""`python -m bench`: what bin/bench runs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import home, published, report
from bench.run import SMOKE, Row, Run, Sizes

NAMES = (
    "provisioning",
    "read",
    "list",
    "login",
    "peers",
    "backends",
    "factors",
    "openid",
    "frame",
    "latency",
    "ratelimit",
    "tenants",
    "migrate",
    "start",
    "crowd",
    "curves",
    "import",
    "move",
    "keycloak",
)
# Measured only when named: it takes long, and needs Java and Maven.
ONLY_NAMED = frozenset({"keycloak"})
ROUNDS, SECONDS = 5, 2.0
# Of measurements whose rounds take long.
FEWER_ROUNDS = {"curves": 3, "import": 3, "move": 3}
RESULTS = home.ROOT / "bench" / "results"
# Variables of the environment that change what is measured.
VARIABLES = ("WEB_WORKERS", "WEB_THREADS", "HASHES_AT_ONCE", "HASHES_WAITED_FOR")


def main() -> None:
    """Measure what the arguments name, print the table, write the results."""
    options = _options()
    if options.publish:
        published.publish(RESULTS)
        return
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    # Beside Keycloak alone: with the connections that users get.
    connections = None if options.names == ["keycloak"] else home.MAX_CONNECTIONS
    tcp = "keycloak" in options.names
    with home.opened(var / "bench", keep=options.keep, max_connections=connections, tcp=tcp) as own:
        os.environ.update(own.environment)
        _prepare()
        _measure(own, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/bench", description="How fast the platform is, side by side with peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure (all): {', '.join(NAMES)}")
    fewer = ", ".join(f"{name} {rounds}" for name, rounds in FEWER_ROUNDS.items())
    parser.add_argument("--rounds", type=int, help=f"rounds of every comparison ({ROUNDS}; {fewer})")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"how long a subject is under load in a round ({SECONDS:g})"
    )
    realms = ",".join(map(str, Sizes().realms))
    parser.add_argument(
        "--realms", type=_numbers, help=f"beside Keycloak: numbers of tenants and realms, each takes seconds ({realms})"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny data and one short round: shows that it works")
    parser.add_argument("--keep", action="store_true", help="use the data of an earlier --keep and leave it there")
    parser.add_argument(
        "--results", type=Path, help="folder for the files (bench/results; a smoke run: var/bench-smoke)"
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="measure nothing: write the documentation's tables from bench/results again",
    )
    options = parser.parse_args()
    options.variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}")
    if options.smoke:
        options.rounds, options.seconds = 1, 0.15
    if options.results is None:
        options.results = home.ROOT / "var/bench-smoke" if options.smoke else RESULTS
    return options


def _prepare() -> None:
    """Set Django up on the databases of the run, so that the platform's actions can be used."""
    import django
    from django.core.management import call_command

    django.setup()
    with contextlib.redirect_stdout(io.StringIO()):
        call_command("prepare")


def _measure(own: home.Home, options: argparse.Namespace) -> None:
    from bench.measures import MEASURES
    from bench.measures.fleet import NotThere

    console = Console()
    about, rows, steal = report.machine(own), list[Row](), report.Steal()
    raw: dict[str, object] = {}
    failed = list[str]()
    runs: dict[str, report.Conditions] = {}
    sizes = SMOKE if options.smoke else Sizes()
    sizes = replace(sizes, realms=options.realms) if options.realms else sizes
    with console.status("") as status:
        for name in [name for name in NAMES if name in (options.names or set(NAMES) - ONLY_NAMED)]:
            run = Run(
                own,
                options.rounds or FEWER_ROUNDS.get(name, ROUNDS),
                options.seconds,
                sizes,
                lambda what, name=name: status.update(f"{name}: {what}"),
                raw,
            )
            with report.conditions(runs, name, _command(name, options), about):
                try:
                    rows += [replace(row, measurement=name) for row in MEASURES[name](run)]
                except NotThere as missing:
                    console.print(f"{name}: {missing}")
                except Exception:
                    failed.append(name)
                    console.print_exception(max_frames=6)
            # What was measured stays if the run is interrupted.
            report.write(options.results, rows, about, runs, raw)
    about["load_average_after"] = report.load_average()
    about["steal_percent"] = steal.percent()
    report.show(console, rows, about)
    report.show_times(console, runs)
    console.print(f"Written to {report.write(options.results, rows, about, runs, raw)}")
    if options.results == RESULTS and not options.smoke:
        for path in published.publish(RESULTS):
            console.print(f"Written to {path}")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}")


def _command(name: str, options: argparse.Namespace) -> str:
    """Return the command that repeats one measurement of this run."""
    rounds = [f"--rounds {options.rounds}"] if options.rounds else []
    seconds = [] if options.seconds == SECONDS else [f"--seconds {options.seconds:g}"]
    realms = [f"--realms {','.join(map(str, options.realms))}"] if options.realms and name in ONLY_NAMED else []
    return " ".join([*options.variables, "bin/bench", name, *rounds, *seconds, *realms])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(number) for number in text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
