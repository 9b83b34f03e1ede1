"""Stages computed in this process: what one of their own proves is tested with the engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns
from harness.pipeline.steps import FUNCTIONS
from harness.runtime import Engine, Plan, Stage, Store
from harness.runtime.worker import StageWorker


def trained(runs: TableRuns, work: Path) -> Store:
    """Compute the policies of a table's runs; return the store they are in."""
    return compute(work, *(run.training[-1] for run in runs.runs.values()))


def of(runs: TableRuns, row: str) -> Run:
    """Return the run of a row with seed 0."""
    table = runs.table
    return runs.runs[table.row(row).run_id(table.columns[0]), 0]


def compute(work: Path, *targets: Stage) -> Store:
    """Compute stages with all that they need; return the store they are in."""
    store = Store(work / "store")
    answers: list[Mapping[str, Any]] = []
    setup = Engine(store, FUNCTIONS, work / "logs", jobs=1).setup
    worker = StageWorker(setup, answers.append)
    for stage in Plan(targets):
        worker.compute(stage.record)
        assert answers[-1]["event"] == "finished", answers[-1]
    return store
