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

from bench import home, report
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
    "latency",
    "ratelimit",
    "tenants",
    "migrate",
    "start",
    "crowd",
    "import",
    "move",
)


def main() -> None:
    """Measure what the arguments name, print the table, write the results."""
    options = _options()
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    with home.opened(var / "bench", keep=options.keep) as own:
        os.environ.update(own.environment)
        _prepare()
        _measure(own, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/bench", description="How fast the platform is, side by side with peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure (all): {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every comparison (5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a subject is under load in a round (4)")
    parser.add_argument("--smoke", action="store_true", help="tiny data and one short round: shows that it works")
    parser.add_argument("--keep", action="store_true", help="use the data of an earlier --keep and leave it there")
    parser.add_argument(
        "--results", type=Path, help="folder for the files (bench/results; a smoke run: var/bench-smoke)"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}")
    if options.smoke:
        options.rounds, options.seconds = 1, 0.3
    if options.results is None:
        options.results = home.ROOT / ("var/bench-smoke" if options.smoke else "bench/results")
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
    with console.status("") as status:
        for name in [name for name in NAMES if not options.names or name in options.names]:
            run = Run(
                own,
                options.rounds,
                options.seconds,
                SMOKE if options.smoke else Sizes(),
                lambda what, name=name: status.update(f"{name}: {what}"),
                raw,
            )
            try:
                rows += [replace(row, measurement=name) for row in MEASURES[name](run)]
            except NotThere as missing:
                console.print(f"{name}: {missing}")
    about["load_average_after"] = report.load_average()
    about["steal_percent"] = steal.percent()
    report.show(console, rows, about)
    console.print(f"Written to {report.write(options.results, rows, about, raw)}")


if __name__ == "__main__":
    sys.exit(main())
