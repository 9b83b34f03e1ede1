"""RUNNING means that something computes it now, and nobody's runs are touched by another's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from toy_table import contents, filled, stages, toy_runs, toy_state, toy_tracker, write

from harness.pipeline.runs import TableRuns
from harness.runtime import StageProgress, Store
from harness.runtime.files import hold
from harness.tracking import Mlflow, TableState, ui_command
from harness.tracking.connection import default_uri
from harness.tracking.record import COMPUTED_IN, ID

NewWorkDir = Callable[[str], Path]
RUNS = toy_runs((0,))
STATE = toy_state(RUNS)
FIRST, EVA = "table4/micro | dpo-h1-seed0", "table4/micro | dpo-eva-a_min-seed0"
ROOT = Path(__file__).resolve().parents[2]

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path += [sys.argv[1], str(Path(sys.argv[1]).parent)]
from toy_table import stages, toy_runs, toy_tracker, write
from harness.runtime import StageFinished, Store
work, runs = Path(sys.argv[2]), toy_runs((0,))
store = Store(work / "store")
tracker = toy_tracker(work, store, every_s=0.0)
tracker.start([runs])
for stage in stages(runs):
    write(store, stage)
    tracker.observe(StageFinished(stage, 0.0))
    if stage.kind == "train":
        break
os.kill(os.getpid(), signal.SIGKILL)
"""


def statuses(work_dir: Path) -> dict[str, str]:
    return {name: run["info"][0] for name, run in contents(work_dir).items()}


def only(runs: TableRuns, *names: str) -> TableRuns:
    rows = tuple(row for row in runs.rows if row.id in names)
    wanted = {row.run_id(column) for row in rows for column in runs.table.columns}
    kept = {key: run for key, run in runs.runs.items() if key[0] in wanted}
    return TableRuns(runs.table, runs.profile, runs.seeds, rows, kept)


@pytest.fixture
def left(tmp_path: Path, empty_database: Path) -> Path:
    """Return a work folder in which a process was killed while it computed two runs."""
    (tmp_path / "mlflow.db").write_bytes(empty_database.read_bytes())
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=False)
    assert done.returncode == -9
    assert set(statuses(tmp_path).values()) == {"RUNNING"}
    return tmp_path


def test_what_a_killed_process_left_running_is_ended_where_nobody_computes(left: Path) -> None:
    """Not by whoever looks while another command is tracked; then by the pages, and by a sync."""
    store = Store(left / "store")
    tracker = toy_tracker(left, store)
    with hold(Mlflow(left).live_lock):
        ui_command(left, 5123)
        tracker.sync([TableState(RUNS)])
        assert set(statuses(left).values()) == {"RUNNING"}
    ui_command(left, 5123)
    assert statuses(left) == {FIRST: "KILLED", EVA: "KILLED"}
    for stage in stages(RUNS):
        if store.status(stage.fingerprint) != "done":
            write(store, stage)
    assert tracker.sync([STATE]) == {"replaced": 2, "created": 2}
    assert {statuses(left)[name] for name in (FIRST, EVA)} == {"FINISHED"}


def test_a_run_that_is_stopped_is_not_running(tmp_path: Path, new_work_dir: NewWorkDir) -> None:
    store, work = Store(tmp_path / "store"), new_work_dir("a")
    tracker = toy_tracker(work, store, every_s=0.0)
    tracker.start([RUNS])
    write(store, stages(RUNS)[0])
    training = RUNS.runs["dpo-h1", 0].training[0]
    tracker.observe(StageProgress(training, 1, {"loss": 0.5}))
    tracker.close()
    assert statuses(work) == {FIRST: "KILLED", EVA: "KILLED"}


def test_one_command_at_a_time_is_tracked_live(tmp_path: Path, new_work_dir: NewWorkDir) -> None:
    """What the other computes is there when it ends."""
    store, work = filled(tmp_path / "store", RUNS), new_work_dir("a")
    first, second = (toy_tracker(work, store) for _ in range(2))
    first.start([RUNS])
    second.start([RUNS])
    assert not second._is_live
    second.finish(lambda: [STATE])
    assert statuses(work)[FIRST] == "FINISHED"
    first.finish(lambda: [STATE])
    third = toy_tracker(work, store)
    third.start([RUNS])
    assert third._is_live
    third.close()


def test_a_run_that_nobody_asked_for_does_not_appear(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """Row `dpo-1` is computed, whose every stage but its judges row `eva-a_min` needs as well."""
    work = new_work_dir("a")
    store = filled(tmp_path / "store", only(RUNS, "dpo-1"))
    toy_tracker(work, store).sync([TableState(RUNS)])
    assert statuses(work) == {FIRST: "FINISHED"}


def test_runs_of_other_work_folders_are_left_alone(new_work_dir: NewWorkDir) -> None:
    """On the same server; and what is nothing of the harness."""
    work = new_work_dir("a")
    client = MlflowClient(default_uri(work))
    experiment = client.create_experiment("table4/micro")
    runs = [
        client.create_run(experiment, 0, tags).info.run_id
        for tags in ({ID: "1", COMPUTED_IN: "elsewhere"}, {ID: "2"}, {})
    ]
    with hold(Mlflow(work).live_lock):
        pass
    ui_command(work, 5123)
    assert {client.get_run(run).info.status for run in runs} == {"RUNNING"}
