"""Stages computed in this process: what one of their own proves is tested with the engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.pipeline.steps import FUNCTIONS
from harness.runtime import Engine, Plan, Stage, Store
from harness.runtime.worker import StageWorker


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
