"""What the page draws by itself: gains beside the paper's, and scores against what they cost.

Gains are marks on a common axis: ours a dot with its 95% interval, the paper's a diamond. One axis
serves the rows of a column. Positions are percentages of its width, so that a drawing stretches
with the page while its marks keep their shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.report import view
from harness.report.build import main_column
from harness.report.model import Cell, Report
from harness.report.view import signed

MARGIN = 0.06
"""Share of the span that is left free at either end."""

MOST_TICKS = 5
"""Parts that an axis has at most."""

FEWEST = 3
"""Online rows that a plot of scores against cost needs."""

SPENT = (("rollouts", "rollouts"), ("tokens", "tokens generated"))
"""What online runs spend, by the name in the report, with its words."""

WIDTH, HEIGHT = 460.0, 270.0
"""Size of a plot of scores against cost, in its own units."""

LEFT, RIGHT, TOP, BOTTOM = 38.0, 112.0, 8.0, 34.0
"""What is left free around it, for the ticks and for the rows' names."""

LINE = 13.0
"""Least distance of two names."""


class Axis(NamedTuple):
    """A range of gains in the column's unit, with round numbers in it, zero among them."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def at(self, value: float) -> float:
        """Return where a value lies, in percent of the width."""
        return round(100.0 * (value - self.low) / (self.high - self.low), 2)

    def label(self, tick: float) -> str:
        """Return a tick's text; zero has no sign."""
        return "0" if tick == 0.0 else signed(tick, self.decimals)


class Drawing(NamedTuple):
    """One row's gains on an axis; positions in percent, None for what there is not.

    The gain is clear where its interval lies on one side of zero.
    """

    zero: float
    ours: float | None
    low: float | None
    high: float | None
    clear: bool
    paper: float | None
    words: str


def axis_of(cells: Sequence[Cell]) -> Axis | None:
    """Return the axis that the gains of some cells fit on, None where there are none."""
    ends = [cell.gain_ci_low for cell in cells] + [cell.gain_ci_high for cell in cells]
    ends += [cell.gain for cell in cells] + [cell.paper_gain for cell in cells]
    known = [end for end in ends if end is not None]
    if not known:
        return None
    return _axis(min(0.0, *known), max(0.0, *known))


def _axis(low: float, high: float) -> Axis:
    """Return the axis from one value to another, with some room at either end."""
    if low == high:
        low, high = low - 1.0, high + 1.0
    free = MARGIN * (high - low)
    low, high = low - free, high + free
    step = _step(high - low)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = tuple(round(k * step, 10) + 0.0 for k in range(first, last + 1))
    return Axis(low, high, ticks, max(0, -math.floor(math.log10(step))))


def _step(span: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that makes few enough parts."""
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    return float(next(k * power for k in (1, 2, 5, 10) if span <= k * power * MOST_TICKS))


def draw(cell: Cell, axis: Axis, decimals: int) -> Drawing:
    """Return the marks of a cell."""
    low, high, gain = cell.gain_ci_low, cell.gain_ci_high, cell.gain
    known = gain is not None and low is not None and high is not None
    ours = (gain, low, high) if known else (None, None, None)
    at = [None if value is None else axis.at(value) for value in ours]
    clear = low is not None and high is not None and (low > 0 or high < 0)
    paper = None if cell.paper_gain is None else axis.at(cell.paper_gain)
    return Drawing(axis.at(0.0), at[0], at[1], at[2], clear, paper, _words(cell, decimals))


def _words(cell: Cell, decimals: int) -> str:
    """Return what a drawing shows, for those who do not see it."""
    if cell.gain is None or cell.gain_ci_low is None or cell.gain_ci_high is None:
        ours = "no gain of ours"
    else:
        low, high = signed(cell.gain_ci_low, decimals), signed(cell.gain_ci_high, decimals)
        ours = f"our gain {signed(cell.gain, decimals)}, 95% from {low} to {high}"
    if cell.paper_gain is None:
        return f"{ours}; the paper prints none"
    return f"{ours}; the paper's {cell.paper_gain:+g}"


class Mark(NamedTuple):
    """One online row in a plot of scores against cost; places are in the plot's units."""

    cell: str
    row: str
    evolves: bool
    x: float
    y: float
    low: float
    high: float
    name_y: float
    words: str


def budget(report: Report) -> dict[str, Any] | None:
    """Return the plots of a table's scores against what its online rows spent.

    The column is that of the primary claim; what a row spent is its `online` entry in the report.
    None where fewer than three rows have both numbers.
    """
    column = main_column(report.table)
    decimals = view.our_decimals(report, column)
    cells = {cell.row: cell for cell in report.cells if cell.column == column.id}
    plots = []
    for name, words in SPENT:
        known = [
            (cells[found.row], float(spent), bool(found.evolved_share))
            for found in report.online
            if found.run == report.run_of(found.row, column.id)
            if (spent := getattr(found, name)) is not None and cells[found.row].mean is not None
        ]
        if len(known) >= FEWEST:
            plots.append(_plot(known, words, decimals))
    if not plots:
        return None
    title = view.plain(f"{column.benchmark}, {column.printed}")
    return {"title": title, "plots": plots, "width": WIDTH, "height": HEIGHT}


def _plot(known: Sequence[tuple[Cell, float, bool]], words: str, decimals: int) -> dict[str, Any]:
    """Return one plot: its ticks and its marks, whose names do not overlap."""
    across = _axis(0.0, max(spent for _, spent, _ in known))
    ends = [end for cell, _, _ in known for end in (cell.ci_low, cell.ci_high) if end is not None]
    up = _axis(min(ends), max(ends))

    def x(value: float) -> float:
        return round(LEFT + across.at(value) / 100.0 * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - up.at(value) / 100.0 * (HEIGHT - TOP - BOTTOM), 1)

    marks: list[Mark] = []
    for cell, spent, evolves in sorted(known, key=lambda it: -(it[0].mean or 0.0)):
        assert cell.mean is not None
        assert cell.ci_low is not None
        assert cell.ci_high is not None
        beside = max(y(cell.mean), *(mark.name_y + LINE for mark in marks), 0.0)
        said = f"{cell.row}: {view.ours(cell, decimals)} with {spent:,.0f} {words}"
        place = f"{cell.table}/{cell.row}/{cell.column}"
        marks.append(
            Mark(place, cell.row, evolves, x(spent), y(cell.mean), y(cell.ci_low), y(cell.ci_high),
                 beside, said)
        )  # fmt: skip
    return {
        "words": words,
        "across": [(x(tick), f"{tick:,.0f}") for tick in across.ticks if tick >= 0.0],
        "up": [(y(tick), f"{tick:.{up.decimals}f}") for tick in up.ticks],
        "marks": marks,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
    }
