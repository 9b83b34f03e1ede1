"""The ledger: every claim of the paper with its verdict, and the seeds that it still needs.

A table is judged from a store or from its published scores, and a claim that belongs to a figure
from the claims that measure it. All of them are in the ledger, whatever has run: a claim of a
table that a profile cannot run is `not_run`, with the reason.

A claim that is decided needs no more seeds. Any other needs as many as would find the margin that
it seeks (`harness.report.verdicts`), from the variance seen so far: the paper's margin as a share
of a gain, of that gain as it is here, which later seeds will move. Whether it is there to be found
no number of seeds says.
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
    """Return the verdicts of tables, then those on the claims of figures, which rest on them."""
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
    # A conjunction of claims, each corrected in its own table.
    word: VerdictWord = next((word for word in _FIRST if word in words), "supported")
    return bare(claim, figure, scale, word, f"measured by other claims: {said}")


_FIRST: Sequence[VerdictWord] = (
    "contradicted", "not_run", "not_testable", "inadmissible", "underpowered", "inconclusive",
)  # fmt: skip
"""Of claims that only together measure another one, the first of these that any has decides."""


def counts(verdicts: Sequence[ClaimVerdict]) -> dict[VerdictWord, int]:
    found = Counter(verdict.verdict for verdict in verdicts)
    return {word: found[word] for word in WORDS}


PRIMARY = "* primary, tested at 5%; the others are Holm-corrected within their table."

NONE = "-"


def measures(verdict: ClaimVerdict) -> dict[str, str]:
    """Return the numbers of a claim as text; what there is not is a dash.

    Ours is the margin; of a trend the paper's is each step. The last says whether the paper's
    margin is within the noise of its benchmark.
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


# --- Seeds that are needed ---

STEP = 2
"""Seeds between two looks at a run that goes on until its claims are decided."""


class ClaimPower(Strict):
    claim: str
    primary: bool
    verdict: str
    seeds: int
    detectable: float | None = None
    """Smallest margin that is found with them; null where nothing is tested."""
    sought: float | None = None
    """Margin that should be found; null where there is none."""
    needed: int | None = None
    """Seeds that would find it; null where none is sought, or no number of seeds would."""


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
        seeds_needed(scores, tested.sought, tested.level, tested.power, prior)
        for scores, prior in tested.statements
    ]
    known = [number for number in found if number is not None]
    return max(known) if len(known) == len(found) else None


def looks_until(first: int, most: int) -> tuple[int, ...]:
    """Return the numbers of seeds at which a run looks: some, every few more, and the most."""
    return (*range(first, most, STEP), most)


def undecided(looked: Sequence[Iterable[ClaimVerdict]]) -> list[str]:
    """Return the primary claims that no look so far has decided, and more seeds may.

    Args:
        looked: The verdicts at each look so far, each judged at the level of its look.
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
