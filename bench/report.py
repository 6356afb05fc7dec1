"""The result: a table on the terminal, and JSON and Markdown in bench/results/.

`bench.json` and `bench.md` hold the newest result of each measurement: a run replaces the rows and samples
of what it has measured and keeps the others. `bench/published.py` makes the tables of the documentation of them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from rich.console import Console
from rich.table import Table

from bench.home import ROOT, Home
from bench.run import Row

COLUMNS = ("#", "what", "ours", "against", "ratio", "wanted", "met", "beside")
# What a run says of the machine as a whole.
ABOUT = ("cores", "processor", "python", "postgresql", "web_workers", "hashes_at_once")
LOADS = ("load_average_before", "load_average_after")
RUN_COLUMNS = ("measured", "command", "commit", "threads", "load average", "steal %", "seconds")
# Above this share of its time that the host gave to other machines, a run proves nothing.
MOST_STEAL_PERCENT = 5.0
# When and how a measurement was made: the columns of a run in bench.json.
Conditions = dict[str, Any]


def machine(home: Home) -> dict[str, Any]:
    """Describe the machine; the load average before the run shows whether other programs were running."""
    with psycopg.connect(home.environment["DATABASE_URL"]) as raw:
        row = raw.execute("SHOW server_version").fetchone()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "postgresql": row[0] if row else "",
        "load_average_before": load_average(),
        "web_workers": home.environment["WEB_WORKERS"],
        "web_threads": settings.WEB_THREADS,
        "hashes_at_once": settings.HASHES_AT_ONCE,
    }


class Steal:
    """The share of the processors' time that the host gave to other machines since this was created."""

    def __init__(self) -> None:
        self._before = self._now()

    def percent(self) -> float:
        """Return the percentage of all time that passed (`steal` of proc_stat(5))."""
        stolen, everything = (after - before for after, before in zip(self._now(), self._before, strict=True))
        return round(100 * stolen / everything, 1) if everything else 0.0

    @staticmethod
    def _now() -> tuple[int, int]:
        # user, nice, system, idle, iowait, irq, softirq, steal; guest time is within user and nice.
        times = [int(text) for text in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        return times[7], sum(times)


@contextmanager
def conditions(runs: dict[str, Conditions], name: str, command: str, about: Mapping[str, Any]) -> Iterator[None]:
    """Add to `runs` under which conditions the block measured `name`."""
    found: Conditions = {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "commit": about["commit"],
        "web_threads": about["web_threads"],
        "load_average_before": load_average(),
    }
    began, steal = time.monotonic(), Steal()
    yield
    found |= {
        "load_average_after": load_average(),
        "steal_percent": steal.percent(),
        "seconds": round(time.monotonic() - began, 1),
    }
    runs[name] = found


def load_average() -> list[float]:
    """Return the load average of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def show(console: Console, rows: list[Row], about: dict[str, Any]) -> None:
    """Print the table."""
    table = Table(title=f"{about['commit']} · load {about['load_average_before']} → {about['load_average_after']}")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*_cells(row), style="" if row.met else "red")
    console.print(table)
    if about["steal_percent"] > MOST_STEAL_PERCENT:
        console.print(f"[red]The host took {about['steal_percent']} % of the time: repeat the run.")


def show_times(console: Console, runs: Mapping[str, Conditions]) -> None:
    """Print how long each measurement took."""
    for name, run in sorted(runs.items(), key=lambda one: one[1]["seconds"], reverse=True):
        console.print(f"{run['seconds']:7.1f} s  {name}")
    console.print(f"{sum(run['seconds'] for run in runs.values()):7.1f} s  together")


def write(
    folder: Path, rows: list[Row], about: dict[str, Any], runs: Mapping[str, Conditions], raw: dict[str, Any]
) -> Path:
    """Merge the run into `bench.json` and `bench.md`; return the path of the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "bench.json"
    earlier = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {"rows": [], "samples": {}}
    measured = {row.measurement for row in rows}
    kept = [row for row in earlier["rows"] if row["measurement"] not in measured]
    merged = kept + [{**asdict(row), "run": runs[row.measurement]} for row in rows]
    document = {"about": about, "rows": merged, "samples": earlier["samples"] | raw}
    stored.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = ["# Newest result of each measurement of bin/bench", "", "Machine of the last run:", ""]
    lines += [f"- {name}: {about[name]}" for name in ABOUT if name in about]
    lines += ["", f"| {' | '.join((*COLUMNS, *RUN_COLUMNS))} |", "|" + "---|" * len((*COLUMNS, *RUN_COLUMNS))]
    for row in merged:
        cells = _cells(Row(**{name: value for name, value in row.items() if name != "run"}))
        lines.append(f"| {' | '.join((*cells, *_run_cells(row['run'])))} |")
    path = folder / "bench.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _run_cells(run: Conditions) -> tuple[str, ...]:
    loads = " → ".join(str(run[name]) for name in LOADS)
    plain = (run["began"], run.get("command", ""), run["commit"], run["web_threads"], loads)
    return (*map(str, plain), steal_of(run), str(run.get("seconds", "")))


def steal_of(run: Conditions) -> str:
    """Return the steal time of a run, and whether it asks for another run."""
    steal = run.get("steal_percent")
    warning = " (repeat)" if steal is not None and steal > MOST_STEAL_PERCENT else ""
    return "" if steal is None else f"{steal}{warning}"


def _cells(row: Row) -> tuple[str, ...]:
    met = "yes" if row.met else "NO"
    met = "" if row.wanted == "no target" else met
    return (row.target, row.what, row.ours, row.against, f"{row.ratio:.2f}", row.wanted, met, row.beside)
