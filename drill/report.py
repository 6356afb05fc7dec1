"""The result: a table on the terminal, drill/results/drill.json, and docs/reliability.md."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from drill.faults import DRILLS, Drill
from drill.load import Outcome

COLUMNS = (
    "drill", "runs", "requests", "failed", "acknowledged writes", "of them lost", "wrong record",
    "longest without a write (s)", "wanted", "met",
)  # fmt: skip
BEGIN, END = "<!-- Written by bin/drill. -->\n", "<!-- End of what bin/drill writes. -->\n"


@dataclass(frozen=True)
class Result:
    """All runs of one drill. `mended` is False if a run left something that `check_tenants` or the cluster does not mend."""

    name: str
    outcomes: list[Outcome]
    mended: bool = True

    @property
    def drill(self) -> Drill:
        return next(drill for drill in DRILLS if drill.name == self.name)

    @property
    def failed(self) -> Counter[str]:
        return sum((Counter(outcome.failed) for outcome in self.outcomes), Counter[str]())

    @property
    def met(self) -> bool:
        nothing_lost = not any(outcome.lost or outcome.wrong for outcome in self.outcomes)
        in_time = max(outcome.longest_gap for outcome in self.outcomes) <= self.drill.gap
        return self.mended and nothing_lost and in_time and (self.drill.failures or not self.failed)

    def cells(self) -> tuple[str, ...]:
        failed = ", ".join(f"{number} × {status}" for status, number in sorted(self.failed.items())) or "0"
        gaps = " / ".join(f"{outcome.longest_gap:.1f}" for outcome in self.outcomes)
        wanted = f"≤ {self.drill.gap:g} s" + ("" if self.drill.failures else ", none failed")
        totals = (
            sum(outcome.requests for outcome in self.outcomes),
            failed,
            sum(outcome.acknowledged for outcome in self.outcomes),
            sum(outcome.lost for outcome in self.outcomes),
            sum(outcome.wrong for outcome in self.outcomes),
        )
        return (
            self.drill.what,
            str(len(self.outcomes)),
            *(str(total) for total in totals),
            gaps,
            wanted,
            "yes" if self.met else "NO",
        )


def show(console: Console, results: list[Result]) -> None:
    """Print the table."""
    table = Table()
    table.add_column(COLUMNS[0], no_wrap=True)
    for column in COLUMNS[1:]:
        table.add_column(column)
    for result in results:
        table.add_row(result.name, *result.cells()[1:], style="" if result.met else "red")
    console.print(table)


def write(folder: Path, page: Path, results: list[Result], about: dict[str, Any]) -> None:
    """Merge the results into `drill.json`, and put the table of all that it has into the page."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "drill.json"
    kept = json.loads(stored.read_text(encoding="utf-8"))["results"] if stored.exists() else {}
    kept |= {result.name: asdict(result) for result in results}
    document = {"about": about, "results": kept}
    stored.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    merged = [
        Result(drill.name, [Outcome(**each) for each in kept[drill.name]["outcomes"]], kept[drill.name]["mended"])
        for drill in DRILLS
        if drill.name in kept
    ]
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(result.cells())} |" for result in merged]
    measured = "Last run: {began}, commit {commit}, {cores} cores, PostgreSQL {postgresql}.".format(**about)
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(lines)
    page.write_text(f"{before}{BEGIN}\n{table}\n\n{measured}\n\n{END}{after}", encoding="utf-8")
