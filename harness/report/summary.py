"""What a whole column says beside the paper's: do gains point the same way, do rows order alike.

Outside the `paper` scale this is all that is compared, because the values themselves are on
different scales. It is about the whole column or it is nothing: while any row that the paper
prints lacks its numbers, there is a count and no result. From one seed there is none either: it
says nothing about the recipes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.report.cells import Cell


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
        spearman: Spearman's rank correlation of ours with the paper's over the rows; None as
            `signs_agree`, with fewer than three rows, or where one side is constant.
    """

    column: str
    scale: str
    rows: int
    done: int
    signs_agree: int | None
    signs: int | None
    spearman: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        return asdict(self)


def summarise(cells: Sequence[Cell]) -> list[Summary]:
    """Return the summary of each column, in the order of the cells."""
    columns = dict.fromkeys(cell.column for cell in cells)
    return [_summary([c for c in cells if c.column == column]) for column in columns]


def _summary(cells: Sequence[Cell]) -> Summary:
    printed = [cell for cell in cells if cell.paper is not None]
    done = [cell for cell in printed if cell.mean is not None]
    column, scale = cells[0].column, cells[0].scale
    if not printed or len(done) < len(printed) or len(cells[0].seeds) == 1:
        return Summary(column, scale, len(printed), len(done), None, None, None)
    from harness.statistics import sign_agreement, spearman

    gains = [
        (cell.gain, cell.paper_gain)
        for cell in printed
        if cell.gain is not None and cell.paper_gain is not None
    ]
    signs = sign_agreement([ours for ours, _ in gains], [paper for _, paper in gains])
    rank = spearman([c.mean for c in done if c.mean is not None],
                    [c.paper for c in done if c.paper is not None])  # fmt: skip
    return Summary(column, scale, len(printed), len(done), signs.agree, signs.total, rank)
