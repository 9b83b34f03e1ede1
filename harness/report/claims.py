"""Every claim of the paper with its verdict, whatever has run, and the counts of verdicts.

Marked claims are counted apart: their verdicts say less than others'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from harness.registry.claims import MARKS, FigureClaims, MarkWord
from harness.registry.profile import Profile
from harness.report.model import Count, Part, Verdict, VerdictWord
from harness.report.results import Results
from harness.report.verdicts import THE_CLAIM, THE_SIZE, judge_figures
from harness.report.view import between, probability, signed
from harness.words import counted

WORDS: tuple[VerdictWord, ...] = get_args(VerdictWord)


def all_verdicts(
    tables: Sequence[Results], declared: FigureClaims, profile: Profile
) -> list[Verdict]:
    """Return the verdicts on table claims, then those on figure claims, which derive from them."""
    of_tables = [verdict for it in tables for verdict in it.verdicts]
    return [*of_tables, *judge_figures(declared, tables, profile.name, profile.scale)]


def judged_by(tables: Sequence[Results], declared: FigureClaims) -> FigureClaims:
    """Return the figures whose claims need no other table than these."""
    names = {None, *(it.table.id for it in tables)}
    claims = {claim.id for it in tables for claim in it.table.claims}
    figures = [
        figure
        for figure in declared.figures
        if figure.table in names
        and all(
            claims.issuperset(getattr(it.test, "measured_by", None) or ()) for it in figure.claims
        )
    ]
    return declared.model_copy(update={"figures": tuple(figures)})


def why_unjudged(verdicts: Sequence[Verdict], profile: Profile) -> str:
    """Say why a profile's own columns leave no claim of the paper to judge; else nothing."""
    if not profile.columns or any(verdict.word != "not_run" for verdict in verdicts):
        return ""
    return (
        "The paper's claims are about its own benchmarks. This profile runs none of them, so no "
        "claim can be judged here."
    )


class Tally(Part):
    """The number of claims by verdict, of those that share a mark, or have none."""

    mark: MarkWord | None
    words: dict[VerdictWord, Count]
    excludes_claim: Count
    """Inconclusive ones whose 95% interval, not adjusted, excludes the claim."""
    excludes_size: Count
    """Inconclusive ones whose interval excludes an effect of the paper's size."""

    @property
    def claims(self) -> int:
        return sum(self.words.values())

    @property
    def text(self) -> str:
        """The counts in words: `2 supported, 1 contradicted, 3 inconclusive (1 excludes ...)`."""
        said = []
        for word, number in self.words.items():
            if number or word in ("supported", "contradicted"):
                said.append(f"{number} {word.replace('_', ' ')}")
            if word == "inconclusive" and self.excludes_claim + self.excludes_size:
                parts = ((self.excludes_claim, THE_CLAIM), (self.excludes_size, THE_SIZE))
                notes = (f"{count} exclude{'s' * (count == 1)} {what}"
                         for count, what in parts if count)  # fmt: skip
                said[-1] += f" ({', '.join(notes)})"
        return ", ".join(said)


def tally(verdicts: Sequence[Verdict], mark: MarkWord | None = None) -> Tally:
    words = Counter(verdict.word for verdict in verdicts)
    excluded = Counter(verdict.excludes for verdict in verdicts)
    return Tally(
        mark=mark,
        words={word: words[word] for word in WORDS},
        excludes_claim=excluded[THE_CLAIM],
        excludes_size=excluded[THE_SIZE],
    )


def tallies(verdicts: Sequence[Verdict]) -> list[Tally]:
    """Count the claims without a mark, then those of each mark; each claim once, by its first."""
    found = [tally([verdict for verdict in verdicts if not verdict.marks])]
    for mark in MARKS:
        own = [it for it in verdicts if it.marks and it.marks[0].word == mark]
        found += [tally(own, mark)] if own else []
    return found


def totals(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the counts in words: a line for the unmarked claims, and one for each mark."""
    first, *marked = tallies(verdicts)
    said = [f"{counted(first.claims, 'claim')} of {len(verdicts)} without a mark: {first.text}"]
    return said + [f"{own.claims} {own.mark}: {own.text}" for own in marked]


PRIMARY = "* primary, tested at 5%; the others are Holm-corrected within their table."

NONE = "-"


def measures(verdict: Verdict) -> dict[str, str]:
    """Format a claim's numbers: ours is the margin, the paper's has each step of a trend."""
    paper, own = verdict.paper_margin, verdict.estimate
    least = None if own is None else own.detectable
    return {
        "ours": NONE if own is None else signed(own.mean, 2),
        "95% interval": NONE if own is None else between(own.low, own.high, 2),
        "p": NONE if verdict.p is None else probability(verdict.p),
        "adjusted": NONE if verdict.p_adjusted is None else probability(verdict.p_adjusted),
        "detectable": NONE if least is None else f"{least:.2f}",
        "paper's size": NONE if verdict.sought is None else f"{verdict.sought:.2f}",
        "paper": NONE if paper is None else paper if isinstance(paper, str) else ", ".join(paper),
        "in noise": {True: "yes", False: "no", None: NONE}[verdict.paper_within_noise],
    }
