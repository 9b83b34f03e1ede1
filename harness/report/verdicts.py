"""Verdicts on the paper's claims about a table, given its runs.

Claims are judged from the same per-prompt scores as the cells, with the same statistics
(`harness.statistics`): prompts crossed with seeds and rows paired by both, or, if prompts
themselves are scored, prompts nested in seeds and rows paired by seed. The verdict is

    supported     every statement of the claim is shown
    contradicted  a statement is refuted
    inconclusive  neither, although there was 80% power for the paper's margin in our units
    underpowered  neither, and there was less power than that; or the margin has no unit here; or
                  there is only one seed
    inadmissible  it is about prompts, and the controls for detecting differences between prompts,
                  or between ways to choose them, have not passed here (`harness.report.controls`)
    not_run       a score it needs is missing
    not_testable  no score decides it; or everything compared is at one end of its scale, which
                  would hide any difference; or a margin is the same for every prompt and seed, so
                  there is no variance to test against; or two compared rows are the same policy

The paper's points are never compared with ours. The paper's margin is expressed as a share of a
gain that the paper prints, and the same share of our gain must be detectable:

* The gain is that of the claim's upper row over its baseline: for a comparison, the row said to be
  above; for a trend, the row at its upper end; for a best row, that row. When two gains are
  compared, it is the one said to be larger.
* If the claim is about that gain itself, or its upper row is a baseline, using it would be
  circular: the power would only restate the p-value (Hoenig and Heisey, 2001, The American
  Statistician 55(1)). The unit is then the largest gain that the paper prints over that baseline in
  the same column, among rows that the claim does not compare.
* A margin that a claim declares, in points or as a share of our gain, is already in our units.
* If the paper prints no such gain, or one that exceeds zero by no more than its rounding, a share
  of it is meaningless; if our gain is not above zero, no share of it can be detected. Both cases
  are underpowered, with the reason.

A claim that must hold because of how the profile's world is built is judged like any other and
noted as one that could not have failed.

A table's primary claim is tested at 5%, or, in a run with several looks, at the level of its look
(`harness.statistics.sequential`); its other claims are Holm-corrected as one family. The family is
every declared testable claim, whether its rows have run or not, so running fewer rows makes nothing
easier to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.registry.claims import (
    BestOf,
    Claim,
    Compare,
    CompareGains,
    Measurable,
    Place,
    Qualitative,
    Trend,
    difference,
    places,
)
from harness.registry.schema import Table
from harness.report.controls import Controls, inadmissible_claims
from harness.report.model import Cell, ClaimVerdict, Report, VerdictWord
from harness.report.parts import Scale
from harness.report.scores import ALPHA, POWER, TableScores
from harness.statistics import (
    Scores,
    conjunction,
    holm,
    mean_interval,
    weighted_sum,
)

ALL_ALIKE = "the rows compared all have one and the same score"
"""Reason when every compared score is the same number."""

NO_CHANCE = "the margin is the same for every prompt and seed, so that chance was not measured"
"""Reason when the margin has no variance."""

AT_AN_END = 0.01
"""Share of a scale that counts as its end; rows that are all there cannot be told apart."""

_BOUNDS = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class Evidence:
    """The data that a table's claims are judged by.

    Attributes:
        cells: Its cells, at least one; all have the seeds of the scores.
        lacking: Why rows have no cells, by row.
        by_construction: Why columns must agree with the paper, by column.
        inadmissible: Why verdicts on claims are inadmissible, by claim.
        level: Level of a primary claim, and of all other claims as a family.
    """

    table: Table
    cells: Sequence[Cell]
    scores: TableScores
    lacking: Mapping[str, str] = field(default_factory=dict)
    by_construction: Mapping[str, str | None] = field(default_factory=dict)
    inadmissible: Mapping[str, str] = field(default_factory=dict)
    level: float = ALPHA

    @classmethod
    def of(
        cls, report: Report, scores: TableScores, controls: Controls | None, level: float = ALPHA
    ) -> Evidence:
        certain = {column.id: column.by_construction for column in report.columns}
        barred = inadmissible_claims(report.table, controls)
        return cls(report.table, report.cells, scores, report.absent, certain, barred, level)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.scores.seeds

    @cached_property
    def by_place(self) -> Mapping[Place, Cell]:
        return {(cell.row, cell.column): cell for cell in self.cells}

    def missing(self, place: Place) -> str | None:
        row, column = place
        cell = self.by_place.get(place)
        if cell is None:
            return self.lacking.get(row, f"`{row}` was not requested")
        where = f"`{row}` in `{column}`"
        if cell.state == "not_available" and not cell.reason:
            return f"the profile has no benchmark that yields `{column}`"
        why = f": {cell.reason}" if cell.reason else ""
        said = {
            "failed": f"{where} failed{why}",
            "partial": f"{where} has {len(cell.runs)} of {len(cell.seeds)} seeds",
            "not_available": f"{where} is not available{why}",
            "not_run": f"{where} has not run",
        }
        return said.get(cell.state)

    def score(self, place: Place) -> Scores:
        """Return the scores behind a cell.

        Raises:
            KeyError: The cell has no numbers.
        """
        found = self.scores.of(*place)
        if found is None:
            raise KeyError(place)
        return found

    def sum(self, terms: Iterable[tuple[float, Place]]) -> Scores:
        return weighted_sum([(weight, self.score(place)) for weight, place in terms])

    def policy(self, place: Place) -> object:
        """Return a key that two cells share exactly if they are the same policy, judged alike."""
        judged = tuple(run.partition("@")[2] for run in self.by_place[place].runs)
        return judged or self.scores.run(*place)


def judge(evidence: Evidence) -> list[ClaimVerdict]:
    """Return the verdict on each claim of a table, in declared order.

    Raises:
        HarnessError: The scores that a claim compares have different prompts.
    """
    return [verdict for verdict, _ in judge_with_tests(evidence)]


def judge_with_tests(evidence: Evidence) -> list[tuple[ClaimVerdict, Tested | None]]:
    """Return each verdict with its test, or None if nothing was tested."""
    claims = evidence.table.claims
    family = [c for c in claims if not c.primary and not isinstance(c.test, Qualitative)]
    of_family = evidence.level / max(len(family), 1)
    drafts = {
        claim.id: _draft(claim, evidence, evidence.level if claim.primary else of_family)
        for claim in claims
    }
    p_values = [drafts[claim.id][0].p for claim in family]
    corrected = holm([1.0 if p is None else p for p in p_values])
    adjusted = dict(zip((claim.id for claim in family), corrected, strict=True))
    return [
        (_decided(verdict, tested, adjusted.get(name), evidence), tested)
        for name, (verdict, tested) in drafts.items()
    ]


def judge_without(table: Table, scale: Scale, reason: str) -> list[ClaimVerdict]:
    return [
        _untestable(claim, claim.test, table.id, scale)
        if isinstance(claim.test, Qualitative)
        else bare(claim, table.id, scale, "not_run", reason)
        for claim in table.claims
    ]


def _untestable(claim: Claim, test: Qualitative, table: str, scale: Scale) -> ClaimVerdict:
    reason = test.reason or "the claims that measure it belong to other tables"
    return bare(claim, table, scale, "not_testable", reason)


def bare(
    claim: Claim, table: str, scale: Scale, verdict: VerdictWord, reason: str | None, **ours: Any
) -> ClaimVerdict:
    """Return a verdict with the paper's numbers, and only the given numbers of ours."""
    return ClaimVerdict(
        id=claim.id,
        table=table,
        statement=claim.statement,
        verdict=verdict,
        scale=scale,
        primary=claim.primary,
        paper_margin=claim.paper_margin,
        paper_within_noise=claim.within_noise,
        reason=reason,
        **ours,
    )


@dataclass(frozen=True)
class Tested:
    """The test of a claim.

    Attributes:
        statements: The scores whose means were tested.
        sought: The margin to detect, or None if there is none.
        why: The reason for `sought` or its absence; None if the claim has no margin.
        level: Level of the test: 5% or that of the look, divided by the family size if not primary.
        power: Power required of each statement.
        favoured: Whether the data lean toward the claim rather than against it.
    """

    statements: tuple[Scores, ...]
    sought: float | None
    why: str | None
    level: float
    power: float
    favoured: bool


def _draft(claim: Claim, evidence: Evidence, alpha: float) -> tuple[ClaimVerdict, Tested | None]:
    """Return a verdict before correction for multiple tests, and its test."""
    table, scale, test = evidence.table.id, evidence.cells[0].scale, claim.test
    if isinstance(test, Qualitative):
        return _untestable(claim, test, table, scale), None
    missing = next(filter(None, map(evidence.missing, places(test))), None)
    if missing is not None:
        return bare(claim, table, scale, "not_run", missing), None
    shown = [evidence.sum(part.terms) for part in test.shown]
    alike = _alike(test, evidence, shown)
    if alike is not None:
        return bare(claim, table, scale, "not_testable", alike), None
    known = evidence.by_construction.get(test.column)
    if len(evidence.seeds) == 1:
        ours, why = mean_interval(shown[0]), evidence.inadmissible.get(claim.id)
        word: VerdictWord = "underpowered" if why is None else "inadmissible"
        reason = "; ".join(filter(None, (why, "one seed: how much seeds differ is unknown")))
        numbers = {"margin": ours.mean, "ci_low": ours.low, "ci_high": ours.high}
        return bare(claim, table, scale, word, reason, **numbers, by_construction=known), None
    margin, within = _margin(test, evidence), _is_within(test)
    tested = tuple(_statements(test, shown, margin))
    statements = [mean_interval(statement) for statement in tested]
    result = conjunction(statements)
    at = result.weakest if len(shown) > 1 else 0
    ours = mean_interval(shown[at])
    power = (1.0 + POWER) / 2.0 if within else POWER
    verdict = bare(
        claim,
        table,
        scale,
        "inconclusive",
        _about(test, at, margin),
        by_construction=known,
        margin=ours.mean,
        ci_low=ours.low,
        ci_high=ours.high,
        p=result.p_value,
        detectable=max(statement.detectable(alpha, power) for statement in statements),
    )
    sought, said = _sought(claim, test, evidence, margin)
    return verdict, Tested(tested, sought, said, alpha, power, result.favoured)


def _decided(
    verdict: ClaimVerdict, tested: Tested | None, adjusted: float | None, evidence: Evidence
) -> ClaimVerdict:
    if tested is None or verdict.p is None or verdict.detectable is None:
        return verdict
    p = verdict.p if adjusted is None else adjusted
    word, reasons = verdict.verdict, [verdict.reason]
    barred = evidence.inadmissible.get(verdict.id)
    if barred is not None:
        word, reasons = "inadmissible", [barred]
    elif p < evidence.level:
        word = "supported" if tested.favoured else "contradicted"
    else:
        if tested.why and (tested.sought is None or verdict.detectable > tested.sought):
            word = "underpowered"
            reasons.append(f"detectable from {verdict.detectable:.3g}; {tested.why}")
        which = "" if adjusted is None else "adjusted "
        reasons.append(f"not significant ({which}p = {p:.2g}; level {evidence.level:.2g})")
    reason = "; ".join(filter(None, reasons)) or None
    return verdict.model_copy(update={"p_adjusted": p, "verdict": word, "reason": reason})


def _sought(
    claim: Claim, test: Measurable, evidence: Evidence, margin: Scores | None
) -> tuple[float | None, str | None]:
    """Return the margin to detect in our units, its own or else the paper's, and the reason.

    The margin is None if it has no unit here; both are None if there is no margin.
    """
    if margin is not None:
        return margin.mean, f"the margin is {margin.mean:.3g}"
    printed = claim.paper_margin
    if printed is None:
        return None, None
    points = min(map(_points, [printed] if isinstance(printed, str) else printed))
    unit = _unit(test, evidence.table)
    if unit is None:
        return None, "the paper prints no other gain that its margin is a share of"
    (row, base, column), theirs = unit
    gain = f"the gain of `{row}` over `{base}`"
    if theirs is None:
        return None, f"{gain} in the paper is not above zero, and nothing is a share of it"
    missing = evidence.missing((row, column)) or evidence.missing((base, column))
    if missing is not None:
        return None, f"the paper's margin is a share of {gain}: {missing}"
    ours = evidence.score((row, column)).mean - evidence.score((base, column)).mean
    share = f"the paper's margin is {points / theirs:.2g} of {gain}"
    if ours <= 0.0:
        return None, f"{share}, which is not above zero here ({ours:+.3g})"
    size = points / theirs * ours
    return size, f"{share}, and as much of ours ({ours:+.3g}) is {size:.3g}"


Gain = tuple[str, str, str]
"""A row, its baseline row, and the column."""


def _unit(test: Measurable, table: Table) -> tuple[Gain, float | None] | None:
    """Return the gain that the paper's margin is a share of, and its size in the paper.

    None if the paper prints no such gain. The size is None if it exceeds zero by no more than the
    rounding error of the two printed values.
    """
    if isinstance(test, CompareGains):
        upper = test.left if test.sign > 0 else test.right
        gains = [(*upper, test.column)]
    else:
        gains = _gains_over(test, table)
    known = [(*found, gain) for gain in gains if (found := _printed(gain, table)) is not None]
    if not known:
        return None
    size, rounding, gain = max(known)
    return gain, size if size > rounding else None


def _gains_over(test: Compare | Trend | BestOf, table: Table) -> list[Gain]:
    """Return the gain of a claim's upper row, or if the claim tests that, the other rows' gains."""
    upper, column = test.upper
    compared = {row for row, _ in places(test)}
    base = table.row(upper).baseline
    if base is not None and compared != {upper, base}:
        return [(upper, base, column)]
    base = base or upper
    others = (row.id for row in table.rows if row.baseline == base and row.id not in compared)
    return [(row, base, column) for row in others]


def _printed(gain: Gain, table: Table) -> tuple[float, float] | None:
    """Return a gain as printed in the paper and its maximum rounding error, or None."""
    row, base, column = gain
    above, below = (table.row(name).values.get(column) for name in (row, base))
    if above is None or below is None:
        return None
    size = round(above.value - below.value, max(above.decimals, below.decimals))
    return size, sum(0.5 * 10.0**-value.decimals for value in (above, below))


def _points(printed: str) -> float:
    """Return the size of a printed margin; `+0.4 against +0.1` compares two gains."""
    left, _, right = printed.partition(" against ")
    return round(abs(float(left) - float(right or 0)), 10)


def _alike(test: Measurable, evidence: Evidence, margins: Sequence[Scores]) -> str | None:
    """Return why no difference can be tested, or None if one can.

    The rows that define a declared margin are not considered.
    """
    for shown in test.shown:
        weights: dict[object, float] = {}
        for weight, place in shown.terms:
            policy = (evidence.policy(place), place[1])
            weights[policy] = weights.get(policy, 0.0) + weight
        if not any(weights.values()):
            rows = ", ".join(f"`{row}`" for row in dict.fromkeys(r for _, (r, _) in shown.terms))
            return f"the rows compared, {rows}, are one and the same policy here"
    compared = list(dict.fromkeys(place for shown in test.shown for _, place in shown.terms))
    levels = {evidence.score(place).level for place in compared}
    if len(levels) == 1 and None not in levels:
        return f"{ALL_ALIKE}: it is {levels.pop():g} for every prompt and seed"
    ends = {
        _end(evidence.score(place).mean, evidence.table.column(place[1]).unit) for place in compared
    }
    if len(ends) == 1 and None not in ends:
        return f"the rows compared all stand at the {ends.pop()} of the scale"
    level = next((margin.level for margin in margins if margin.level is not None), None)
    if level is not None:
        return f"{NO_CHANCE}: it is {level:g}"
    return None


def ends_of(unit: str) -> tuple[float, float] | None:
    """Return the ends of a unit's scale, such as `%` or `1-10`, or None if it is unbounded."""
    known = _BOUNDS.fullmatch("0-100" if unit == "%" else unit)
    return None if known is None else (float(known[1]), float(known[2]))


def _end(mean: float, unit: str) -> str | None:
    """Return which end of its scale a mean is at, or None."""
    ends = ends_of(unit)
    if ends is None:
        return None
    low, high = ends
    near = AT_AN_END * (high - low)
    return "bottom" if mean <= low + near else "top" if mean >= high - near else None


def _is_within(test: Measurable) -> bool:
    return isinstance(test, Compare) and test.op == "within"


def _margin(test: Measurable, evidence: Evidence) -> Scores | None:
    if not isinstance(test, Compare) or test.margin is None:
        return None
    if test.margin.of is None:
        return evidence.score((test.left, test.column)).constant(test.margin.points or 0.0)
    gain = evidence.sum(difference(*test.margin.of, test.column).terms)
    # If the reference gain is not positive here, the margin is 0.
    share = test.margin.share or 0.0
    return weighted_sum([(share if gain.mean > 0 else 0.0, gain)])


def _statements(test: Measurable, shown: Sequence[Scores], margin: Scores | None) -> list[Scores]:
    """Return the scores whose means are above zero if the claim holds."""
    if margin is None:
        return [weighted_sum([(test.sign, part)]) for part in shown]
    above = weighted_sum([(1.0, shown[0]), (1.0, margin)])
    below = weighted_sum([(-1.0, shown[0]), (1.0, margin)])
    return [above, below] if _is_within(test) else [above]


def _about(test: Measurable, at: int, margin: Scores | None) -> str | None:
    if margin is not None and isinstance(test, Compare) and test.margin is not None:
        size = margin.mean
        if test.margin.of is None:
            return f"the margin is {size:.3g}"
        first, second = test.margin.of
        if size <= 0.0:
            return f"`{first}` gains nothing over `{second}` here, so that the margin is 0"
        share = f"{test.margin.share:g} of the gain of `{first}` over `{second}`"
        return f"the margin is {size:.3g}, {share}"
    if len(test.shown) > 1:
        (_, (left, _)), (_, (right, _)) = test.shown[at].terms
        return f"the weakest of {len(test.shown)}: `{left}` over `{right}`"
    return None
