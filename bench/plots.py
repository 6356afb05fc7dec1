"""Curves as SVG files, for the documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pygal
from pygal.style import CleanStyle

# Told apart on white without seeing red and green differently.
COLORS = ("#0b5394", "#b45309", "#4b5563")


def draw(
    file: Path,
    *,
    title: str,
    unit: str,
    over: str,
    at: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    logarithmic: bool = False,
) -> None:
    """Write a plot of `lines` (name: a value for each of `at`) with labelled points. The axis of values begins at 0.

    With `logarithmic`, the other axis grows by factors. The background is white, so that a dark page shows it as well.
    """
    style = CleanStyle(
        background="white",
        plot_background="white",
        font_family="sans-serif",
        title_font_size=18,
        label_font_size=13,
        major_label_font_size=13,
        colors=COLORS,
    )
    places = [math.log10(value) if logarithmic else value for value in at]
    highest = max(max(values) for values in lines.values())
    chart = pygal.XY(
        style=style,
        width=760,
        height=380,
        title=f"{title} ({unit})",
        x_title=over,
        x_labels=[{"value": place, "label": f"{value:,.10g}"} for place, value in zip(places, at, strict=True)],
        range=(0, highest * 1.1 or 1),
        legend_at_bottom=True,
        legend_at_bottom_columns=1,
        margin_right=30,
        dots_size=4,
        stroke_style={"width": 2},
        print_values=False,
        js=[],
        include_x_axis=True,
    )
    # Scripts do not run in an image, and the default one is on another host.
    chart.add_xml_filter(_without_scripts)
    for name, values in lines.items():
        chart.add(name, list(zip(places, values, strict=True)))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(chart.render(is_unicode=False))


def _without_scripts(root: Any) -> Any:
    for parent in list(root.iter()):
        for child in [child for child in parent if str(child.tag).endswith("script")]:
            parent.remove(child)
    return root
