"""Online runs in MLflow: the segments of a run are one curve."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toy_identities import toy_planned
from toy_table import contents, toy_tracker, write

from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.runtime import Plan, Stage, Store
from harness.tracking import TableState

NewWorkDir = Callable[[str], Path]
NAME = "table1/micro | rloo-eva-2x-seed0"


TABLE = load_tables()["table1"]
PROFILE = load_profiles()["micro"].model_copy(update={"benchmarks": {}})
RUNS = toy_planned(TABLE, PROFILE, (0,), [TABLE.row("rloo-eva-2x")])
"""One row of table 1: a run of two segments."""

FIRST, SECOND = RUNS.runs["rloo-eva-2x", 0].training


def write_all(store: Store, target: Stage) -> None:
    """Store a stage and all that it needs."""
    for stage in Plan([target]).pending(store):
        write(store, stage)


def curve(work_dir: Path) -> list[int]:
    """Return the steps of the reward curve that a database holds."""
    held: dict[str, Any] = contents(work_dir)[NAME]
    return [point[0] for point in held["metrics"].get("train/reward", [])]


def test_segments_are_one_curve_over_the_steps_of_the_run(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    store, work_dir = Store(tmp_path / "store"), new_work_dir("work")
    write_all(store, SECOND)
    toy_tracker(work_dir, store).sync([TableState(RUNS)])
    first, second = (stage.settings["first_step"] for stage in (FIRST, SECOND))
    assert (first, second) == (1, 51)
    assert curve(work_dir) == [1, 2, 3, 51, 52, 53]
