"""A table as it stands on the page: texts, marks and where each number comes from; and the claims.

Every text of a number is the one of `harness.report.view`, so that the page says what the terminal
says; what is added is the drawing of gains and a card behind each number.

Gains are marks on a common axis: ours a dot with its 95% interval, the paper's a diamond. One axis
serves the rows of a column. Positions are percentages of its width, so that a drawing stretches
with the page while its marks keep their shape.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.registry.claims import Claim, Compare, Qualitative, places
from harness.registry.schema import Column
from harness.report import claims, view
from harness.report.model import Cell, Report, ReportRow, Verdict
from harness.report.page.contents import Contents, Section
from harness.report.page.finding import finding
from harness.report.page.provenance import SeedTrace, Traces
from harness.report.reward_study import study_blocks
from harness.report.view import signed
from harness.report.view_details import cost_block, detail_blocks

SHOWN = ("Question", "Source", "Inadmissible")
"""The facts that stand at the head of a table."""

DRAWN_AFTER = 2
"""Figures of a row that stand before its drawing: ours and our gain."""

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


SENSITIVITY = ("Inadmissible", "Power", "Controls")
"""The facts that stand before a table's numbers: what these can show."""


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
    sensitivity: list[tuple[str, str]]
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
        facts=[fact for fact in view.facts(report) if fact[0] not in SHOWN],
        sensitivity=[fact for fact in view.facts(report) if fact[0] in SENSITIVITY],
        study=[
            *view.worth_blocks(report),
            *view.control_blocks(report),
            *study_blocks(report),
        ],
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


@dataclass(frozen=True)
class ClaimLine:
    """One claim of the ledger.

    Attributes:
        id: Id of the claim.
        word: Its verdict, as a name.
        line: Its texts.
        reason: Why there is no decision, or what the verdict rests on; None without any.
        basis: The cells and seeds that its numbers come from; None where there are no numbers.
    """

    id: str
    word: str
    line: claims.Line
    reason: str | None
    basis: str | None


@dataclass(frozen=True)
class ClaimGroup:
    """The claims of one table or figure.

    Attributes:
        place: Its id.
        title: Its title.
        linked: Whether the page has a section of that id.
        claims: The claims, in the order they are declared.
    """

    place: str
    title: str
    linked: bool
    claims: tuple[ClaimLine, ...]


def claim_groups(contents: Contents) -> list[ClaimGroup]:
    """Return the claims on the page by the table or figure they belong to."""
    groups = []
    for section in contents.sections:
        table = section.report.table
        declared = {claim.id: claim for claim in table.claims}
        lines = tuple(_claim(v, declared, section.report) for v in section.verdicts)
        title = table.heading
        groups.append(ClaimGroup(table.id, view.plain(title), True, lines))
    for place in dict.fromkeys(verdict.table for verdict in contents.figure_verdicts):
        own = [verdict for verdict in contents.figure_verdicts if verdict.table == place]
        lines = tuple(_claim(verdict, {}, None) for verdict in own)
        title = place.replace("figure", "Figure ").capitalize()
        groups.append(ClaimGroup(place, title, False, lines))
    return [group for group in groups if group.claims]


def margins(declared: Iterable[Claim]) -> str:
    """Return in a sentence how far apart rows may be and count as alike; empty if none may.

    The paper says of rows that they are level, or that one is not behind, and names no margin: each
    is an assumption of ours, declared beside the claim.
    """
    found: Counter[str] = Counter()
    for claim in declared:
        margin = claim.test.margin if isinstance(claim.test, Compare) else None
        if margin is not None:
            share = f"{margin.share:.0%} of a declared gain" if margin.share else ""
            found[share or f"{margin.points:g} of the column's unit"] += 1
    if not found:
        return ""
    counted = ", ".join(f"{margin} ({number})" for margin, number in found.most_common())
    return (
        f"{found.total()} claims say that rows are level, or that one is not behind, and the paper "
        f"says not by how much; the margins are ours, declared with the claims: {counted}."
    )


def _claim(verdict: Verdict, declared: Mapping[str, Claim], report: Report | None) -> ClaimLine:
    basis = None
    if verdict.margin is not None and report is not None:
        basis = _basis(declared[verdict.id], report)
    reason = None if verdict.reason is None else view.plain(verdict.reason)
    return ClaimLine(verdict.id, verdict.verdict, claims.line(verdict), reason, basis)


def _basis(claim: Claim, report: Report) -> str:
    """Return the cells that a claim's numbers come from, with their runs and seeds."""
    assert not isinstance(claim.test, Qualitative)
    cells = [
        f"{row} in {column} (run {report.table.row(row).run_id(report.table.column(column))})"
        for row, column in places(claim.test)
    ]
    seeds = ", ".join(map(str, report.seeds))
    return view.plain(f"per-prompt scores of {', '.join(cells)}; seeds {seeds}")
