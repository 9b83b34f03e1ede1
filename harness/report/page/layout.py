"""A table as it stands on the page: texts, marks and where each number comes from.

Every text of a number is the one of `harness.report.view`, so that the page says what the terminal
says; what is added is the drawing of gains and a card behind each number.

Gains are marks on a common axis: ours a dot with its 95% interval, the paper's a diamond. One axis
serves the rows of a column. Positions are percentages of its width, so that a drawing stretches
with the page while its marks keep their shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from harness.registry.schema import Column
from harness.report import view
from harness.report.findings import finding
from harness.report.model import Cell, Report, ReportRow
from harness.report.page.contents import Section, Traces
from harness.report.reward_study import study_blocks
from harness.report.view import signed
from harness.report.view_details import cost_block, detail_blocks

SHOWN = ("Question", "Source", "Inadmissible")
"""The facts that stand at the head of a table."""

SENSITIVITY = ("Inadmissible", "Power", "Controls")
"""The facts that stand before a table's numbers: what these can show."""

MARGIN = 0.06
"""Share of the span that is left free at either end."""

MOST_TICKS = 5
"""Parts that an axis has at most."""


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


class Line(NamedTuple):
    """One row of a column's block, its texts as `view` has them.

    `reading` is the path that the label stands for, where the paper's is ambiguous.
    """

    row: str
    label: str
    reading: str | None
    figures: tuple[str, ...]
    has_number: bool
    drawing: Drawing | None


class Place(NamedTuple):
    """One cell of the compact matrix: ours with its interval, and below it what the paper prints.

    The side is that of a gain whose interval is clear of zero: 1 above, -1 below, else 0. The value
    is what a reader sorts by.
    """

    name: str
    text: str
    paper: str
    side: int
    value: float | None
    card: Mapping[str, Any]


def table_layout(section: Section, traces: Traces) -> dict[str, Any]:
    """Return a table laid out: its texts and blocks by the names that the template has for them."""
    report, table = section.report, section.report.table
    primary = next((verdict for verdict in section.verdicts if verdict.primary), None)
    facts = view.facts(report)
    return {
        "id": table.id,
        "name": "Ours" if table.source is None else f"Table {table.source.table}",
        "title": view.plain(table.title),
        "question": view.plain(table.question),
        "place": table.place,
        "finding": finding(report, section.verdicts),
        "word": "not_run" if primary is None else primary.verdict,
        "verdict": "no primary claim" if primary is None else primary.text,
        "progress": _progress(report),
        "source": _source(report),
        "has_numbers": section.has_numbers,
        "matrix": _matrix(report, traces),
        "blocks": list(_blocks(report)),
        "facts": [fact for fact in facts if fact[0] not in SHOWN],
        "sensitivity": [fact for fact in facts if fact[0] in SENSITIVITY],
        "study": [
            *view.worth_blocks(report), *view.control_blocks(report), *study_blocks(report)
        ],
        "summary": view.summary_block(report),
        "details": detail_blocks(report) if section.has_numbers else [],
        "cost": None if report.costs is None else cost_block(report, report.costs),
        "absent": _absent(section.absent),
        "section": section,
    }  # fmt: skip


def _progress(report: Report) -> str:
    """Return how much of a table has numbers."""
    rows = {cell.row for cell in report.cells if cell.mean is not None}
    if not rows:
        return f"0 of {len(report.rows)} rows"
    several = "s" if len(report.seeds) > 1 else ""
    return f"{len(rows)} of {len(report.rows)} rows, seed{several} {view.seeds_text(report.seeds)}"


def _source(report: Report) -> str:
    """Return in short where the numbers beside the cells come from."""
    seeds, commits = view.seeds_text(report.seeds), ", ".join(report.origin.commits) or "none"
    return f"{report.table.id}: seeds {seeds} of its runs in the appendix, commit {commits}"


def _absent(absent: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return why rows have no numbers, each reason once with the rows it is true of."""
    by_reason: dict[str, list[str]] = {}
    for row, reason in absent.items():
        text = reason.removeprefix(f"`{row}` ")
        by_reason.setdefault(view.plain(text), []).append(row)
    return [(", ".join(rows), reason) for reason, rows in by_reason.items()]


def _matrix(report: Report, traces: Traces) -> dict[str, Any]:
    """Return a table as the paper prints it: its rows by its columns, ours above the paper's."""
    columns, names = report.table.columns, view.row_names(report)
    decimals = {column.id: view.our_decimals(report, column) for column in columns}
    lines = [
        {
            "row": row.id,
            "label": names[row.id],
            "places": [_place(report, row, c, decimals[c.id], traces) for c in columns],
        }
        for row in report.rows
    ]
    groups: list[tuple[str, int]] = []
    for column in columns:
        name = view.plain(column.benchmark)
        last, count = groups[-1] if groups else ("", 0)
        groups[-1:] = [(name, count + 1)] if last == name else [*groups[-1:], (name, 1)]
    heads = [view.plain(c.printed + (f" · {c.panel}" if c.panel else "")) for c in columns]
    return {"groups": groups, "heads": heads, "lines": lines}


def _place(report: Report, row: ReportRow, column: Column, decimals: int, traces: Traces) -> Place:
    cell = report.cell(row, column)
    low, high = cell.gain_ci_low, cell.gain_ci_high
    side = 0 if low is None or high is None else (low > 0) - (high < 0)
    return Place(
        name=f"{cell.table}/{cell.row}/{cell.column}",
        text=view.ours(cell, decimals),
        paper="" if report.table.is_ours else cell.paper_printed or view.NO_PAPER,
        side=side,
        value=cell.mean,
        card=_card(report, row, column, cell, traces),
    )


def _blocks(report: Report) -> Iterator[dict[str, Any]]:
    """Yield a table's columns with the axes of their drawings, None where there is no gain."""
    for column, block in zip(report.table.columns, view.column_blocks(report), strict=True):
        cells = [report.cell(row, column) for row in report.rows]
        axis, decimals = axis_of(cells), view.our_decimals(report, column)
        lines = []
        for row, cell, (name, *figures) in zip(report.rows, cells, block.rows, strict=True):
            drawing = None
            if axis is not None and (cell.gain is not None or cell.paper_gain is not None):
                drawing = draw(cell, axis, decimals)
            reading, has_number = report.table.row(row.id).reading, cell.mean is not None
            lines.append(Line(row.id, name, reading, tuple(figures), has_number, drawing))
        yield {**vars(block), "column": column.id, "axis": axis, "lines": lines}


def _card(
    report: Report, row: ReportRow, column: Column, cell: Cell, traces: Traces
) -> Mapping[str, Any]:
    """Return where the numbers of a cell come from."""
    run_id = row.runs[column.id]
    trace = traces.get(run_id)
    facts = [("state", view.state(cell))]
    if cell.mean is not None:
        facts.append(("mean", _exact(cell.mean, cell.ci_low, cell.ci_high)))
    if cell.gain is not None:
        gain = _exact(cell.gain, cell.gain_ci_low, cell.gain_ci_high)
        facts.append((f"gain over {cell.baseline_row}", gain))
    if cell.reason is not None:
        facts.append(("failed" if cell.state == "failed" else "why not", view.plain(cell.reason)))
    if not report.table.is_ours:
        facts.append(("paper", f"{cell.paper_printed or view.NO_PAPER}; {report.table.place}"))
    facts += [("run", run_id), ("seeds", ", ".join(map(str, cell.seeds)) or view.APPLIES_NOT)]
    if trace is not None:
        of = (c for seed in trace.seeds.values() if seed.seed in cell.seeds for c in seed.commits)
        facts += [
            ("judge", cell.judge or view.APPLIES_NOT),
            ("reward model", ", ".join(cell.reward_models) or "none"),
            ("creator", ", ".join(cell.creators) or "none"),
            ("policy", ", ".join(trace.policies)),
            ("commit", ", ".join(dict.fromkeys(of)) or "none yet"),
        ]
    facts = [(name, view.plain(text)) for name, text in facts]
    return {
        "name": f"c-{cell.table}-{cell.row}-{cell.column}",
        "title": f"{view.row_names(report)[row.id]} · {column.benchmark}, {column.printed}",
        "facts": facts,
        "run": None if trace is None else run_id,
        "runs": [run.removeprefix(f"{run_id}/{cell.profile}/") for run in cell.runs],
    }


def _exact(mean: float, low: float | None, high: float | None) -> str:
    assert low is not None
    assert high is not None
    return f"{mean:.6g}, 95% from {low:.6g} to {high:.6g}"
