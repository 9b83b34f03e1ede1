"""The answer: what the runs say, in at most five lines; the same wherever results are shown.

For several tables it has the comparisons declared for their profile (`harness.registry.paper`). For
one table it is a sentence: the primary claim, then how the rows of its main column compare with
their baselines. A difference is better or worse if its 95% interval, which is not adjusted for the
number of comparisons, excludes zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.registry.paper import Comparison, the_paper
from harness.registry.schema import Column
from harness.report import view
from harness.report.claims import Tally, tallies
from harness.report.model import Count, Estimate, Part, Scale, Study, Verdict
from harness.report.results import Results
from harness.report.reward_study import agreements
from harness.report.view import between, plain, signed
from harness.statistics import Scores, mean_interval, weighted_sum
from harness.words import counted, counted_range


class Compared(Part):
    """Rows against a row: their mean minus its, paired by seed and prompt."""

    over: str
    """The right row in plain words."""
    left: tuple[str, ...]
    """Rows, as `table/row`."""
    right: str
    seeds: tuple[Count, ...]
    estimate: Estimate | None
    """The difference, in the answer's unit; null without one."""
    reason: str | None = None
    inadmissible: bool = False
    """Whether the rows have run, and their difference would say nothing."""

    @property
    def word(self) -> str:
        if self.inadmissible:
            return "inadmissible"
        if self.estimate is None:
            return self.reason or "not run"
        if self.estimate.low > 0:
            return "better"
        return "worse" if self.estimate.high < 0 else "no difference seen"

    @property
    def text(self) -> str:
        own = self.estimate
        if own is None:
            return f"against {self.over}: {self.word}"
        ends = between(own.low, own.high, 1)
        return f"{signed(own.mean, 1)} ({ends}) against {self.over}, {self.word}"


class AnsweredLine(Part):
    says: str
    comparisons: tuple[Compared, ...]

    @property
    def text(self) -> str:
        return f"{self.says}: {'; '.join(it.text for it in self.comparisons)}."


class Answer(Part):
    profile: str
    scale: Scale
    setting: str
    """What was used; of a single table, also why its verdicts do not count."""
    terms: str = ""
    """The unit, seeds, when the comparisons were declared, and what bars some."""
    finding: str | None = None
    """The sentence on the table, if there is only one."""
    answered: tuple[AnsweredLine, ...] = ()
    claims: tuple[Tally, ...]
    """Counts of the verdicts on the claims: first without a mark, then by mark."""

    @property
    def heading(self) -> str:
        return self.finding or self.setting

    @property
    def points(self) -> list[str]:
        """What stands below the heading and the terms, a line each."""
        return [self.setting] if self.finding else [line.text for line in self.answered]

    @property
    def lines(self) -> list[str]:
        """The answer as text, with a hyphen before each comparison."""
        points = self.points if self.finding else [f"- {it}" for it in self.points]
        return [*filter(None, (self.heading, self.terms)), *points]


def answer_to(tables: Sequence[Results], verdicts: Sequence[Verdict]) -> Answer:
    (first, *others), profile = tables, tables[0].profile
    declared = the_paper().answers.get(profile.name)
    answered: list[AnsweredLine] = []
    if others and declared is not None:
        known = {it.table.id: it for it in tables}
        for line in declared.lines:
            found = tuple(_compared(it, declared.column, known) for it in line.comparisons)
            answered.append(AnsweredLine(says=line.says, comparisons=found))
    said = [declared.setting if declared else f"Scale {view.SCALES[profile.scale]}"]
    terms: list[str] = []
    if answered and declared is not None:
        compared = [it for line in answered for it in line.comparisons]
        seeds = {it.seeds for it in compared if it.seeds}
        terms.append(view.capital(declared.measure))
        if seeds:
            number = counted_range({len(it) for it in seeds}, "seed")
            terms[-1] += f", 95% intervals over seeds and prompts, {number}"
        terms.append(f"The comparisons were declared {declared.declared}")
        reasons = [(it.reason or "").split("; ") for it in compared if it.inadmissible]
        if barred := dict.fromkeys(why.replace("`", "") for own in reasons for why in own):
            which = "Some are" if seeds else "All that have run are"
            terms.append(f"{which} inadmissible, because {'; '.join(barred)}")
    elif others:
        terms.append(f"What answers the paper's question on `{profile.name}` is not declared")
    elif why := view.inadmissible_reason(first.report):
        said.append(view.capital(why))
    return Answer(
        profile=profile.name,
        scale=profile.scale,
        setting=plain(f"{'. '.join(said)}."),
        terms=plain(f"{'. '.join(terms)}.") if terms else "",
        finding=None if others else finding(first, verdicts),
        answered=tuple(answered),
        claims=tuple(tallies(verdicts)) if verdicts else (),
    )


def _compared(asked: Comparison, column: str, results: Mapping[str, Results]) -> Compared:
    found = {name: results[name] for name in asked.tables if name in results}
    left_out = [it for it in asked.tables if it not in found]
    missing = [name for name, it in found.items() if not it.report.has_numbers]
    why, barred, estimate, seeds = None, None, None, tuple[int, ...]()
    if left_out:
        why = f"not in this report ({', '.join(left_out)})"
    elif missing:
        why = f"not run ({', '.join(missing)})"
    else:
        seeds, difference = _difference(asked, column, found)
        if len(seeds) < 2:
            why = f"{'one seed' if seeds else 'no seed in common'}, no comparison"
        elif difference is None:
            why = "not run"
        elif (barred := _inadmissible(asked, found.values())) is None:
            estimate = Estimate.of(mean_interval(difference))
    return Compared(
        over=asked.over,
        left=asked.left,
        right=asked.right,
        seeds=seeds if estimate else (),
        estimate=estimate,
        reason=why or barred,
        inadmissible=barred is not None,
    )


def _inadmissible(asked: Comparison, tables: Iterable[Results]) -> str | None:
    reasons = [it.report.inadmissible for it in tables]
    reasons += [it.report.inadmissible_choosing for it in tables if asked.about_choosing]
    return "; ".join(dict.fromkeys(filter(None, reasons))) or None


def _difference(
    asked: Comparison, name: str, results: Mapping[str, Results]
) -> tuple[tuple[int, ...], Scores | None]:
    """Return the seeds that all rows have, and the mean of the left rows minus the right one.

    It is None if a row has not run.
    """
    rows: list[tuple[float, Results, str, str]] = []
    for ref in (*asked.left, asked.right):
        table, _, row = ref.partition("/")
        found, weight = results[table], -1.0 if ref == asked.right else 1.0 / len(asked.left)
        rows.append((weight, found, row, found.table.column(name).id))
    every = ({*found.report.cell(row, column).seeds} for _, found, row, column in rows)
    seeds = tuple(sorted(set.intersection(*every)))
    terms: list[tuple[float, Scores]] = []
    for weight, found, row, column in rows:
        own = found.scores.at(seeds).of(row, column)
        if own is None:
            return seeds, None
        terms.append((weight, own))
    return seeds, weighted_sum(terms)


def finding(results: Results, verdicts: Sequence[Verdict]) -> str:
    """Summarize a table's results in one sentence, or one sentence per league."""
    table, report = results.table, results.report
    if report.leagues:
        parts = (f"{view.capital(table.league(it.id).title)}: {it.said}" for it in report.leagues)
        return plain(" ".join(parts))
    primary, column = next((it for it in verdicts if it.primary), None), table.main_column
    claim = "" if primary is None else f"“{primary.statement.strip().removesuffix('.')}”"
    if not report.has_numbers:
        if primary is None:
            return f"{plain(results.lacking or 'Nothing in this table has run here')}."
        why = f"because {primary.reason}: {claim} is its primary claim"
        return plain(f"No result yet, {why}") + "."
    said = _rows(results, column)
    if primary is None:
        said = said if report.study is None else f"{_study(report.study)}; {said}"
    elif primary.word == "not_run":
        said = f"{said}; {primary.text}: {claim}, because {primary.reason}"
    elif primary.estimate is None:
        said = f"{primary.text}, because {primary.reason}: {claim}; {said}"
    else:
        word = primary.text
        if primary.word == "inadmissible":
            word = f"{word}, because {primary.reason}"
        margins = _margins(primary, primary.estimate, view.our_decimals(results, column))
        said = f"{word}: {claim} ({margins}); {said}"
    return f"{plain(view.capital(said))}."


def _margins(primary: Verdict, own: Estimate, decimals: int) -> str:
    ends = between(own.low, own.high, decimals)
    parts = [f"ours {signed(own.mean, decimals)}, 95% from {ends}"]
    if primary.p is None:
        parts.append(primary.reason or "no p-value")
    else:
        parts.append("p < 0.001" if primary.p < 0.001 else f"p = {primary.p:.2g}")
    if primary.sought is not None:
        parts.append(f"the paper's size would be {primary.sought:.{decimals}f} here")
    paper = primary.paper_margin
    if paper is not None:
        steps = paper if isinstance(paper, str) else ", ".join(paper)
        noise = ", within its own noise" if primary.paper_within_noise else ""
        parts.append(f"the paper's {steps}{noise}")
    return "; ".join(parts)


def _study(study: Study) -> str:
    if not study.whole:
        return "not every reward model has its numbers"
    return f"Over {len(study.models)} reward models, {', '.join(agreements(study))}"


def _rows(results: Results, column: Column) -> str:
    cells = [cell for cell in results.report.of_column(column.id) if cell.baseline_row]
    done = [cell for cell in cells if cell.gain is not None]
    called = results.profile.called
    name = called(column)
    alone = sum(called(other) == name for other in results.table.columns) == 1
    # What the paper heads the column with would name its benchmark again.
    own = alone and name != column.benchmark
    where = f"in {name}," if own else f"in {name}, {column.printed},"
    if not cells:
        return f"{where} no row has a baseline"
    if not done:
        return f"{where} none of the {len(cells)} rows with a baseline has a gain yet"
    if len(results.report.seeds) == 1:
        rows = counted(len(done), "row")
        return f"{where} one seed is too few to compare {rows} with the baseline"
    sign = -1 if column.direction == "lower" else 1
    words = ("above", "below") if column.direction == "none" else ("better than", "worse than")
    said = _sides([sign * view.side(cell) for cell in done], *words)
    lacking = sum(cell.mean is None for cell in results.report.of_column(column.id))
    unpaired = sum(cell.mean is not None for cell in cells) - len(done)
    for number, what in ((unpaired, "numbers but no baseline"), (lacking, "no numbers")):
        if number:
            said.append(f"{counted(number, 'row')} {'have' if number > 1 else 'has'} {what}")
    first = f"{', '.join(said[:-1])} and " if len(said) > 1 else ""
    how = "by unadjusted intervals, " if len(done) > 1 else ""
    return f"{where} {how}{first}{said[-1]}"


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
