"""The words and figures of the ledger of claims, the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.claims import counts
from harness.report.verdicts import Verdict
from harness.report.view import probability

PRIMARY = "* primary, tested at 5%; the others are Holm-corrected within their table."

NONE = "-"


@dataclass(frozen=True)
class Line:
    """One claim as text; what there is not is a dash.

    Attributes:
        name: Its id, with a star where it is primary.
        verdict: The verdict, with the scale where it is not the paper's.
        margin: Ours.
        interval: Its 95% interval.
        p: Two-sided p-value.
        adjusted: The same after Holm's correction.
        detectable: The smallest margin these runs would have found.
        paper: The paper's margin, of a trend each step.
        noise: Whether that is within the noise of its benchmark.
        statement: What the paper says.
    """

    name: str
    verdict: str
    margin: str
    interval: str
    p: str
    adjusted: str
    detectable: str
    paper: str
    noise: str
    statement: str


def line(verdict: Verdict) -> Line:
    """Return a verdict as text."""
    paper, low, high = verdict.paper_margin, verdict.ci_low, verdict.ci_high
    return Line(
        name=f"{verdict.id}{' *' if verdict.primary else ''}",
        verdict=verdict.text,
        margin=NONE if verdict.margin is None else f"{verdict.margin:+.2f}",
        interval=NONE if low is None or high is None else f"{low:.2f} to {high:.2f}",
        p=NONE if verdict.p is None else probability(verdict.p),
        adjusted=NONE if verdict.p_adjusted is None else probability(verdict.p_adjusted),
        detectable=NONE if verdict.detectable is None else f"{verdict.detectable:.2f}",
        paper=NONE if paper is None else paper if isinstance(paper, str) else ", ".join(paper),
        noise={True: "yes", False: "no", None: NONE}[verdict.paper_within_noise],
        statement=verdict.statement,
    )


def totals(verdicts: Sequence[Verdict]) -> str:
    """Return how often each verdict was reached, in words."""
    found = counts(verdicts).items()
    said = ", ".join(f"{number} {word.replace('_', ' ')}" for word, number in found if number)
    certain = sum(v.verdict == "supported" and v.by_construction is not None for v in verdicts)
    return f"{said} ({certain} of the supported by construction)" if certain else said
