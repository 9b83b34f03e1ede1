"""What there is of a table to judge the paper's claims by: its cells and the scores behind them.

A claim needs every seed of every cell it names. Where a cell has no numbers, the evidence says
why, in words that fit after the name of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.registry.claims import Place
from harness.registry.schema import Table
from harness.report.cells import Cell
from harness.report.scores import Measured, scores_of

if TYPE_CHECKING:
    from harness.statistics import Scores


@dataclass(frozen=True)
class Evidence:
    """What there is of a table to judge its claims by.

    Attributes:
        table: The table.
        scale: Scale of the profile.
        seeds: Root seeds asked for.
        cells: Its cells by row and column.
        measured: The per-prompt scores.
        lacking: Why rows that have no cells have none, by row.
        by_construction: Why columns come out as the paper says whatever is run, by column.
    """

    table: Table
    scale: str
    seeds: tuple[int, ...]
    cells: Mapping[Place, Cell]
    measured: Measured
    lacking: Mapping[str, str]
    by_construction: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: Table,
        cells: Sequence[Cell],
        measured: Measured,
        lacking: Mapping[str, str] | None = None,
        by_construction: Mapping[str, str] | None = None,
    ) -> Evidence:
        """Put together a table's cells, at least one, and the scores they were computed from."""
        by_place = {(cell.row, cell.column): cell for cell in cells}
        first = cells[0]
        known = by_construction or {}
        return cls(table, first.scale, first.seeds, by_place, measured, lacking or {}, known)

    def missing(self, place: Place) -> str | None:
        """Return why a cell has no numbers, None where it has."""
        row, column = place
        cell = self.cells.get(place)
        if cell is None:
            return self.lacking.get(row, f"`{row}` was not asked for")
        where = f"`{row}` in `{column}`"
        if cell.state == "failed":
            return f"{where} failed: {cell.reason}" if cell.reason else f"{where} failed"
        if cell.state == "partial":
            return f"{where} has {len(cell.runs)} of {len(cell.seeds)} seeds"
        if cell.state == "not_available" and cell.reason:
            return f"{where} is not available: {cell.reason}"
        if cell.state == "not_available":
            return f"the profile has no benchmark that yields `{column}`"
        return None if cell.state == "ok" else f"{where} has not run"

    def scores(self, place: Place) -> Scores:
        """Return the scores behind a cell that has numbers.

        Raises:
            KeyError: It has none.
        """
        column = self.table.column(place[1])
        run = self.table.row(place[0]).run_id(column)
        found = scores_of(self.measured, run, self.seeds, column.reads)
        if found is None:
            raise KeyError(place)
        return found
