"""What each row cost: time, answers and tokens generated, optimiser steps, calls of the creator.

A row's cost is that of all stages behind its policy (or its prompts, where they are what is
measured), as if it had been computed alone: stages that rows share are counted in each of them.
Times are those the stages took where they ran, so they compare rows computed on one machine and
nothing else; the other numbers are the same everywhere. Means over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.registry.schema import Row
from harness.report.cells import Failures, State
from harness.report.creation import mean_if_whole
from harness.report.origin import JUDGING, made_by, stage_summary
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

Amounts = dict[str, float | None]

COUNTED = ("rollouts", "tokens", "gradient_steps", "creator_calls")

NOTHING: Amounts = dict.fromkeys(COUNTED, 0.0)


@dataclass(frozen=True)
class RowCost:
    """What one run of a row cost; means over seeds, None while the row is not whole.

    A number is None as well where a stage does not record it.

    Attributes:
        row: Id of the row.
        run: Id of the run; a row whose columns change the recipe has several.
        state: As a cell's; `not_available` where nothing is trained.
        done: Seeds whose training is there.
        seconds: Time of all stages behind the policy.
        judging_seconds: Time of answering the benchmarks and judging the answers; None while
            any is missing.
        rollouts: Answers to training prompts.
        tokens: Tokens generated for them, ends of turns included.
        gradient_steps: Optimiser steps.
        creator_calls: Calls of the creator.
    """

    row: str
    run: str
    state: State
    done: int
    seconds: float | None = None
    judging_seconds: float | None = None
    rollouts: float | None = None
    tokens: float | None = None
    gradient_steps: float | None = None
    creator_calls: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the cost as JSON data."""
        return asdict(self)


class Costs:
    """Reads what stages cost, each once, however many rows and tables share it."""

    def __init__(self, store: Store) -> None:
        """Read from a store."""
        self._store = store
        self._known: dict[str, Amounts] = {}

    def of(self, table_runs: TableRuns) -> list[RowCost]:
        """Return the cost of every run of every row of a table, in printed order.

        Raises:
            StoreError: A stored file is not what was written.
        """
        failures = Failures(self._store)
        return [
            self._row(table_runs, row, run_id, failures)
            for row in table_runs.rows
            for run_id in dict.fromkeys(row.run_id(column) for column in table_runs.table.columns)
        ]

    def _row(self, table_runs: TableRuns, row: Row, run_id: str, failures: Failures) -> RowCost:
        runs = [table_runs.runs[run_id, seed] for seed in table_runs.seeds]
        if not made_by(runs[0]):
            judging = mean_if_whole([self._judging(run) for run in runs])
            return RowCost(row.id, run_id, "not_available", 0, judging_seconds=judging)
        missing = [self._missing(run) for run in runs]
        done = missing.count([])
        if done < len(runs):
            failed = any(failures.behind(stage) for stages in missing for stage in stages)
            state: State = "failed" if failed else "partial" if done else "not_run"
            return RowCost(row.id, run_id, state, done)
        facts = [self._facts(run) for run in runs]
        means = {name: mean_if_whole([seed[name] for seed in facts]) for name in facts[0]}
        return RowCost(row.id, run_id, "ok", done, **means)

    def _missing(self, run: Run) -> list[Stage]:
        return [s for s in made_by(run) if self._store.status(s.fingerprint) != "done"]

    def _facts(self, run: Run) -> Amounts:
        stages = made_by(run)
        found: Amounts = {
            "seconds": self._seconds(stages),
            "judging_seconds": self._judging(run),
        }
        # An online segment says what its run has cost since it began.
        last = [stage for stage in stages if stage.kind != "online"] + [
            stage for stage in run.training[-1:] if stage.kind == "online"
        ]
        amounts = [self._amounts(stage) for stage in last]
        for name in COUNTED:
            values = [amount[name] for amount in amounts]
            known = [value for value in values if value is not None]
            found[name] = sum(known) if len(known) == len(values) else None
        return found

    def _judging(self, run: Run) -> float | None:
        judges = list(run.judged.values())
        answers = [stage for judge in judges for stage in judge.inputs.values()]
        stages = [*judges, *(stage for stage in answers if stage.kind in JUDGING)]
        if any(self._store.status(stage.fingerprint) != "done" for stage in stages):
            return None
        return self._seconds(stages)

    def _seconds(self, stages: Iterable[Stage]) -> float:
        return sum(self._store.manifest(stage.fingerprint)["wall_s"] for stage in stages)

    def _amounts(self, stage: Stage) -> Amounts:
        if stage.fingerprint not in self._known:
            self._known[stage.fingerprint] = NOTHING | self._read(stage)
        return self._known[stage.fingerprint]

    def _read(self, stage: Stage) -> Amounts:
        """Return what a stage of a kind that costs anything besides time says of it."""
        if stage.kind == "generate":
            folder = self._store.open(stage.fingerprint)
            longest = cast(int, stage.settings["max_new_tokens"])
            rollouts, tokens = _generated(folder / "completions.parquet", longest)
            return {"rollouts": rollouts, "tokens": tokens}
        if stage.kind == "rewrite":  # revisions are counted, their tokens are not
            return {"rollouts": _number(stage_summary(self._store, stage), "pairs"), "tokens": None}
        if stage.kind == "evolve":
            return {"creator_calls": _number(stage_summary(self._store, stage), "calls")}
        if stage.kind == "train":
            log = self._store.open(stage.fingerprint) / "log.json"
            summary = json.loads(log.read_text(encoding="utf-8"))["summary"]
            return {"gradient_steps": _number(summary, "steps")}
        if stage.kind == "online":
            summary = stage_summary(self._store, stage)
            return {name: _number(summary, name) for name in COUNTED}
        return {}


def _generated(path: Path, longest: int) -> tuple[float, float]:
    """Return how many answers a file holds, and their tokens, ends of turns included.

    The file counts the tokens before the end; an answer shorter than the longest has ended.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        tokens = file.read(columns=["n_tokens"]).column("n_tokens")
    ended = pc.sum(pc.less(tokens, longest)).as_py() or 0
    return float(len(tokens)), float((pc.sum(tokens).as_py() or 0) + ended)


def _number(summary: dict[str, Any], name: str) -> float | None:
    value = summary.get(name)
    return None if value is None else float(value)
