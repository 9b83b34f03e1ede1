"""Everything a report says about a table, before any of it is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from harness.evaluation.calibration import Calibration
from harness.evaluation.calibration import states as calibration_states
from harness.project import calibrations_dir
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import Column, Row, Table
from harness.report.assumptions import Assumption, assumptions_of
from harness.report.cells import Cell
from harness.report.creation import Creation, creations
from harness.report.curves import Series, curves_of
from harness.report.distances import PromptDistance, prompt_distances
from harness.report.online import OnlineCost, online_costs
from harness.report.origin import Origin, origin_of
from harness.report.reward_study import Study, study_of
from harness.report.scores import Measured, read_scores, scores_of
from harness.report.summary import ScoresBehind, Summary, summarise
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.statistics import Scores
    from harness.trainer.runs import TableRuns


@dataclass(frozen=True)
class Report:
    """A table at one profile: its cells and all that is said beside them.

    Attributes:
        table: The table.
        profile: The profile.
        seeds: Root seeds asked for.
        rows: Rows asked for, in printed order.
        cells: The cells, row by row.
        summaries: Each column beside the paper's.
        distances: Where each row's training prompts lie.
        creations: What the creator did behind each row that is trained offline.
        online: What each row that is trained online cost.
        curves: The learning curves of online runs, by run id and name.
        study: What the table's study found, None where it has none.
        origin: Where the numbers come from.
        assumptions: The settings they rest on.
        calibrations: The last calibration of each real judge that the columns read, by benchmark;
            None where there is none.
    """

    table: Table
    profile: Profile
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    cells: tuple[Cell, ...]
    summaries: tuple[Summary, ...]
    distances: tuple[PromptDistance, ...]
    creations: tuple[Creation, ...]
    online: tuple[OnlineCost, ...]
    curves: dict[str, dict[str, Series]]
    study: Study | None
    origin: Origin
    assumptions: tuple[Assumption, ...]
    calibrations: dict[str, Calibration | None]

    @cached_property
    def _by_place(self) -> dict[tuple[str, str], Cell]:
        return {(cell.row, cell.column): cell for cell in self.cells}

    def cell(self, row: Row, column: Column) -> Cell:
        """Return the cell of a row in a column."""
        return self._by_place[row.id, column.id]


def assemble(
    table_runs: TableRuns,
    cells: Sequence[Cell],
    store: Store,
    measured: Measured | None = None,
) -> Report:
    """Put together what a report says about a table.

    Args:
        table_runs: The runs behind the table.
        cells: Its cells (`harness.report.cells.build_cells`).
        store: The store with what is done.
        measured: The per-prompt scores behind the cells, where they are read already.

    Raises:
        StoreError: A stored file is not what was written.
    """
    profile, columns = table_runs.profile, table_runs.table.columns
    read = [benchmark_of(profile, column.reads) for column in columns]
    calibrated = calibration_states(profile, calibrations_dir())
    return Report(
        table=table_runs.table,
        profile=profile,
        seeds=table_runs.seeds,
        rows=table_runs.rows,
        cells=tuple(cells),
        summaries=tuple(summarise(cells, _scores_behind(table_runs, store, measured))),
        distances=tuple(prompt_distances(table_runs, store)),
        creations=tuple(creations(table_runs, store)),
        online=tuple(online_costs(table_runs, store)),
        curves=curves_of(table_runs, store),
        study=study_of(table_runs, store),
        origin=origin_of(table_runs, store, dict.fromkeys(name for name in read if name)),
        assumptions=tuple(assumptions_of(table_runs)),
        calibrations={name: found for name, found in calibrated.items() if name in read},
    )


def _scores_behind(table_runs: TableRuns, store: Store, measured: Measured | None) -> ScoresBehind:
    known = read_scores(table_runs, store) if measured is None else measured

    def behind(cell: Cell) -> Scores | None:
        column = table_runs.table.column(cell.column)
        run = table_runs.table.row(cell.row).run_id(column)
        return scores_of(known, run, cell.seeds, column.reads)

    return behind
