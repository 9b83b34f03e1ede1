"""The ledger of claims as it stands on the page: its lines by table, and what each rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.registry.claims import Claim, Compare, Qualitative, places
from harness.report import view
from harness.report.claims import Line, line
from harness.report.model import Report, Verdict
from harness.report.page.contents import Contents


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
    line: Line
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


def margins(claims: Iterable[Claim]) -> str:
    """Return in a sentence how far apart rows may be and count as alike; empty if none may.

    The paper says of rows that they are level, or that one is not behind, and names no margin: each
    is an assumption of ours, declared beside the claim.
    """
    found: Counter[str] = Counter()
    for claim in claims:
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
    return ClaimLine(verdict.id, verdict.verdict, line(verdict), reason, basis)


def _basis(claim: Claim, report: Report) -> str:
    """Return the cells that a claim's numbers come from, with their runs and seeds."""
    assert not isinstance(claim.test, Qualitative)
    cells = [
        f"{row} in {column} (run {report.table.row(row).run_id(report.table.column(column))})"
        for row, column in places(claim.test)
    ]
    seeds = ", ".join(map(str, report.seeds))
    return view.plain(f"per-prompt scores of {', '.join(cells)}; seeds {seeds}")
