"""The seeds that a table's claims still need, from the variance seen so far, and when to stop.

A claim that is decided needs no more. Any other needs as many as would find the margin that it
seeks (`harness.report.verdicts`): the paper's margin as a share of a gain, of that gain as it is
here, which later seeds will move. Whether it is there to be found no number of seeds says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.report.model import Verdict
from harness.report.verdicts import Evidence, Tested, judge_with_tests
from harness.statistics.sequential import seeds_needed
from harness.strict import Strict

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


def _needed(verdict: Verdict, tested: Tested, seeds: int) -> int | None:
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


def undecided(looked: Sequence[Iterable[Verdict]]) -> list[str]:
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
