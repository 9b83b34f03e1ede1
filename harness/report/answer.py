"""Findings: one sentence for each table, and one answer for the whole report.

The answer comes first in every output: the question, what was observed, and how certain it is. For
one table it is that table's answer. For several it is the paper's, built from the
comparisons declared as its answer (`harness.registry.paper`) that have numbers.

A table's sentence starts with its primary claim, with our margin and the paper's. It then says how
the rows of its main column compare with their baselines: a row gains or loses if the interval of
its gain excludes zero; otherwise it is not significantly different from its baseline.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.registry.paper import Contrast, Paper, the_paper
from harness.registry.schema import Column
from harness.report import view
from harness.report.claims import counts, totals
from harness.report.model import Cell, ClaimVerdict, Report, VerdictWord
from harness.report.parts import Part, Scale, Study
from harness.report.reward_study import CALLED
from harness.report.scores import Numbers, RunScores
from harness.report.view import plain, signed
from harness.words import counted


class Told(Part):
    says: str
    """The left row in plain English."""
    over: str
    """The right row in plain English."""
    table: str
    named: str
    """Display name of the table; another table with both rows has a different interval."""
    left: str
    right: str
    """The row that `left` is compared with."""
    column: str
    seeds: tuple[int, ...]
    gain: float
    """Left minus right, paired by seed and prompt, in the column's unit."""
    low: float
    """Lower end of the gain's 95% interval."""
    high: float

    @property
    def text(self) -> str:
        """The result for the left row: a gain or loss only if the interval excludes zero."""
        where = f"({self.named}, 95%: {signed(self.low, 1)} to {signed(self.high, 1)})"
        if self.low > 0:
            return f"gains {self.gain:.1f} over {self.over} {where}"
        if self.high < 0:
            return f"loses {-self.gain:.1f} to {self.over} {where}"
        return f"is not significantly different from {self.over} {where}"


class ReportAnswer(Part):
    question: str
    table: str
    """The first table that the answer draws on."""
    profile: str
    scale: Scale
    result: str
    confidence: str
    told: tuple[Told, ...] = ()
    """The comparisons behind `result`; empty when a single table was requested."""
    claims: Mapping[VerdictWord, int]
    """Number of claims by verdict."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [
            ("Question", self.question),
            ("Result", self.result),
            ("Confidence", self.confidence),
            ("Scale", view.SCALES[self.scale]),
        ]


def answer_to(reports: Sequence[Report], verdicts: Sequence[ClaimVerdict]) -> ReportAnswer:
    (first, *others), paper = reports, the_paper()
    told: tuple[Told, ...] = ()
    if others:
        question = paper.question
        told = tuple(_told(paper.answers, {report.table_id: report for report in reports}))
        result = _result(told, first.scale, reports)
    else:
        question, result = first.table.question, finding(first, verdicts)
    return ReportAnswer(
        question=plain(question),
        table=told[0].table if told else first.table_id,
        profile=first.profile_id,
        scale=first.scale,
        result=result,
        confidence=_confidence(reports, verdicts, paper),
        told=told,
        claims=counts(verdicts),
    )


def _told(contrasts: Iterable[Contrast], reports: Mapping[str, Report]) -> Iterator[Told]:
    """Yield the comparisons that have numbers and that the controls admit."""
    for asked in contrasts:
        report = reports.get(asked.table)
        if report is None or len(report.seeds) < 2 or not report.has_numbers:
            continue
        if report.inadmissible or (asked.about_choosing and report.inadmissible_choosing):
            continue
        found = _gain(asked, report)
        if found.gain is not None:
            ends = {"low": found.gain_ci_low, "high": found.gain_ci_high, "gain": found.gain}
            where = asked.model_dump(exclude={"about_choosing"}) | {"named": report.table.named}
            yield Told.model_validate({**where, **ends, "seeds": report.seeds})


def _gain(asked: Contrast, report: Report) -> Cell | Numbers:
    """Return the left row minus the right; against its baseline, the gain shown in the table."""
    for cell in report.cells:
        if (cell.row, cell.column, cell.baseline_row) == (asked.left, asked.column, asked.right):
            return cell
    table = report.table
    column = table.column(asked.column)
    left, right = (table.row(name).run_id(column) for name in (asked.left, asked.right))
    return RunScores(report.measured, report.seeds).of_gain(left, right, column.reads)


def _result(told: Sequence[Told], scale: Scale, reports: Sequence[Report]) -> str:
    if not told:
        some = any(report.has_numbers for report in reports)
        return "No comparison that answers this is complete yet." if some else "Nothing has run."
    tables = {report.table_id: report.table for report in reports}
    columns = {tables[it.table].column(it.column).benchmark: None for it in told}
    few, most = (end(len(it.seeds) for it in told) for end in (min, max))
    seeds = counted(most, "seed") if few == most else f"{few} to {most} seeds"
    where = f"at {scale} scale with {seeds}, in points of {' and '.join(columns)}"
    said = [
        f"{subject} {' and '.join(it.text for it in own)}"
        for subject, own in itertools.groupby(told, key=lambda it: it.says)
    ]
    return f"{view.capital(where)}: {'; '.join(said)}."


def _confidence(reports: Sequence[Report], verdicts: Sequence[ClaimVerdict], paper: Paper) -> str:
    said = []
    if verdicts:
        said.append(f"of the paper's {counted(len(verdicts), 'claim')}: {totals(verdicts)}")
    if len(reports) == 1:
        said += [view.power_words(found, reports[0]) for found in reports[0].power]
    if reports[0].scale != "paper":
        said.append(f"{reports[0].scale} scale says nothing about the paper's models")
    return f"{view.capital('; '.join(said))}."


def finding(report: Report, verdicts: Sequence[ClaimVerdict]) -> str:
    """Summarize a table's results in one sentence, or one sentence per league."""
    if report.leagues:
        table = report.table
        parts = (f"{view.capital(table.league(it.id).title)}: {it.said}" for it in report.leagues)
        return plain(" ".join(parts))
    primary, column = primary_of(verdicts), report.table.main_column
    claim = "" if primary is None else f"“{primary.statement.strip().removesuffix('.')}”"
    if not any(cell.mean is not None for cell in report.cells):
        if primary is None:
            return "Nothing in this table has run here."
        why = f"because {primary.reason}: {claim} is its primary claim"
        return plain(f"No result yet, {why}") + "."
    said = _rows(report, column)
    if primary is None:
        said = said if report.study is None else f"{_study(report.study)}; {said}"
    elif primary.margin is None:
        said = f"not decided, because {primary.reason}: {claim}; {said}"
    else:
        word = primary.text
        if primary.verdict == "inadmissible":
            word = f"inadmissible, because {primary.reason}"
        margins = _margins(primary, view.our_decimals(report, column))
        said = f"{word}: {claim} ({margins}); {said}"
    return f"{plain(view.capital(said))}."


def primary_of(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict | None:
    return next((verdict for verdict in verdicts if verdict.primary), None)


def _margins(primary: ClaimVerdict, decimals: int) -> str:
    ours, low, high = (
        signed(number or 0.0, decimals)
        for number in (primary.margin, primary.ci_low, primary.ci_high)
    )
    parts = [f"ours {ours}, 95% from {low} to {high}"]
    if primary.p is None:
        parts.append(primary.reason or "no p-value")
    else:
        parts.append("p < 0.001" if primary.p < 0.001 else f"p = {primary.p:.2g}")
    paper = primary.paper_margin
    if paper is not None:
        steps = paper if isinstance(paper, str) else ", ".join(paper)
        noise = ", within its own noise" if primary.paper_within_noise else ""
        parts.append(f"the paper's {steps}{noise}")
    return "; ".join(parts)


def _study(study: Study) -> str:
    if not study.whole:
        return "not every reward model has its numbers"
    said = [
        f"{CALLED[a.first].format(n=study.n)} and {CALLED[a.second].format(n=study.n)}: "
        f"ρ = {signed(a.found.rho, 2)}, 95% from {signed(a.found.low, 2)} to "
        f"{signed(a.found.high, 2)}"
        for a in study.agreements
        if a.found is not None
    ]
    return f"Over {len(study.models)} reward models, {', '.join(said)}"


def _rows(report: Report, column: Column) -> str:
    cells = [cell for cell in report.cells if cell.column == column.id and cell.baseline_row]
    done = [cell for cell in cells if cell.gain is not None]
    where = f"in {column.benchmark}, {column.printed},"
    if not cells:
        return f"{where} no row has a baseline"
    if not done:
        return f"{where} none of the {len(cells)} rows with a baseline has a gain yet"
    if len(report.seeds) == 1:
        rows = counted(len(done), "row")
        return f"{where} one seed is too few to compare {rows} with the baseline"
    sign = -1 if column.direction == "lower" else 1
    words = ("above", "below") if column.direction == "none" else ("better than", "worse than")
    said = _sides([sign * view.side(cell) for cell in done], *words)
    lacking = len(cells) - len(done)
    if lacking:
        said.append(f"{counted(lacking, 'row')} {'have' if lacking > 1 else 'has'} no numbers")
    first = f"{', '.join(said[:-1])} and " if len(said) > 1 else ""
    return f"{where} {first}{said[-1]}"


def _sides(sides: Sequence[int], better: str, worse: str) -> list[str]:
    """Say how many rows are better (1), worse (-1), or indistinguishable (0) from baseline."""
    if len(sides) == 1:
        how = {1: better, -1: worse, 0: "not significantly different from"}[sides[0]]
        return [f"the one row with a gain is {how} the baseline"]
    ups, downs, same = (sides.count(side) for side in (1, -1, 0))
    verbs = ["are" if count > 1 else "is" for count in (ups, downs)]
    said = [f"{ups or 'none'} of {len(sides)} rows {verbs[0]} {better} the baseline"]
    said += [f"{downs} {verbs[1]} {worse} it"] if downs else []
    said += [f"{same} {'are' if same > 1 else 'is'} not significantly different"] if same else []
    return said
