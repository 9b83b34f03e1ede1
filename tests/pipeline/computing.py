"""Stages computed in this process: what one of their own proves is tested with the engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from staging import given, read_json, run_stage

from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns
from harness.pipeline.steps import FUNCTIONS
from harness.registry.profile import Profile
from harness.runtime import Engine, Plan, Stage, Store
from harness.runtime.worker import StageWorker
from harness.worlds.stage_io import Rows, read_rows

__all__ = ["given", "read_json", "run_stage"]  # these are `staging`'s


def small(profile: Profile, x: int = 16, *, segments: int = 1, **changes: Any) -> Profile:
    """Return a profile with so many prompts an iteration and segments of each x.

    It has two answers to each prompt and no benchmarks, where `changes` have no others.
    """
    training = {
        name: getattr(profile.training, name).model_copy(update={"segments": segments})
        for name in ("rloo", "oaif")
    }
    few: dict[str, Any] = {
        "x": x,
        "benchmarks": {},
        "generation": profile.generation.model_copy(update={"n": 2}),
        "training": profile.training.model_copy(update=training),
    }
    return profile.model_copy(update=few | changes)


def of(runs: TableRuns, row: str) -> Run:
    """Return the run of a row with seed 0."""
    table = runs.table
    return runs.runs[table.row(row).run_id(table.columns[0]), 0]


def compute(work: Path, *targets: Stage) -> Store:
    """Compute stages with all that they need; return the store they are in."""
    store, failure = tried(work, *targets)
    assert failure is None, failure
    return store


def tried(work: Path, *targets: Stage) -> tuple[Store, str | None]:
    """Compute stages up to the first that fails; return the store, and why that failed."""
    store = Store(work / "store")
    answers: list[Mapping[str, Any]] = []
    setup = Engine(store, FUNCTIONS, work / "logs", jobs=1).setup
    worker = StageWorker(setup, answers.append)
    worker.preload()  # or every trainer collects garbage among all that is imported
    for stage in Plan(targets):
        worker.compute(stage.record)
        if answers[-1]["event"] != "finished":
            return store, answers[-1]["reason"]
    return store, None


def rows(store: Store, stage: Stage, name: str) -> Rows:
    """Return the rows of a file that a stage wrote."""
    return read_rows(store.open(stage.fingerprint) / f"{name}.parquet")


def summary(store: Store, stage: Stage) -> dict[str, Any]:
    return read_json(store.open(stage.fingerprint) / "summary.json")


def online_rows(store: Store, run: Run) -> Rows:
    """Return what an online run was trained on, step by step."""
    return [row for stage in run.training for row in rows(store, stage, "trained")]


def evolve_of(run: Run) -> Stage:
    """Return the stage that evolves prompts in a run's second iteration."""
    mixed = run.iterations[1].prompts
    return mixed.inputs["evolved"].inputs["completions"].inputs["prompts"]
