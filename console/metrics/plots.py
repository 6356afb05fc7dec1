"""Plots for chart.js, each with an equivalent table for screen readers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import ClassVar, Final

from django.utils.formats import date_format
from django.utils.timezone import now
from django.utils.translation import gettext as _

from console.frame.access import Context

DAYS: Final = 30
_COLOURS: Final = ("var(--color-primary-500)", "var(--color-red-500)")
# Readable in the light and the dark theme.
_INK: Final = "#7c8595"
_OPTIONS: Final = json.dumps(
    {
        "animation": False,
        "responsive": True,
        "maintainAspectRatio": False,
        "maxBarThickness": 14,
        "interaction": {"mode": "index", "intersect": False},
        "plugins": {
            "legend": {
                "display": True,
                "align": "end",
                "labels": {"boxHeight": 8, "boxWidth": 8, "color": _INK, "usePointStyle": True, "pointStyle": "circle"},
            }
        },
        "scales": {
            "x": {
                "stacked": True,
                "ticks": {"color": _INK, "maxTicksLimit": 8, "maxRotation": 0},
                "grid": {"display": False},
            },
            "y": {"stacked": True, "beginAtZero": True, "ticks": {"color": _INK, "precision": 0, "maxTicksLimit": 5}},
        },
    }
)


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars per day. `summary` is the text alternative of the picture."""

    title: str
    summary: str
    headers: Sequence[str]
    rows: Sequence[tuple[str, int, int]]
    options: ClassVar[str] = _OPTIONS

    @property
    def is_empty(self) -> bool:
        return not any(any(row[1:]) for row in self.rows)

    @property
    def data(self) -> str:
        return json.dumps(
            {
                "labels": [row[0] for row in self.rows],
                "datasets": [
                    {"label": header, "data": [row[column] for row in self.rows], "backgroundColor": colour}
                    for column, (header, colour) in enumerate(zip(self.headers[1:], _COLOURS, strict=True), start=1)
                ],
            }
        )

    @property
    def table(self) -> Context:
        """Return the same for unfold's table, newest day first, without empty days."""
        return {"headers": self.headers, "rows": [row for row in reversed(self.rows) if any(row[1:])]}


def first_day() -> date:
    """Return the first day of the plots."""
    return now().date() - timedelta(days=DAYS - 1)


def by_day(title: str, counts_by_day: dict[date, tuple[int, int]], *, good: str, bad: str) -> Plot:
    """Return a plot of two counts per day. Days that are missing in `counts_by_day` count as zero."""
    rows = []
    for day in (first_day() + timedelta(days=number) for number in range(DAYS)):
        counts = counts_by_day.get(day, (0, 0))
        rows.append((date_format(day, "M j"), counts[0], counts[1]))
    summary = _("In the last %(days)s days: %(good)s %(first)s, %(bad)s %(second)s.") % {
        "good": good.lower(),
        "first": f"{sum(row[1] for row in rows):,}",
        "bad": bad.lower(),
        "second": f"{sum(row[2] for row in rows):,}",
        "days": DAYS,
    }
    return Plot(title, summary, (_("Day"), good, bad), rows)
