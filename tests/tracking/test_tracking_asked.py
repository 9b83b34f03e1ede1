"""One run that two tables judge on different benchmarks is one MLflow run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from toy_table import contents, stages, toy_runs, toy_state, toy_tracker, write

from harness.pipeline.runs import TableRuns
from harness.runtime import Store
from harness.tracking import TableState
from harness.tracking.runs import run_identity

NewWorkDir = Callable[[str], Path]
HARD, RATED = ("arena_hard",), ("mt_bench",)
NAME = "runs/micro | dpo-eva-a_min · seed 0"


def asking(*benchmarks: str) -> TableRuns:
    """Plan the toy table with some benchmarks wanted."""
    runs = toy_runs((0,))
    asked = {key: run.asking(benchmarks) for key, run in runs.runs.items()}
    return TableRuns(runs.table, runs.profile, runs.seeds, runs.rows, asked)


def state(*benchmarks: str) -> TableState:
    return toy_state(asking(*benchmarks))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in which one of two benchmarks is judged."""
    store = Store(tmp_path / "store")
    for stage in stages(asking(*HARD)):
        write(store, stage)
    return store


def test_what_is_asked_is_no_part_of_a_runs_identity() -> None:
    one, other = (asking(*names).runs["dpo-h1", 0] for names in (HARD, RATED))
    assert one.targets != other.targets
    assert run_identity(one) == run_identity(other)


def test_a_run_has_the_scores_of_every_table_that_judged_it(
    store: Store, new_work_dir: NewWorkDir
) -> None:
    work = new_work_dir("a")
    toy_tracker(work, store).sync([state(*HARD)])
    before = contents(work)[NAME]
    assert before["info"][0] == "FINISHED"
    assert "ours/ah_wr" in before["metrics"]
    assert "ours/mt_avg" not in before["metrics"]
    assert before["tags"]["benchmarks"] == "toy-1/arena_hard@dd"
    for stage in stages(asking(*RATED)):
        if store.status(stage.fingerprint) != "done":
            write(store, stage)
    toy_tracker(work, store).sync([state(*RATED)])
    after = contents(work)[NAME]
    assert {"ours/ah_wr", "ours/mt_avg"} <= after["metrics"].keys()
    assert after["tags"]["benchmarks"] == "toy-1/arena_hard@dd, toy-1/mt_bench@dd"
    assert toy_tracker(work, store).sync([state(*HARD)]) == {"unchanged": 5}


def test_a_run_is_finished_when_all_that_any_table_asks_is(
    store: Store, new_work_dir: NewWorkDir
) -> None:
    """In whichever order the tables come."""
    for name, states in (
        ("a", [state(*HARD), state(*RATED)]),
        ("b", [state(*RATED), state(*HARD)]),
    ):
        work = new_work_dir(name)
        toy_tracker(work, store).sync(states)
        assert contents(work)[NAME]["info"][0] == "KILLED"
