"""A table as it stands on the page: texts, marks and where each number comes from.

Every text of a number is the one of `harness.report.view`, so that the page says what the terminal
says; what is added is the drawing of gains and a card behind each number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from harness.registry.schema import Column
from harness.report import view
from harness.report.findings import finding
from harness.report.model import Cell, Report, ReportRow
from harness.report.page.contents import Section, Traces
from harness.report.page.drawing import Drawing, axis_of, budget, draw
from harness.report.reward_study import study_blocks
from harness.report.view_details import cost_block, detail_blocks

SHOWN = ("Question", "Source", "Inadmissible")
"""The facts that stand at the head of a table."""

SENSITIVITY = ("Inadmissible", "Power", "Controls")
"""The facts that stand before a table's numbers: what these can show."""


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
        "worth": view.worth_blocks(report),
        "study": [*view.control_blocks(report), *study_blocks(report)],
        "summary": view.summary_block(report, intervals=True),
        "budget": budget(report),
        "details": detail_blocks(report) if section.has_numbers else [],
        "cost": None if report.costs is None else cost_block(report, report.costs),
        "absent": _absent(section.absent),
        "section": section,
    }


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
    alone = [view.plain(f"{c.benchmark} {head}") for c, head in zip(columns, heads, strict=True)]
    return {"groups": groups, "heads": heads, "alone": alone, "lines": lines}


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
        ticks = f"x-{report.table.id}-{column.id}"
        yield {**vars(block), "column": column.id, "axis": axis, "ticks": ticks, "lines": lines}


def _card(
    report: Report, row: ReportRow, column: Column, cell: Cell, traces: Traces
) -> Mapping[str, Any]:
    """Return where the numbers of a cell come from."""
    run_id = row.runs[column.id]
    trace = traces.get(run_id)
    facts = [("state", view.state(cell))] if cell.mean is None else []
    if cell.mean is not None:
        facts.append(("mean", _exact(cell.mean, cell.ci_low, cell.ci_high)))
    if cell.gain is not None:
        gain = _exact(cell.gain, cell.gain_ci_low, cell.gain_ci_high)
        facts.append((f"gain over {cell.baseline_row}", gain))
    if cell.reason is not None:
        facts.append(("failed" if cell.state == "failed" else "why not", view.plain(cell.reason)))
    if not report.table.is_ours:
        facts.append(("paper", cell.paper_printed or view.NO_PAPER))
    facts += [("run", run_id), ("seeds", ", ".join(map(str, cell.seeds)) or view.APPLIES_NOT)]
    if trace is not None:
        of = (c for seed in trace.seeds.values() if seed.seed in cell.seeds for c in seed.commits)
        facts += [
            ("judge", cell.judge or view.APPLIES_NOT),
            ("reward model", ", ".join(cell.reward_models) or "none"),
            ("creator", ", ".join(cell.creators) or "none"),
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
