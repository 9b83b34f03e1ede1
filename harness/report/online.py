"""What each row of online training cost, and what it was trained on.

The last segment of an online run says what the run has cost since it began, children's rollouts
included; the shares are over all prompts the run was trained on. Means over seeds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.registry.schema import Row
from harness.report.cells import Failures, State
from harness.report.creation import mean_if_whole
from harness.report.origin import stage_summary
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

COSTS = ("rollouts", "tokens", "gradient_steps", "creator_calls")


@dataclass(frozen=True)
class OnlineCost:
    """What one online run of a row cost; means over seeds, None while the row is not whole.

    Attributes:
        row: Id of the row.
        run: Id of the run; a row whose columns change the recipe has several.
        state: As a cell's.
        done: Seeds whose training is there.
        rollouts: Rollouts, those of rewrites included.
        tokens: Tokens generated for them.
        gradient_steps: Optimiser steps.
        creator_calls: Calls of the creator.
        dropped: Share of the rewrites asked for that were given up after all retries; None where
            nothing evolves.
        evolved_share: Share of the prompts trained on that were evolved.
        buffer: Prompts left in the buffer at the end.
    """

    row: str
    run: str
    state: State
    done: int
    rollouts: float | None = None
    tokens: float | None = None
    gradient_steps: float | None = None
    creator_calls: float | None = None
    dropped: float | None = None
    evolved_share: float | None = None
    buffer: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the costs as JSON data."""
        return asdict(self)


def online_costs(table_runs: TableRuns, store: Store) -> list[OnlineCost]:
    """Return the costs of every online run of every row, in printed order.

    Raises:
        StoreError: A stored file is not what was written.
    """
    failures = Failures(store)
    return [
        _cost(table_runs, row, run_id, store, failures)
        for row in table_runs.rows
        for run_id in dict.fromkeys(row.run_id(column) for column in table_runs.table.columns)
        if table_runs.runs[run_id, table_runs.seeds[0]].recipe.is_online
    ]


def _cost(
    table_runs: TableRuns, row: Row, run_id: str, store: Store, failures: Failures
) -> OnlineCost:
    runs = [table_runs.runs[run_id, seed] for seed in table_runs.seeds]
    missing = [_missing(run, store) for run in runs]
    done = missing.count([])
    if done < len(runs):
        failed = any(failures.behind(stage) for stages in missing for stage in stages)
        state: State = "failed" if failed else "partial" if done else "not_run"
        return OnlineCost(row.id, run_id, state, done)
    facts = [_facts(run, store) for run in runs]
    means = {name: mean_if_whole([seed[name] for seed in facts]) for name in facts[0]}
    return OnlineCost(row.id, run_id, "ok", done, **means)


def _missing(run: Run, store: Store) -> list[Stage]:
    return [stage for stage in run.training if store.status(stage.fingerprint) != "done"]


def _facts(run: Run, store: Store) -> dict[str, float | None]:
    said = [stage_summary(store, stage) for stage in run.training]
    trained = [sum(segment["phases"].values()) for segment in said]
    evolved = sum(n * s["evolved_share"] for n, s in zip(trained, said, strict=True))
    dropped = sum(segment["dropped"] for segment in said)
    children = dropped + sum(segment["children"] for segment in said)
    return {
        **{name: float(said[-1][name]) for name in COSTS},
        "dropped": dropped / children if children else None,
        "evolved_share": evolved / sum(trained),
        "buffer": float(said[-1]["buffer"]),
    }
