"""A table as it stands on the page: texts, marks and where each number comes from.

Every text of a number is the one of `harness.report.view`, so that the page says what the terminal
says; what is added is the drawing of gains and a card behind each number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.registry.schema import Column
from harness.report import view
from harness.report.model import Cell, Report, ReportRow
from harness.report.page.contents import Section
from harness.report.page.drawing import Axis, Drawing, axis_of, draw
from harness.report.page.finding import finding
from harness.report.page.provenance import SeedTrace, Traces
from harness.report.view_details import cost_block, detail_blocks
from harness.report.view_study import study_blocks

DRAWN_AFTER = 2
"""Figures of a row that stand before its drawing: ours and our gain."""


@dataclass(frozen=True)
class Card:
    """Where a number comes from.

    Attributes:
        name: Its address on the page.
        title: Row and column.
        facts: Names and texts.
        run: The run whose entry in the appendix has more; None where nothing has run.
        runs: The judged runs behind the number.
    """

    name: str
    title: str
    facts: tuple[tuple[str, str], ...]
    run: str | None
    runs: tuple[str, ...]

    @property
    def hint(self) -> str:
        """The card in short, for a pointer that rests on the number."""
        return "; ".join(f"{name}: {text}" for name, text in self.facts)


@dataclass(frozen=True)
class Line:
    """One row of a column's block.

    Attributes:
        row: Id of the row.
        label: Its label.
        reading: The path the label stands for, where the paper's is ambiguous.
        figures: Its texts, as `view` has them.
        has_number: Whether the first of them is a number.
        drawing: Its gains, None where there is nothing to draw.
        card: Where its numbers come from.
    """

    row: str
    label: str
    reading: str | None
    figures: tuple[str, ...]
    has_number: bool
    drawing: Drawing | None
    card: Card


@dataclass(frozen=True)
class ColumnBlock:
    """One column of a table.

    Attributes:
        column: Id of the column.
        title: Benchmark and heading.
        notes: What is measured.
        head: Headings; the drawing has none of its own.
        axis: The axis of its drawings, None without any.
        lines: Its rows.
    """

    column: str
    title: str
    notes: tuple[str, ...]
    head: tuple[str, ...]
    axis: Axis | None
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class TableLayout:
    """One table as it stands on the page; the names are those of `Section` and of `view`."""

    id: str
    name: str
    title: str
    question: str
    place: str
    finding: str
    word: str
    verdict: str
    progress: str
    source: str
    has_numbers: bool
    blocks: tuple[ColumnBlock, ...]
    facts: list[tuple[str, str]]
    study: list[view.Block]
    summary: view.Block
    details: list[view.Block]
    cost: view.Block | None
    absent: list[tuple[str, str]]
    section: Section


def table_layout(section: Section, traces: Traces) -> TableLayout:
    """Return a table laid out.

    Args:
        section: The table.
        traces: The runs behind the numbers.
    """
    report = section.report
    table = report.table
    primary = next((verdict for verdict in section.verdicts if verdict.primary), None)
    return TableLayout(
        id=table.id,
        name="Ours" if table.source is None else f"Table {table.source.table}",
        title=view.plain(table.title),
        question=view.plain(table.question),
        place=table.place,
        finding=finding(report, section.verdicts),
        word="not_run" if primary is None else primary.verdict,
        verdict="no primary claim" if primary is None else primary.text,
        progress=_progress(report),
        source=_source(report),
        has_numbers=section.has_numbers,
        blocks=tuple(_blocks(report, traces)),
        facts=[fact for fact in view.facts(report) if fact[0] not in ("Question", "Source")],
        study=study_blocks(report),
        summary=view.summary_block(report),
        details=detail_blocks(report) if section.has_numbers else [],
        cost=None if report.costs is None else cost_block(report, report.costs),
        absent=_absent(section.absent),
        section=section,
    )


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


def _blocks(report: Report, traces: Traces) -> list[ColumnBlock]:
    laid_out = []
    for column, block in zip(report.table.columns, view.column_blocks(report), strict=True):
        cells = [report.cell(row, column) for row in report.rows]
        axis = axis_of(cells)
        decimals = view.our_decimals(report, column)
        lines = [
            Line(
                row=row.id,
                label=name,
                reading=report.table.row(row.id).reading,
                figures=tuple(figures),
                has_number=cell.mean is not None,
                drawing=_drawing(cell, axis, decimals),
                card=_card(report, row, column, cell, traces),
            )
            for row, cell, (name, *figures) in zip(report.rows, cells, block.rows, strict=True)
        ]
        laid_out.append(
            ColumnBlock(column.id, block.title, block.notes, block.head, axis, tuple(lines))
        )
    return laid_out


def _drawing(cell: Cell, axis: Axis | None, decimals: int) -> Drawing | None:
    if axis is None or (cell.gain is None and cell.paper_gain is None):
        return None
    return draw(cell, axis, decimals)


def _card(report: Report, row: ReportRow, column: Column, cell: Cell, traces: Traces) -> Card:
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
    printed = cell.paper_printed or view.NO_PAPER
    if not report.table.is_ours:
        facts.append(("paper", f"{printed}; {report.table.place}"))
    facts += [("run", run_id), ("seeds", ", ".join(map(str, cell.seeds)) or view.APPLIES_NOT)]
    if trace is not None:
        facts += [
            ("judge", cell.judge or view.APPLIES_NOT),
            ("reward model", ", ".join(cell.reward_models) or "none"),
            ("creator", ", ".join(cell.creators) or "none"),
            ("policy", ", ".join(trace.policies)),
            ("commit", ", ".join(_commits(trace.seeds.values(), cell.seeds)) or "none yet"),
        ]
    return Card(
        f"c-{cell.table}-{cell.row}-{cell.column}",
        f"{view.row_names(report)[row.id]} · {column.benchmark}, {column.printed}",
        tuple((name, view.plain(text)) for name, text in facts),
        run_id if trace is not None else None,
        cell.runs,
    )


def _exact(mean: float, low: float | None, high: float | None) -> str:
    assert low is not None
    assert high is not None
    return f"{mean:.6g}, 95% from {low:.6g} to {high:.6g}"


def _commits(seeds: Iterable[SeedTrace], wanted: Sequence[int]) -> list[str]:
    of = (commit for seed in seeds if seed.seed in wanted for commit in seed.commits)
    return list(dict.fromkeys(of))
