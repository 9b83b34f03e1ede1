"""Cells (row x column), ours next to the paper's: complete, or without numbers and a state.

    ok             every seed is judged
    partial        some seeds are judged
    not_run        no seed is judged
    failed         a stage that a missing seed needs failed the last time it ran
    not_available  the profile has no benchmark for the column, or the judge reports that the score
                   could not be obtained

A failure takes precedence over `partial`, because rerunning alone may not fix it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import Column, Row, Table
from harness.report.model import Cell, State
from harness.report.origin import makers_of, stage_summary
from harness.report.scores import Measured, Numbers, RunScores
from harness.runtime import Stage, Store


def cells_of(table_runs: TableRuns, store: Store, scores: RunScores) -> list[Cell]:
    """Return a table's cells, row by row, columns in printed order."""
    table, profile, measured = table_runs.table, table_runs.profile, scores.measured
    failures, cells = Failures(store), []
    makers = cache(lambda run_id: makers_of(table_runs.of(run_id), store))
    for row, column in itertools.product(table_runs.rows, table.columns):
        run_id, score = row.run_id(column), column.reads
        behind, benchmark = table_runs.of(run_id), benchmark_of(profile, score)
        ours = {**vars(scores.numbers(row.id, column.id)), "state": "not_available"}
        if benchmark is not None:
            found = state_of(behind, benchmark, score, measured, failures)
            judges = dict.fromkeys(str(run.judged[benchmark].settings["judge"]) for run in behind)
            judged = (
                trace_of(run, benchmark) for run in behind if (run_id, run.seed, score) in measured
            )
            ours |= {"state": found.state, "reason": found.reason}
            ours |= {"judge": ", ".join(judges), "runs": tuple(judged)}
        ours |= makers(run_id)
        cells.append(declared_cell(table, profile, table_runs.seeds, row, column, **ours))
    return cells


def trace_of(run: Run, benchmark: str) -> str:
    """Return a run's name with the fingerprint of a benchmark's judgments, as cells have it."""
    return f"{run.name}@{run.judged[benchmark].fingerprint[:12]}"


def measured_cell(cell: Cell, scores: RunScores) -> Cell:
    """Return a cell with its numbers at its seeds; the scores do not tell why it has none."""
    numbers, said = scores.at(cell.seeds).numbers(cell.row, cell.column), dict[str, Any]()
    if numbers != Numbers():
        said = {"state": "ok", "reason": None}
    elif cell.state == "ok":
        said = {"state": "not_run"}
    return cell.model_copy(update={**vars(numbers), **said})


class Availability(NamedTuple):
    """Availability of data: a cell's state, the seeds done, and why others are missing."""

    state: State
    done: int
    reason: str | None = None


class Failures:
    """The recorded failures of stages, each looked for once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.behind = cache(self._behind)

    def state(self, needed: Sequence[Sequence[Stage]]) -> Availability:
        """Return the state of numbers that need each seed's stages."""
        if not all(needed):
            return Availability("not_available", 0)
        missing = [
            [s for s in stages if self._store.status(s.fingerprint) != "done"] for stages in needed
        ]
        done = missing.count([])
        if done == len(needed):
            return Availability("ok", done)
        reasons = map(self.behind, itertools.chain.from_iterable(missing))
        if (why := next(filter(None, reasons), None)) is not None:
            return Availability("failed", done, why)
        return Availability("partial" if done else "not_run", done)

    def without(self, judge: Stage, score: str) -> tuple[State, str | None]:
        """Return the state of a score that a judge has not given, and the reason if known."""
        if self._store.status(judge.fingerprint) != "done":
            why = self.behind(judge)
            return ("not_run" if why is None else "failed"), why
        lacking = stage_summary(self._store, judge).get("not_available", {})
        why = lacking.get(score.partition("/")[0])
        if why is not None:
            return "not_available", str(why)
        return "failed", f"{judge.title}: the judge gave no values of `{score}`"

    def _behind(self, stage: Stage) -> str | None:
        """Return the failure that blocks a stage, its own or a dependency's; None if none does."""
        status = self._store.status(stage.fingerprint)
        if status == "done":
            return None
        if status == "failed":
            failure = self._store.failure(stage.fingerprint)
            # The record is gone if the stage was restarted since. Its label is that of the run
            # that failed; other runs that share the stage have their own.
            if failure is not None:
                return f"'{failure['label']}' ({stage.fingerprint[:12]}): {failure['reason']}"
        reasons = map(self.behind, stage.inputs.values())
        return next((reason for reason in reasons if reason is not None), None)


def declared_cell(
    table: Table, profile: Profile, seeds: Sequence[int], row: Row, column: Column, **ours: Any
) -> Cell:
    """Build a cell from its declaration, the paper's values, and ours."""
    printed = row.values.get(column.id)
    return Cell(
        table=table.id,
        row=row.id,
        column=column.id,
        profile=profile.name,
        scale=profile.scale,
        seeds=tuple(seeds),
        baseline_row=row.baseline,
        paper=None if printed is None else printed.value,
        paper_printed=None if printed is None else printed.printed,
        paper_gain=table.paper_gain(row, column),
        paper_sign=row.paper_sign if column == table.main_column else None,
        **ours,
    )


def state_of(
    runs: Sequence[Run], benchmark: str, score: str, measured: Measured, failures: Failures
) -> Availability:
    """Return the state of a benchmark's score over runs, one per seed."""
    missing = [run for run in runs if (run.run_id, run.seed, score) not in measured]
    done = len(runs) - len(missing)
    if not missing:
        return Availability("ok", done)
    lacking = [failures.without(run.judged[benchmark], score) for run in missing]
    for state, why in lacking:
        if state == "failed":
            return Availability(state, done, why)
    if all(state == "not_available" for state, _ in lacking):
        return Availability("not_available", done, lacking[0][1])
    return Availability("partial" if done else "not_run", done)
