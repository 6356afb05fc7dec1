"""The result: a table on the terminal, drill/results/drill.json, and docs/reliability.md."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from drill.drills import DRILLS, Drill
from drill.load import Outcome

COLUMNS = (
    "drill", "runs", "requests", "failed", "acknowledged writes", "of them lost", "wrong record",
    "longest without a write (s)", "wanted", "met", "commit",
)  # fmt: skip
BEGIN, END = "<!-- Written by bin/drill. -->\n", "<!-- End of what bin/drill writes. -->\n"


@dataclass(frozen=True)
class Result:
    """All runs of one drill. `mended` is False if a run left something that `check_tenants` or the cluster does not mend.

    `skipped`: why there is no run. `commit`: of the runs. `seconds`: how long the fault lasted, 0 for the drill's own length.
    """

    name: str
    outcomes: list[Outcome]
    mended: bool = True
    skipped: str = ""
    commit: str = ""
    seconds: float = 0.0

    @property
    def drill(self) -> Drill:
        return next(drill for drill in DRILLS if drill.name == self.name)

    @property
    def failed(self) -> Counter[str]:
        return sum((Counter(outcome.failed) for outcome in self.outcomes), Counter[str]())

    @property
    def met(self) -> bool:
        if not self.outcomes:
            return bool(self.skipped)
        nothing_lost = not any(outcome.lost or outcome.wrong for outcome in self.outcomes)
        in_time = max(outcome.longest_gap for outcome in self.outcomes) <= self.drill.gap
        return (
            self.mended
            and nothing_lost
            and in_time
            and self._others_served
            and self._responses_in_time
            and (self.drill.failures or not self.failed)
        )

    @property
    def _others_served(self) -> bool:
        most = self.drill.others
        return most is None or all(one.others_gap <= most and not one.others_failed for one in self.outcomes)

    @property
    def _responses_in_time(self) -> bool:
        return self.drill.slowest is None or all(one.slowest <= self.drill.slowest for one in self.outcomes)

    def cells(self) -> tuple[str, ...]:
        what = self.drill.described(self.seconds)
        if not self.outcomes:
            return (what, f"skipped: {self.skipped}", *["–"] * 6, self.drill.wanted, "–", "–")
        failed = ", ".join(f"{number} × {status}" for status, number in sorted(self.failed.items())) or "0"
        if self.drill.others is not None:
            failed += f"; of other tenants {sum(outcome.others_failed for outcome in self.outcomes)}"
        gaps = " / ".join(f"{outcome.longest_gap:.1f}" for outcome in self.outcomes)
        if self.drill.others is not None:
            gaps += f"; other tenants {max(outcome.others_gap for outcome in self.outcomes):.1f}"
        if self.drill.slowest is not None:
            gaps += f"; slowest response {max(outcome.slowest for outcome in self.outcomes):.1f}"
        if limit := max(outcome.connection_limit for outcome in self.outcomes):
            gaps += f"; most connections {max(outcome.connections for outcome in self.outcomes)} of {limit}"
        totals = (
            sum(outcome.requests for outcome in self.outcomes),
            failed,
            sum(outcome.acknowledged for outcome in self.outcomes),
            sum(outcome.lost for outcome in self.outcomes),
            sum(outcome.wrong for outcome in self.outcomes),
        )
        return (
            what,
            str(len(self.outcomes)),
            *(str(total) for total in totals),
            gaps,
            self.drill.wanted,
            "yes" if self.met else "NO",
            self.commit or "–",
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
    known = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    kept = known.get("results", {})
    # A drill that is skipped here keeps what another machine has measured.
    commit = about.get("commit", "")
    kept |= {
        result.name: asdict(replace(result, commit=result.commit or commit))
        for result in results
        if result.outcomes or result.name not in kept
    }
    about = about or known.get("about", {})
    document = {"about": about, "results": kept}
    stored.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    merged = [
        Result(**{**kept[drill.name], "outcomes": [Outcome(**each) for each in kept[drill.name]["outcomes"]]})
        for drill in DRILLS
        if drill.name in kept
    ]
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(result.cells())} |" for result in merged]
    measured = (
        "Last run: {began}, commit {commit}, {cores} cores, PostgreSQL {postgresql}.".format(**about) if about else ""
    )
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(lines)
    page.write_text(f"{before}{BEGIN}\n{table}\n\n{measured}\n\n{END}{after}", encoding="utf-8")
