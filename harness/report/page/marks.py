"""Positions of what the page draws in SVG: gains next to the paper's, and the paper at a glance.

Gains are marks on an axis that a column's rows share: ours a dot with its 95% interval, the paper's
a diamond. Positions are percentages, so drawings stretch with the page and marks keep their shape.

In the paper at a glance, a field is one table column: the margin of the claim that the column
decides (the primary claim if there are several) in units of the paper's margin, with the verdict. A
column without a claim shows the gain of the row with the paper's largest gain in absolute value.
Each field also counts the column's gains that have the paper's sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.registry.claims import Place, Qualitative, places
from harness.registry.schema import Column
from harness.report import view
from harness.report.model import Cell, Verdict
from harness.report.results import Results
from harness.report.view import signed

MARGIN = 0.06
"""Padding at either end of an axis, as a fraction of its span."""

MOST_TICKS = 5
"""Maximum number of intervals between an axis's ticks."""

FAMILIES = ("Arena-Hard", "AlpacaEval", "MT-Bench")
"""Name prefixes of the benchmarks with their own column in the paper at a glance."""

SPAN = (-1.0, 2.0)
"""Ends of that picture's axis, in units of the paper's gain; values beyond are clipped."""


class Axis(NamedTuple):
    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def at(self, value: float) -> float:
        """Return a value's position, in percent of the width."""
        return round(100.0 * (value - self.low) / (self.high - self.low), 2)

    def label(self, tick: float) -> str:
        return "0" if tick == 0.0 else signed(tick, self.decimals)


class Drawing(NamedTuple):
    """One row's gains on an axis; positions in percent, or None if there is no number."""

    zero: float
    ours: float | None
    low: float | None
    high: float | None
    clear: bool
    paper: float | None
    words: str


def axis_of(cells: Sequence[Cell]) -> Axis | None:
    ends = [end for c in cells for end in (c.gain, c.gain_ci_low, c.gain_ci_high, c.paper_gain)]
    known = [end for end in ends if end is not None]
    if not known:
        return None
    low, high = min(0.0, *known), max(0.0, *known)
    if low == high:
        low, high = low - 1.0, high + 1.0
    free = MARGIN * (high - low)
    low, high = low - free, high + free
    # The smallest step of 1, 2 or 5 times a power of ten that gives at most MOST_TICKS intervals.
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    step = next(k * power for k in (1, 2, 5, 10) if high - low <= k * power * MOST_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = tuple(round(k * step, 10) + 0.0 for k in range(first, last + 1))
    return Axis(low, high, ticks, max(0, -math.floor(math.log10(step))))


def draw(cell: Cell, axis: Axis, decimals: int) -> Drawing:
    low, high, gain = cell.gain_ci_low, cell.gain_ci_high, cell.gain
    at: tuple[float | None, float | None, float | None] = (None, None, None)
    words = "no gain of ours"
    if gain is not None and low is not None and high is not None:
        at = (axis.at(gain), axis.at(low), axis.at(high))
        ours, *ends = (signed(value, decimals) for value in (gain, low, high))
        words = f"our gain {ours}, 95% from {' to '.join(ends)}"
    printed = cell.paper_gain
    words += "; the paper prints none" if printed is None else f"; the paper's {printed:+g}"
    paper = None if printed is None else axis.at(printed)
    return Drawing(axis.at(0.0), *at, view.side(cell) != 0, paper, words)


class Field(NamedTuple):
    """One table column in the paper at a glance: a claim, or a gain if there is no claim.

    Positions are in percent of the axis, clipped at its ends; None if there is no number. `cut`
    gives, for each of the three, the end it lies beyond: -1, 1, or 0 for neither. `word` is the
    verdict's, or None if the column decides no claim.
    """

    cell: str
    column: str
    says: str
    times: str
    interval: str
    at: float | None
    low: float | None
    high: float | None
    cut: tuple[int, int, int]
    signs: str
    word: str | None
    verdict: str


def overview(tables: Sequence[Results]) -> dict[str, Any] | None:
    heads = (*FAMILIES, "other")
    lines: list[dict[str, Any]] = []
    for found in tables:
        table = found.table
        if table.source is None:
            continue
        chosen: dict[str, Column] = {}
        for column in (table.main_column, *table.columns):
            family = (name for name in FAMILIES if column.benchmark.startswith(name))
            chosen.setdefault(next(family, "other"), column)
        fields = [_field(found, chosen[head]) if head in chosen else None for head in heads]
        name = f"Table {table.source.table}"
        lines.append({"id": table.id, "name": name, "title": table.title, "fields": fields})
    if not lines:
        return None
    beyond = any(field is not None and any(field.cut) for it in lines for field in it["fields"])
    return {
        "heads": heads, "lines": lines, "zero": _at(0.0), "one": _at(1.0), "beyond": beyond,
    }  # fmt: skip


def _field(results: Results, column: Column) -> Field:
    report, (verdict, place) = results.report, _claimed(results, column)
    cells = report.of_column(column.id)
    if verdict is None:
        cell = max(cells, key=lambda cell: abs(cell.paper_gain or 0.0))
        place = cell.row, cell.column
        ours = (cell.gain, cell.gain_ci_low, cell.gain_ci_high)
        says, paper = f"row {cell.row}", cell.paper_gain
    else:
        own = verdict.estimate
        ours = (None, None, None) if own is None else (own.mean, own.low, own.high)
        says, paper = verdict.statement, _number(verdict.paper_margin)
    times, interval, at, cut = _in_units(*ours, paper)
    if ours[0] is None:
        times = "no gain" if any(cell.mean is not None for cell in cells) else "no number"
    summary = next((s for s in report.summary if s.column == column.id), None)
    known = summary is not None and summary.signs
    signs = f"{summary.signs_agree}/{summary.signs} signs" if summary and known else ""
    word, said = (None, "") if verdict is None else (verdict.word, verdict.text)
    cell_id, name = f"{report.table}/{'/'.join(place)}", f"{column.benchmark}, {column.printed}"
    return Field(cell_id, name, says, times, interval, *at, cut, signs, word, said)


Marks = tuple[float | None, float | None, float | None]


def _in_units(
    ours: float | None, low: float | None, high: float | None, paper: float | None
) -> tuple[str, str, Marks, tuple[int, int, int]]:
    """Return a gain in units of the paper's: its text, interval, mark positions and clipping."""
    if ours is None or low is None or high is None or not paper:
        return "paper: 0" if paper == 0.0 else "paper: none", "", (None, None, None), (0, 0, 0)
    middle, (least, most) = ours / paper, sorted((low / paper, high / paper))
    shown = (middle, least, most)
    cut = tuple((value > SPAN[1]) - (value < SPAN[0]) for value in shown)
    times, *ends = (f"{round(value, 1) + 0.0:.1f}" for value in shown)
    at = (_at(middle), _at(least), _at(most))
    return f"{times}x", " to ".join(ends), at, (cut[0], cut[1], cut[2])


def _number(printed: str | tuple[str, ...] | None) -> float | None:
    try:
        return float(printed) if isinstance(printed, str) else None
    except ValueError:
        return None


def _claimed(results: Results, column: Column) -> tuple[Verdict | None, Place]:
    """Return the verdict on the claim that a column decides, and the claim's first cell.

    Prefers the primary claim, then the first whose margin in the paper is a nonzero number.
    """
    deciding = {
        claim.id: places(claim.test)[0]
        for claim in results.table.claims
        if not isinstance(claim.test, Qualitative)
        if any(place[1] == column.id for place in places(claim.test))
    }
    found = sorted(
        (verdict for verdict in results.verdicts if verdict.claim in deciding),
        key=lambda verdict: (not verdict.primary, not _number(verdict.paper_margin)),
    )
    return (found[0], deciding[found[0].claim]) if found else (None, ("", ""))


def _at(value: float) -> float:
    low, high = SPAN
    return round(100.0 * (min(max(value, low), high) - low) / (high - low), 1)
