"""Verdicts on the paper's claims, judged from the per-prompt scores behind the cells.

    supported     every statement of the claim is shown
    contradicted  a statement is refuted
    inconclusive  neither
    inadmissible  no outcome would say anything: controls have not passed, a reward model is not
                  shown to be the better one, or nothing that is compared can differ
    not_run       a score it needs is missing, or no column measures it

An effect of the paper's size is the paper's margin as a share of a gain that it prints, and the
same share of our gain: that of the claim's upper row over its baseline, or of two gains the one
said to be larger. If the claim is about that very gain, using it would be circular (Hoenig and
Heisey, 2001, The American Statistician 55(1)), and the largest other gain that the paper prints
over that baseline in the column takes its place.

A table's primary claim is tested at 5%; its other claims are Holm-corrected as one family of every
declared testable claim, run or not, so running fewer rows makes nothing easier to show. Intervals
are not corrected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.registry.claims import (
    BestOf,
    Claim,
    Compare,
    CompareGains,
    FigureClaims,
    Measurable,
    Place,
    Qualitative,
    Trend,
    difference,
    places,
)
from harness.registry.profile import benchmark_of
from harness.registry.schema import Table
from harness.report.model import Estimate, Scale, Verdict, VerdictWord
from harness.report.results import Results
from harness.report.scores import ALPHA, POWER
from harness.statistics import Interval, Scores, conjunction, holm, mean_interval, weighted_sum

ALL_ALIKE = "the rows compared all have one and the same score"
NO_CHANCE = "the difference is the same for every prompt and seed, so that chance was not measured"
ONE_SEED = "one seed: how much seeds differ is unknown"

AT_AN_END = 0.01
"""Share of a scale that counts as its end; rows that are all there cannot be told apart."""

_BOUNDS = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class ClaimTest:
    """What decides a claim; `Verdict` describes the fields that it takes over."""

    declared: Claim
    known: tuple[VerdictWord, str] | None = None
    """The verdict and its reason where no test makes one."""
    estimate: Estimate | None = None
    margin: float | None = None
    about: str | None = None
    """What the estimated margin is."""
    p: float | None = None
    p_adjusted: float | None = None
    favored: bool = False
    sought: float | None = None
    sought_as: str | None = None
    """How the size that is sought was found, or why there is none."""
    excludes: str | None = None

    @property
    def word(self) -> VerdictWord:
        if self.known is not None:
            return self.known[0]
        if self.p_adjusted is None or self.p_adjusted >= ALPHA:
            return "inconclusive"
        return "supported" if self.favored else "contradicted"

    @property
    def reason(self) -> str | None:
        """Why there is no decision, or what the decision is based on."""
        if self.known is not None:
            return self.known[1]
        parts = [self.about, *(self._undecided() if self.word == "inconclusive" else ())]
        return "; ".join(filter(None, parts)) or None

    def _undecided(self) -> Iterable[str | None]:
        if self.p_adjusted is None:
            yield ONE_SEED
            return
        assert self.estimate is not None
        which = "" if self.declared.primary else "adjusted "
        yield f"not significant ({which}p = {self.p_adjusted:.2g}; level {ALPHA:.2g})"
        least = f"{self.estimate.detectable:.3g}"
        shown = f"likeness within {least} would have been shown"
        yield shown if _is_within(self.declared.test) else f"{least} would have been found"
        if self.excludes is not None:
            yield f"the 95% interval, not adjusted, excludes {self.excludes}"
        if self.excludes != THE_CLAIM:
            yield self.sought_as


_FIRST: Sequence[VerdictWord] = ("contradicted", "not_run", "inadmissible", "inconclusive")
"""When several claims jointly measure another, the first of these verdicts among them decides."""

THE_CLAIM, THE_SIZE = "the claim", "an effect of the paper's size"


def judge(test: ClaimTest, place: str, profile: str, scale: Scale) -> Verdict:
    """Return the verdict on a claim: the only place where one is made."""
    claim = test.declared
    numbers = {name: it for name, it in vars(test).items() if name in Verdict.model_fields}
    if test.word != "inconclusive":
        numbers["excludes"] = None
    return Verdict(
        claim=claim.id,
        place=place,
        statement=claim.statement,
        word=test.word,
        scale=scale,
        primary=claim.primary,
        paper_margin=claim.paper_margin,
        paper_within_noise=claim.within_noise,
        reason=test.reason,
        marks=claim.marks_at(profile),
        **numbers,
    )


def judge_all(
    results: Results, claims: Sequence[Claim], place: str, inadmissible: Mapping[str, str]
) -> list[Verdict]:
    """Return the verdicts on claims about rows of a table; some may be inadmissible, by claim."""
    family = [c for c in claims if not c.primary and not isinstance(c.test, Qualitative)]
    of_family = ALPHA / max(len(family), 1)
    tests = {
        claim.id: _tested(
            claim, results, ALPHA if claim.primary else of_family, inadmissible.get(claim.id)
        )
        for claim in claims
    }
    p_values = [tests[claim.id].p for claim in family]
    corrected = holm([1.0 if p is None else p for p in p_values])
    for claim, p in zip(family, corrected, strict=True):
        test = tests[claim.id]
        tests[claim.id] = replace(test, p_adjusted=None if test.p is None else p)
    report = results.report
    return [judge(it, place, report.profile, report.scale) for it in tests.values()]


def not_run(claim: Claim, reason: str) -> ClaimTest:
    """Return the test of a claim without scores: for this reason, or because none decides it."""
    if isinstance(claim.test, Qualitative):
        reason = claim.test.reason or "the claims that measure it belong to other tables"
    return ClaimTest(claim, ("not_run", reason))


def judge_figures(
    declared: FigureClaims, results: Sequence[Results], profile: str, scale: Scale
) -> list[Verdict]:
    """Return the verdicts on the claims about figures, from the reports of the tables."""
    known = {verdict.claim: verdict.word for it in results for verdict in it.verdicts}
    tables = {it.table.id: it for it in results}
    found: list[Verdict] = []
    for figure in declared.figures:
        compared = tables.get(figure.table or "")
        if compared is not None:
            found += compared.judge(figure.claims, figure.id)
            continue
        for claim in figure.claims:
            names = getattr(claim.test, "measured_by", None) or ()
            test = not_run(claim, f"`{figure.table}` has not run")
            if names:
                test = _measured_by(claim, {name: known.get(name, "not_run") for name in names})
            found.append(judge(test, figure.id, profile, scale))
    return found


def _measured_by(claim: Claim, words: Mapping[str, VerdictWord]) -> ClaimTest:
    """Return the test of a claim that others measure, each corrected within its own table."""
    word: VerdictWord = next((it for it in _FIRST if it in words.values()), "supported")
    said = (f"`{it}` is {word.replace('_', ' ')}" for it, word in words.items())
    return ClaimTest(claim, (word, f"measured by other claims: {'; '.join(said)}"))


def _missing(results: Results, place: Place) -> str | None:
    """Return why a cell has no scores, or None if it has."""
    row, column = place
    cells = results.report.of_column(column)
    cell = next((cell for cell in cells if cell.row == row), None)
    if all(known.id != column for known in results.table.columns):
        return f"the profile does not measure `{column}`"
    if cell is None:
        return results.absent.get(row, f"`{row}` was not requested")
    where = f"`{row}` in `{column}`"
    if benchmark_of(results.profile, results.table.column(column).reads) is None:
        return f"the profile has no benchmark that yields `{column}`"
    why = f": {cell.reason}" if cell.reason else ""
    said = {
        "failed": f"{where} failed{why}",
        "partial": f"{where} has {len(cell.runs)} of {len(cell.seeds)} seeds",
        "not_available": f"{where} is not available{why}",
        "not_run": f"{where} has not run",
    }
    return said.get(cell.state)


def _score(results: Results, place: Place) -> Scores:
    found = results.scores.of(*place)
    assert found is not None
    return found


def _sum(results: Results, terms: Iterable[tuple[float, Place]]) -> Scores:
    return weighted_sum([(weight, _score(results, place)) for weight, place in terms])


def _policy(results: Results, place: Place) -> object:
    """Return a key that two cells share exactly if they are the same policy, judged alike."""
    judged = tuple(run.partition("@")[2] for run in results.report.cell(*place).runs)
    return judged or results.scores.run(*place)


def _tested(claim: Claim, results: Results, level: float, inadmissible: str | None) -> ClaimTest:
    """Return the test of a claim, not corrected but for the level of what would be found."""
    test = claim.test
    if isinstance(test, Qualitative):
        return not_run(claim, "")
    found = (_missing(results, place) for place in places(test))
    missing = results.lacking or next(filter(None, found), None)
    if missing is not None:
        return ClaimTest(claim, ("not_run", missing))
    shown = [_sum(results, part.terms) for part in test.shown]
    if (alike := _alike(test, results, shown)) is not None:
        return ClaimTest(claim, ("inadmissible", alike))
    made = ClaimTest(claim, None if inadmissible is None else ("inadmissible", inadmissible))
    if len(results.report.seeds) == 1:
        return replace(made, estimate=Estimate.of(mean_interval(shown[0])))
    margin, within = _margin(test, results), _is_within(test)
    statements = [mean_interval(it) for it in _statements(test, shown, margin)]
    result = conjunction(statements)
    at = result.weakest if len(shown) > 1 else 0
    ours = mean_interval(shown[at])
    power = (1.0 + POWER) / 2.0 if within else POWER
    sought, said = _sought(claim, test, results)
    return replace(
        made,
        estimate=Estimate.of(ours, max(it.detectable(level, power) for it in statements)),
        margin=None if margin is None else margin.mean,
        about=_about(test, at, margin),
        p=result.p_value,
        p_adjusted=result.p_value,
        favored=result.favored,
        sought=sought,
        sought_as=said,
        excludes=_excluded(test.sign, statements, ours, sought),
    )


def _excluded(
    sign: int, statements: Iterable[Interval], ours: Interval, sought: float | None
) -> str | None:
    """Return the strongest of what the 95% intervals exclude, or None."""
    if any(statement.high < 0.0 for statement in statements):
        return THE_CLAIM
    highest = ours.high if sign > 0 else -ours.low
    return THE_SIZE if sought is not None and highest < sought else None


def _sought(claim: Claim, test: Measurable, results: Results) -> tuple[float | None, str | None]:
    """Return the size of the paper's effect in our units, if any, and how it was found."""
    printed = printed_margin(claim, test)
    if printed is None or _is_within(test):
        return None, None
    points = test.sign * printed
    if points <= 0.0:
        return None, "the paper's own numbers go the other way"
    unit = _unit(test, results.table)
    if unit is None:
        return None, "the paper prints no other gain that its margin is a share of"
    (row, base, column), theirs = unit
    gain = f"the gain of `{row}` over `{base}`"
    if theirs is None:
        return None, f"{gain} in the paper is not above zero, and nothing is a share of it"
    missing = _missing(results, (row, column)) or _missing(results, (base, column))
    if missing is not None:
        return None, f"the paper's margin is a share of {gain}: {missing}"
    ours = _score(results, (row, column)).mean - _score(results, (base, column)).mean
    share = f"the paper's margin is {points / theirs:.2g} of {gain}"
    if ours <= 0.0:
        return None, f"{share}, which is not above zero here ({ours:+.3g})"
    size = points / theirs * ours
    return size, f"{share}, and as much of ours ({ours:+.3g}) is {size:.3g}"


def printed_margin(claim: Claim, test: Measurable) -> float | None:
    """Return the margin that the paper prints; of several steps, the least in its direction."""
    if claim.paper_margin is None:
        return None
    printed = claim.paper_margin
    steps = (printed,) if isinstance(printed, str) else printed
    return test.sign * min(test.sign * _points(step) for step in steps)


Gain = tuple[str, str, str]
"""A row, its baseline row, and the column."""


def _unit(test: Measurable, table: Table) -> tuple[Gain, float | None] | None:
    """Return the gain that the paper's margin is a share of, if any, and its size in the paper.

    The size is None if it exceeds zero by no more than the rounding of the printed values.
    """
    if isinstance(test, CompareGains):
        upper = test.left if test.sign > 0 else test.right
        gains = [(*upper, test.column)]
    else:
        gains = _gains_over(test, table)
    known = [(*found, gain) for gain in gains if (found := _printed(gain, table)) is not None]
    size, rounding, gain = max(known, default=(0.0, 0.0, None))
    return None if gain is None else (gain, size if size > rounding else None)


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
    """Return a printed margin; `+0.4 against +0.1` compares two gains."""
    left, _, right = printed.partition(" against ")
    return round(float(left) - float(right or 0), 10)


def _alike(test: Measurable, results: Results, margins: Sequence[Scores]) -> str | None:
    """Return why no difference of the rows, those of a margin aside, can be tested, or None."""
    for shown in test.shown:
        weights: dict[object, float] = {}
        for weight, place in shown.terms:
            policy = (_policy(results, place), place[1])
            weights[policy] = weights.get(policy, 0.0) + weight
        if not any(weights.values()):
            rows = ", ".join(f"`{row}`" for row in dict.fromkeys(r for _, (r, _) in shown.terms))
            return f"the rows compared, {rows}, are one and the same policy here"
    compared = list(dict.fromkeys(place for shown in test.shown for _, place in shown.terms))
    levels = {_score(results, place).level for place in compared}
    if len(levels) == 1 and None not in levels:
        return f"{ALL_ALIKE}: it is {levels.pop():g} for every prompt and seed"
    ends = {
        _end(_score(results, place).mean, results.table.column(place[1]).unit) for place in compared
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


def _is_within(test: Measurable | Qualitative) -> bool:
    return isinstance(test, Compare) and test.op == "within"


def _margin(test: Measurable, results: Results) -> Scores | None:
    if not isinstance(test, Compare) or test.margin is None:
        return None
    if test.margin.of is None:
        return _score(results, (test.left, test.column)).constant(test.margin.points or 0.0)
    gain = _sum(results, difference(*test.margin.of, test.column).terms)
    # If the reference gain is not positive here, the margin is 0.
    share = test.margin.share or 0.0
    return gain.scaled(share if gain.mean > 0 else 0.0)


def _statements(test: Measurable, shown: Sequence[Scores], margin: Scores | None) -> list[Scores]:
    """Return the scores whose means are above zero if the claim holds."""
    if margin is None:
        return [part.scaled(test.sign) for part in shown]
    above, below = shown[0].plus(margin), margin.minus(shown[0])
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
