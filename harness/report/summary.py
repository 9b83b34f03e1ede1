"""What a whole column says beside the paper's: do gains point the same way, do rows order alike.

Outside the `paper` scale this is all that is compared, because the values themselves are on
different scales. It is about the whole column or it is nothing: while any row that the paper
prints lacks its numbers, there is a count and no result. From one seed there is none either: it
says nothing about the recipes.

Rows are ordered without those that others are measured against. A baseline lies apart from rows
that all build on it, for us as in the paper; counted among them it makes any order look like the
paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.report.cells import Cell

if TYPE_CHECKING:
    from harness.statistics import Scores

ScoresBehind = Callable[[Cell], "Scores | None"]
"""Returns the scores behind a cell, None where it has no numbers."""


@dataclass(frozen=True)
class Summary:
    """A column beside the paper's.

    Attributes:
        column: Id of the column.
        scale: The profile's scale, which says how much may be concluded.
        rows: Rows that are asked for and that the paper prints a value of.
        done: Those of them that have all their numbers.
        signs_agree: Gains with the sign of the paper's gain; None while a row is missing, and
            with one seed.
        signs: Gains compared: those where the paper's is not zero; None as `signs_agree`.
        ranked: Those of the rows that are no other row's baseline; None as `signs_agree`.
        spearman: Spearman's rank correlation of ours with the paper's over the ranked rows; None
            as `signs_agree`, with fewer than four rows, or where one side is constant.
        spearman_low: Lower end of its 95% interval over seeds and prompts.
        spearman_high: Upper end.
    """

    column: str
    scale: str
    rows: int
    done: int
    signs_agree: int | None = None
    signs: int | None = None
    ranked: int | None = None
    spearman: float | None = None
    spearman_low: float | None = None
    spearman_high: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        return asdict(self)


def summarise(cells: Sequence[Cell], scores: ScoresBehind) -> list[Summary]:
    """Return the summary of each column, in the order of the cells.

    Args:
        cells: Whole columns.
        scores: The scores behind the cells.
    """
    from harness.statistics.rank_correlation import rank_agreement

    found = []
    for summary, own in zip(compared_signs(cells), _columns(cells), strict=True):
        if summary.signs is None:
            found.append(summary)
            continue
        baselines = {cell.baseline_row for cell in own}
        ranked = [
            (behind, cell.paper)
            for cell in own
            if cell.row not in baselines and cell.paper is not None
            if (behind := scores(cell)) is not None
        ]
        rank = rank_agreement([ours for ours, _ in ranked], [paper for _, paper in ranked])
        summary = replace(summary, ranked=len(ranked))
        if rank is not None:
            summary = replace(
                summary, spearman=rank.rho, spearman_low=rank.low, spearman_high=rank.high
            )
        found.append(summary)
    return found


def compared_signs(cells: Sequence[Cell]) -> list[Summary]:
    """Return of each column's summary what follows from the cells alone: all but the order."""
    return [_signs(own) for own in _columns(cells)]


def _columns(cells: Sequence[Cell]) -> list[list[Cell]]:
    columns = dict.fromkeys(cell.column for cell in cells)
    return [[cell for cell in cells if cell.column == column] for column in columns]


def _signs(cells: Sequence[Cell]) -> Summary:
    printed = [cell for cell in cells if cell.paper is not None]
    done = [cell for cell in printed if cell.mean is not None]
    summary = Summary(cells[0].column, cells[0].scale, len(printed), len(done))
    if not printed or len(done) < len(printed) or len(cells[0].seeds) == 1:
        return summary
    from harness.statistics import sign_agreement

    gains = [
        (cell.gain, cell.paper_gain)
        for cell in printed
        if cell.gain is not None and cell.paper_gain is not None
    ]
    signs = sign_agreement([ours for ours, _ in gains], [paper for _, paper in gains])
    return replace(summary, signs_agree=signs.agree, signs=signs.total)
