"""Gains as marks on a common axis: ours a dot with its 95% interval, the paper's a diamond.

One axis serves the rows of a column. Positions are percentages of its width, so that a drawing
stretches with the page while its marks keep their shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.model import Cell
from harness.report.view import signed

MARGIN = 0.06
"""Share of the span that is left free at either end."""

MOST_TICKS = 5
"""Parts that an axis has at most."""


@dataclass(frozen=True)
class Axis:
    """A range of gains.

    Attributes:
        low: Its lower end, in the column's unit.
        high: Its upper end.
        ticks: Round numbers within it, zero among them.
        decimals: Decimals the ticks need.
    """

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


@dataclass(frozen=True)
class Drawing:
    """One row's gains on an axis; positions in percent, None for what there is not.

    Attributes:
        zero: No gain.
        ours: Our gain.
        low: Lower end of its interval.
        high: Upper end.
        clear: Whether the interval lies on one side of zero.
        paper: The paper's gain.
        words: The same in words.
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
    low, high = min(0.0, *known), max(0.0, *known)
    if low == high:
        low, high = -1.0, 1.0
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
    """Return the marks of a cell.

    Args:
        cell: The cell.
        axis: The axis of its column.
        decimals: Decimals of our numbers, for the words.
    """
    low, high, gain = cell.gain_ci_low, cell.gain_ci_high, cell.gain
    known = gain is not None and low is not None and high is not None
    ours = (gain, low, high) if known else (None, None, None)
    places = [None if value is None else axis.at(value) for value in ours]
    clear = low is not None and high is not None and (low > 0 or high < 0)
    paper = None if cell.paper_gain is None else axis.at(cell.paper_gain)
    return Drawing(
        axis.at(0.0), places[0], places[1], places[2], clear, paper, _words(cell, decimals)
    )


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
