"""Cells: row x column, ours beside the paper's. Everyone who shows a number takes it from here.

A cell is whole or it has no number: its mean needs every seed asked for, and its gain needs every
seed of its baseline row as well. What is missing has a state instead:

    ok             every seed is judged
    partial        some seeds are judged
    not_run        no seed is judged
    failed         a stage that a missing seed needs failed the last time it ran
    not_available  the profile has no benchmark that yields the column, or the judge says that its
                   score could not be had

A failure outranks `partial`, because another run alone may not mend it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from harness.registry.profile import benchmark_of
from harness.registry.schema import Column, Row
from harness.report.origin import Makers, makers_of
from harness.report.scores import Measured, Numbers, numbers, read_scores
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

State = Literal["ok", "partial", "not_run", "failed", "not_available"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Cell:
    """One row in one column; all fields but `reason` are its JSON form.

    Attributes:
        table: Id of the table.
        row: Id of the row.
        column: Id of the column.
        profile: Name of the profile.
        scale: The profile's scale; only at `paper` may ours and the paper's be subtracted.
        seeds: Root seeds asked for.
        mean: Mean over seeds and prompts, in the column's unit.
        ci_low: Lower end of its 95% interval; over prompts only with one seed.
        ci_high: Upper end.
        baseline_row: Row that the gain is over; None on a baseline row.
        gain: Mean less the baseline row's, paired by seed and prompt (by seed where prompts are
            scored).
        gain_ci_low: Lower end of its 95% interval.
        gain_ci_high: Upper end.
        paper: The paper's value; None where it prints none.
        paper_printed: The same as printed, so `8.90` keeps its zero.
        paper_gain: Printed value less the baseline row's printed value.
        state: Whether there are numbers, and why not.
        runs: The judged runs behind the cell, in order of their seeds, each as
            `<run id>/<profile>/seed<seed>@<fingerprint>` with the first 12 digits of the
            fingerprint of the judge's stage.
        judge: What judges it; None where the profile has no benchmark that yields the column.
        reward_models: The reward models that its runs annotate with.
        creators: What evolves the prompts of its runs; empty where nothing does.
        reason: Why a cell failed or is not available, where a stage says so; not part of the JSON
            form.
    """

    table: str
    row: str
    column: str
    profile: str
    scale: str
    seeds: tuple[int, ...]
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    baseline_row: str | None
    gain: float | None
    gain_ci_low: float | None
    gain_ci_high: float | None
    paper: float | None
    paper_printed: str | None
    paper_gain: float | None
    state: State
    runs: tuple[str, ...]
    judge: str | None
    reward_models: tuple[str, ...]
    creators: tuple[str, ...]
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the cell as JSON data."""
        data = asdict(self)
        del data["reason"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        """Return the cell that `as_json` wrote."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**fields)


def build_cells(
    table_runs: TableRuns, store: Store, measured: Measured | None = None
) -> list[Cell]:
    """Return the cells of a table, row by row, columns in printed order.

    Args:
        table_runs: The runs behind the table.
        store: The store.
        measured: Their per-prompt scores, where they are read already.

    Raises:
        StoreError: A stored file is not what was written.
    """
    measured = read_scores(table_runs, store) if measured is None else measured
    failures = Failures(store)
    makers = cache(lambda run_id: makers_of(table_runs.of(run_id), store))
    return [
        _cell(table_runs, row, column, measured, failures, makers)
        for row in table_runs.rows
        for column in table_runs.table.columns
    ]


class Failures:
    """The recorded failures of stages, each looked up once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def behind(self, stage: Stage) -> str | None:
        """Return why a stage cannot be finished: the failure of it or of a stage it needs.

        None where it is done, or where nothing it still needs has failed.
        """
        if stage.fingerprint not in self._known:
            self._known[stage.fingerprint] = self._find(stage)
        return self._known[stage.fingerprint]

    def without_score(self, judge: Stage, score: str) -> str | None:
        """Return why a judge that is done gave no values of a score; None where it is not done."""
        if self._store.status(judge.fingerprint) != "done":
            return None
        return f"{judge.title}: the judge gave no values of `{score}`"

    def not_available(self, judge: Stage, score: str) -> str | None:
        """Return why a judge that is done says a score could not be had; None if it does not."""
        if self._store.status(judge.fingerprint) != "done":
            return None
        path = self._store.open(judge.fingerprint) / "summary.json"
        if not path.exists():
            return None
        lacking = json.loads(path.read_text(encoding="utf-8")).get("not_available", {})
        return None if lacking.get(score) is None else str(lacking[score])

    def _find(self, stage: Stage) -> str | None:
        status = self._store.status(stage.fingerprint)
        if status == "done":
            return None
        if status == "failed":
            failure = self._store.failure(stage.fingerprint)
            # The record can go between the two looks, when the stage is started again. Its label
            # is that of the run which failed; another run that shares the stage has its own.
            if failure is None:
                return None
            return f"'{failure['label']}' ({stage.fingerprint[:12]}): {failure['reason']}"
        reasons = map(self.behind, stage.inputs.values())
        return next((reason for reason in reasons if reason is not None), None)


def _cell(
    table_runs: TableRuns,
    row: Row,
    column: Column,
    measured: Measured,
    failures: Failures,
    makers: Callable[[str], Makers],
) -> Cell:
    table, profile, seeds = table_runs.table, table_runs.profile, table_runs.seeds
    run_id, score = row.run_id(column), column.reads
    baseline = None if row.baseline is None else table.row(row.baseline).run_id(column)
    state, reason = _state(table_runs, row, column, measured, failures)
    found = numbers(measured, run_id, baseline, seeds, score) if state == "ok" else Numbers()
    printed = row.values.get(column.id)
    return Cell(
        table=table.id,
        row=row.id,
        column=column.id,
        profile=profile.name,
        scale=profile.scale,
        seeds=seeds,
        mean=found.mean,
        ci_low=found.ci_low,
        ci_high=found.ci_high,
        baseline_row=row.baseline,
        gain=found.gain,
        gain_ci_low=found.gain_ci_low,
        gain_ci_high=found.gain_ci_high,
        paper=None if printed is None else printed.value,
        paper_printed=None if printed is None else printed.printed,
        paper_gain=table.paper_gain(row, column),
        state=state,
        runs=_runs(table_runs, row, column, measured),
        judge=_judge(table_runs, row, column),
        **vars(makers(run_id)),
        reason=reason,
    )


def _state(
    table_runs: TableRuns, row: Row, column: Column, measured: Measured, failures: Failures
) -> tuple[State, str | None]:
    benchmark = benchmark_of(table_runs.profile, column.reads)
    if benchmark is None:
        return "not_available", None
    return state_of(table_runs.behind(row, column), benchmark, column.reads, measured, failures)


def state_of(
    runs: Sequence[Run], benchmark: str, score: str, measured: Measured, failures: Failures
) -> tuple[State, str | None]:
    """Return whether a score of some runs is there for every seed, and why not if that is known.

    Args:
        runs: One run for each seed.
        benchmark: The benchmark that yields the score.
        score: The score.
        measured: Per-prompt values that are there.
        failures: The store's recorded failures.
    """
    missing = [run for run in runs if (run.run_id, run.seed, score) not in measured]
    if not missing:
        return "ok", None
    unavailable = []
    for run in missing:
        judge = run.judged[benchmark]
        why = failures.not_available(judge, score.partition("/")[0])
        reason = failures.behind(judge) or failures.without_score(judge, score)
        if why is None and reason is not None:
            return "failed", reason
        unavailable.append(why)
    if all(why is not None for why in unavailable):
        return "not_available", unavailable[0]
    return ("not_run" if len(missing) == len(runs) else "partial"), None


def _runs(table_runs: TableRuns, row: Row, column: Column, measured: Measured) -> tuple[str, ...]:
    benchmark = benchmark_of(table_runs.profile, column.reads)
    if benchmark is None:
        return ()
    return tuple(
        f"{run.run_id}/{run.profile}/seed{run.seed}@{run.judged[benchmark].fingerprint[:12]}"
        for run in table_runs.behind(row, column)
        if (run.run_id, run.seed, column.reads) in measured
    )


def _judge(table_runs: TableRuns, row: Row, column: Column) -> str | None:
    benchmark = benchmark_of(table_runs.profile, column.reads)
    if benchmark is None:
        return None
    stages = (run.judged[benchmark] for run in table_runs.behind(row, column))
    return ", ".join(dict.fromkeys(str(stage.settings["judge"]) for stage in stages))
