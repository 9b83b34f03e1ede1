"""The claim ledger: every claim of the paper with its verdict and the seeds it still needs.

Table claims are judged from a store or from published scores; figure claims, from the claims that
measure them. The ledger lists every claim regardless of what has run: a claim of a table that the
profile cannot run is `not_run`, with the reason.

A decided claim needs no more seeds. Any other needs enough to detect its sought margin
(`harness.report.verdicts`) given the variance observed so far. That margin is the paper's share of
a gain applied to our gain, so it shifts as seeds are added. None of this says whether the effect
exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from harness.registry.claims import Claim, FigureClaims, Qualitative
from harness.report.model import TESTED, ClaimVerdict, Report, VerdictWord
from harness.report.parts import Scale
from harness.report.verdicts import Evidence, Tested, bare, judge_with_tests
from harness.report.view import probability, signed
from harness.statistics.sequential import seeds_needed
from harness.strict import Strict

WORDS: tuple[VerdictWord, ...] = get_args(VerdictWord)


def all_verdicts(
    reports: Iterable[Report], declared: FigureClaims, scale: Scale
) -> list[ClaimVerdict]:
    """Return the verdicts on table claims, then those on figure claims, which derive from them."""
    of_tables = [verdict for report in reports for verdict in report.verdicts]
    return [*of_tables, *judge_figures(declared, of_tables, scale)]


def judge_figures(
    declared: FigureClaims, verdicts: Iterable[ClaimVerdict], scale: Scale
) -> list[ClaimVerdict]:
    known = {verdict.id: verdict for verdict in verdicts}
    return [
        _figure_verdict(claim, figure.id, known, scale)
        for figure in declared.figures
        for claim in figure.claims
    ]


def _figure_verdict(
    claim: Claim, figure: str, known: Mapping[str, ClaimVerdict], scale: Scale
) -> ClaimVerdict:
    test = claim.test
    if not isinstance(test, Qualitative) or test.measured_by is None:
        return bare(claim, figure, scale, "not_testable", getattr(test, "reason", None) or "")
    words: list[VerdictWord] = [
        known[name].verdict if name in known else "not_run" for name in test.measured_by
    ]
    said = "; ".join(
        f"`{name}` is {word.replace('_', ' ')}"
        for name, word in zip(test.measured_by, words, strict=True)
    )
    # A conjunction; each claim is already corrected within its own table.
    word: VerdictWord = next((word for word in _FIRST if word in words), "supported")
    return bare(claim, figure, scale, word, f"measured by other claims: {said}")


_FIRST: Sequence[VerdictWord] = (
    "contradicted", "not_run", "not_testable", "inadmissible", "underpowered", "inconclusive",
)  # fmt: skip
"""When several claims jointly measure another, the first of these verdicts among them decides."""


def counts(verdicts: Sequence[ClaimVerdict]) -> dict[VerdictWord, int]:
    found = Counter(verdict.verdict for verdict in verdicts)
    return {word: found[word] for word in WORDS}


PRIMARY = "* primary, tested at 5%; the others are Holm-corrected within their table."

NONE = "-"


def measures(verdict: ClaimVerdict) -> dict[str, str]:
    """Format a claim's numbers, with a dash for missing ones.

    "ours" is the margin; "paper" lists each step of a trend; "in noise" says whether the paper's
    margin is within its benchmark's noise.
    """
    paper, low, high = verdict.paper_margin, verdict.ci_low, verdict.ci_high
    return {
        "ours": NONE if verdict.margin is None else signed(verdict.margin, 2),
        "95% interval": (
            NONE if low is None or high is None else f"{signed(low, 2)} to {signed(high, 2)}"
        ),
        "p": NONE if verdict.p is None else probability(verdict.p),
        "adjusted": NONE if verdict.p_adjusted is None else probability(verdict.p_adjusted),
        "detectable": NONE if verdict.detectable is None else f"{verdict.detectable:.2f}",
        "paper": NONE if paper is None else paper if isinstance(paper, str) else ", ".join(paper),
        "in noise": {True: "yes", False: "no", None: NONE}[verdict.paper_within_noise],
    }


def share_tested(verdicts: Sequence[ClaimVerdict]) -> str:
    count = sum(verdict.verdict in TESTED for verdict in verdicts)
    powered = count - sum(verdict.verdict == "underpowered" for verdict in verdicts)
    share = f"{100 * powered / len(verdicts):.0f}%" if verdicts else NONE
    return (
        f"{powered} of {len(verdicts)} claims ({share}) were tested with 80% power for the paper's "
        f"effect; {count - powered} more with less"
    )


def totals(verdicts: Sequence[ClaimVerdict]) -> str:
    certain = sum(v.verdict == "supported" and v.by_construction is not None for v in verdicts)
    marks = {"supported": f" ({certain} by construction)"} if certain else {}
    return ", ".join(
        f"{number} {word.replace('_', ' ')}{marks.get(word, '')}"
        for word, number in counts(verdicts).items()
        if number or word in ("supported", "contradicted")
    )


# --- Seeds needed ---

STEP = 2
"""Seeds between looks in a run that continues until its claims are decided."""


class ClaimPower(Strict):
    claim: str
    primary: bool
    verdict: str
    seeds: int
    detectable: float | None = None
    """Smallest margin detectable with these seeds; null if nothing is tested."""
    sought: float | None = None
    """Margin to detect; null if there is none."""
    needed: int | None = None
    """Seeds needed to detect it; null if no margin is sought or `MOST_SEEDS` are too few."""


def power_of(evidence: Evidence) -> list[ClaimPower]:
    return [
        ClaimPower(
            claim=verdict.id,
            primary=verdict.primary,
            verdict=verdict.text,
            seeds=len(evidence.seeds),
            detectable=verdict.detectable,
            sought=None if tested is None else tested.sought,
            needed=None if tested is None else _needed(verdict, tested, len(evidence.seeds)),
        )
        for verdict, tested in judge_with_tests(evidence)
    ]


def _needed(verdict: ClaimVerdict, tested: Tested, seeds: int) -> int | None:
    if verdict.verdict in ("supported", "contradicted"):
        return seeds
    if tested.sought is None or tested.sought <= 0.0:
        return None
    found = [
        seeds_needed(scores, tested.sought, tested.level, tested.power)
        for scores in tested.statements
    ]
    known = [number for number in found if number is not None]
    return max(known) if len(known) == len(found) else None


def looks_until(first: int, most: int) -> tuple[int, ...]:
    """Return the seed counts of the looks: `first`, every `STEP` more, and `most`."""
    return (*range(first, most, STEP), most)


def undecided(looked: Sequence[Iterable[ClaimVerdict]]) -> list[str]:
    """Return the primary claims that no look has decided yet and more seeds might.

    Args:
        looked: The verdicts at each look so far, judged at that look's level.
    """
    words: dict[str, list[str]] = {}
    for verdicts in looked:
        for verdict in verdicts:
            if verdict.primary:
                words.setdefault(verdict.id, []).append(verdict.verdict)
    return [
        claim
        for claim, found in words.items()
        if found[-1] in ("inconclusive", "underpowered")
        and not {"supported", "contradicted"} & set(found)
    ]
