"""The forest plot of a table: our mean and interval of each row beside the paper's value."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.registry.schema import Row, Table
from harness.report.plots import canvas, plain_frame

if TYPE_CHECKING:
    from harness.report.model import Cell

OURS = "#1f6f8b"
PAPER = "#c8553d"


def forest_plots(table: Table, rows: Sequence[Row], cells: Sequence[Cell]) -> dict[str, bytes]:
    """Return a picture of each column that has numbers, as SVG by file name."""
    found = {}
    for column in table.columns:
        held = {cell.row: cell for cell in cells if cell.column == column.id}
        shown = [row for row in rows if row.id in held and held[row.id].mean is not None]
        if shown:
            title = f"{column.benchmark} · {column.printed}"
            found[f"forest/{column.id}.svg"] = _forest(title, shown, held)
    return found


def _forest(title: str, rows: Sequence[Row], cells: Mapping[str, Cell]) -> bytes:
    target = io.BytesIO()
    height = 1.1 + 0.3 * len(rows)
    with canvas(target, f"forest {title}", (7.0, height), heading=title) as (_, panels):
        axes = panels[0, 0]
        plain_frame(axes, grid="x")
        places = list(range(len(rows), 0, -1))
        for place, row in zip(places, rows, strict=True):
            cell = cells[row.id]
            assert cell.mean is not None
            if cell.ci_low is not None and cell.ci_high is not None:
                axes.hlines(place, cell.ci_low, cell.ci_high, color=OURS, linewidth=2)
        means = [cells[row.id].mean for row in rows]
        axes.plot(means, places, "o", color=OURS, markersize=5, label="ours, 95% interval")
        printed = [(cells[row.id].paper, place) for place, row in zip(places, rows, strict=True)]
        known = [(value, place) for value, place in printed if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "D", color=PAPER, markersize=4.5, label="paper")
        axes.set_yticks(places, [row.id for row in rows])
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8
        )
    return target.getvalue()
