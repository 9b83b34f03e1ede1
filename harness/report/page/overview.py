"""The whole paper in one picture: tables by benchmarks, ours against what the paper prints.

A field stands for one column of a table. It shows one gain: that of the left row of the table's
primary claim, or of the row with the largest printed gain where that row has none in the column. It
is in units of the paper's own gain, so that 1 is the paper's and everything above 0 has its sign.
Beside it stand how many gains of the column have the paper's sign, and the verdict on the claim
that the column decides, the primary one first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.registry.claims import Qualitative, places
from harness.registry.schema import Column
from harness.report.findings import claimed_column
from harness.report.model import Cell, Report, Summary, Verdict
from harness.report.page.contents import Section

FAMILIES = ("Arena-Hard", "AlpacaEval", "MT-Bench")
"""Beginnings of the names of the benchmarks that have a column of their own."""

OTHER = "other"

SPAN = (-1.0, 2.0)
"""Ends of the axis, in units of the paper's gain; what lies beyond is cut off at the end."""


class Field(NamedTuple):
    """One column of a table in the picture.

    Positions are in percent of the axis, cut at its ends; None where there is no gain. A gain that
    lies beyond an end is on its side, -1 or 1. The word is that of the verdict, None where no claim
    is decided by the column.
    """

    cell: str
    column: str
    row: str
    times: str
    interval: str
    at: float | None
    low: float | None
    high: float | None
    beyond: int
    signs: str
    word: str | None
    verdict: str


def overview(sections: Sequence[Section]) -> dict[str, Any] | None:
    """Return the picture's heads and lines, None where no table is the paper's."""
    heads = (*FAMILIES, OTHER)
    lines: list[dict[str, Any]] = []
    for section in sections:
        table = section.report.table
        if table.is_ours:
            continue
        chosen: dict[str, Column] = {}
        for column in (claimed_column(section.report, section.verdicts), *table.columns):
            chosen.setdefault(_family(column), column)
        fields = [
            _field(section.report, chosen[head], section.verdicts) if head in chosen else None
            for head in heads
        ]
        name = "" if table.source is None else f"Table {table.source.table}"
        lines.append({"id": table.id, "name": name, "title": table.title, "fields": fields})
    if not lines:
        return None
    beyond = any(field is not None and field.beyond for it in lines for field in it["fields"])
    return {
        "heads": heads, "lines": lines, "zero": _at(0.0), "one": _at(1.0), "beyond": beyond,
    }  # fmt: skip


def _family(column: Column) -> str:
    return next((name for name in FAMILIES if column.benchmark.startswith(name)), OTHER)


def _field(report: Report, column: Column, verdicts: Sequence[Verdict]) -> Field:
    cell = _shown(report, column, verdicts)
    verdict = _verdict(report, column, verdicts)
    summary = next((s for s in report.summary if s.column == column.id), None)
    times, interval, beyond = "no gain", "", 0
    low = at = high = None
    if cell.gain is not None and cell.paper_gain:
        ends = sorted(
            (end or 0.0) / cell.paper_gain for end in (cell.gain_ci_low, cell.gain_ci_high)
        )
        of_paper = cell.gain / cell.paper_gain
        times, interval = f"{of_paper:.1f}x", f"{ends[0]:.1f} to {ends[1]:.1f}"
        low, at, high = _at(ends[0]), _at(of_paper), _at(ends[1])
        beyond = (of_paper > SPAN[1]) - (of_paper < SPAN[0])
    elif cell.mean is None:
        times = "no number"
    elif cell.gain is not None:
        times = "paper: 0" if cell.paper_gain == 0.0 else "paper: none"
    return Field(
        cell=f"{cell.table}/{cell.row}/{cell.column}",
        column=f"{column.benchmark}, {column.printed}",
        row=cell.row,
        times=times,
        interval=interval,
        at=at,
        low=low,
        high=high,
        beyond=beyond,
        signs=_signs(summary),
        word=None if verdict is None else verdict.verdict,
        verdict="" if verdict is None else verdict.text,
    )


def _shown(report: Report, column: Column, verdicts: Sequence[Verdict]) -> Cell:
    """Return the cell whose gain stands for a column."""
    cells = [cell for cell in report.cells if cell.column == column.id]
    primary = next((c for c in report.table.claims if c.primary), None)
    if primary is not None and not isinstance(primary.test, Qualitative):
        left = places(primary.test)[0][0]
        found = next((cell for cell in cells if cell.row == left and cell.paper_gain), None)
        if found is not None:
            return found
    return max(cells, key=lambda cell: abs(cell.paper_gain or 0.0))


def _verdict(report: Report, column: Column, verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict on the claim that a column decides, the primary one first."""
    declared = {claim.id: claim for claim in report.table.claims}
    found = []
    for verdict in verdicts:
        claim = declared.get(verdict.id)
        if claim is None or isinstance(claim.test, Qualitative):
            continue
        if any(place[1] == column.id for place in places(claim.test)):
            found.append(verdict)
    return next((v for v in found if v.primary), found[0] if found else None)


def _signs(summary: Summary | None) -> str:
    if summary is None or not summary.signs:
        return ""
    return f"{summary.signs_agree}/{summary.signs} signs"


def _at(value: float) -> float:
    low, high = SPAN
    return round(100.0 * (min(max(value, low), high) - low) / (high - low), 1)
