"""RUNNING means that something computes it now, and nobody's runs are touched by another's."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from toy_table import SERVED, contents, filled, mark, stages, toy_cells, toy_runs, write

from harness.pipeline.runs import TableRuns
from harness.runtime import StageProgress, Store
from harness.tracking import TableState, Tracker, ui_command
from harness.tracking.connection import Marks, default_uri
from harness.tracking.record import ID

NewWorkDir = Callable[[str], Path]
RUNS = toy_runs((0,))
STATE = TableState(RUNS, toy_cells())
FIRST, EVA = "runs/micro | dpo-h1 · seed 0", "runs/micro | dpo-eva-a_min · seed 0"
ROOT = Path(__file__).resolve().parents[2]

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from toy_table import SERVED, stages, toy_runs, write
from harness.runtime import StageFinished, Store
from harness.tracking import Tracker
work, runs = Path(sys.argv[2]), toy_runs((0,))
store = Store(work / "store")
tracker = Tracker(work, store, SERVED, flush_s=0.0)
tracker.start([runs])
for stage in stages(runs):
    write(store, stage)
    tracker.observe(StageFinished(stage, 0.0))
    if stage.kind == "train":
        break
tracker._live._queue.put(None)
tracker._live._thread.join()
os.kill(os.getpid(), signal.SIGKILL)
"""


def statuses(work_dir: Path) -> dict[str, str]:
    return {name: run["info"][0] for name, run in contents(work_dir).items()}


def only(runs: TableRuns, *names: str) -> TableRuns:
    """Return the runs of some rows only."""
    rows = tuple(row for row in runs.rows if row.id in names)
    wanted = {row.run_id(column) for row in rows for column in runs.table.columns}
    kept = {key: run for key, run in runs.runs.items() if key[0] in wanted}
    return TableRuns(runs.table, runs.profile, runs.seeds, rows, kept)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """Return a work folder in which a process was killed while it computed two runs."""
    work = tmp_path_factory.mktemp("killed")
    (work / "mlflow.db").write_bytes(empty_database.read_bytes())
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(work)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=False)
    assert done.returncode == -9
    assert set(statuses(work).values()) == {"RUNNING"}
    return work


@pytest.fixture
def left(killed: Path) -> Path:
    """Return it as it was left, whose marks are the very files that the process had locked.

    It stays at its place, since MLflow keeps the address of its artifacts, and so does the file of
    its database, which MLflow keeps open as long as this process lives.
    """
    kept = killed.with_name("kept")
    if not kept.exists():
        _copy(killed, kept)
    for path in killed.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    _copy(kept, killed)
    return killed


def _copy(source: Path, target: Path) -> None:
    """Copy a work folder onto another; its marks are linked, its database is copied by SQLite."""

    def copied(file: str, place: str) -> None:
        alike = shutil.copy2 if "marks" not in Path(file).parts else os.link
        alike(file, place)

    database = "mlflow.db"
    without = shutil.ignore_patterns(f"{database}*")
    shutil.copytree(source, target, ignore=without, copy_function=copied, dirs_exist_ok=True)
    with (
        closing(sqlite3.connect(source / database)) as old,
        closing(sqlite3.connect(target / database)) as new,
    ):
        old.backup(new)


def end_by_sync(work: Path) -> None:
    Tracker(work, Store(work / "store"), SERVED).sync([STATE])


def end_by_sync_of_nothing(work: Path) -> None:
    """Of tables with which the runs have nothing to do any more."""
    Tracker(work, Store(work / "store"), SERVED).sync([])


def end_by_ui(work: Path) -> None:
    ui_command(work, 5123)


def end_by_a_run(work: Path) -> None:
    """Of a table that has nothing left to compute."""
    Tracker(work, Store(work / "store"), SERVED).finish(list)


@pytest.mark.parametrize("end", [end_by_sync, end_by_sync_of_nothing, end_by_ui, end_by_a_run])
def test_what_a_killed_process_left_running_is_ended(left: Path, end: Callable[..., Any]) -> None:
    end(left)
    ended = statuses(left)
    assert {ended[FIRST], ended[EVA]} == {"KILLED"}
    store = Store(left / "store")
    Tracker(left, store, SERVED).sync([STATE])
    assert {statuses(left)[name] for name in (FIRST, EVA)} == {"KILLED"}
    assert not Marks(left).read().ended
    for stage in stages(RUNS):
        if store.status(stage.fingerprint) != "done":
            write(store, stage)
    Tracker(left, store, SERVED).sync([STATE])
    assert {statuses(left)[name] for name in (FIRST, EVA)} == {"FINISHED"}


def test_what_another_process_computes_stays_running(left: Path) -> None:
    another = mark(left, only(RUNS, "dpo-1"))
    for end in (end_by_sync, end_by_sync_of_nothing, end_by_ui, end_by_a_run):
        end(left)
        found = statuses(left)
        assert (found[FIRST], found[EVA]) == ("RUNNING", "KILLED")
    another.close()
    end_by_ui(left)
    assert statuses(left)[FIRST] == "KILLED"


def test_a_run_that_is_stopped_is_not_running(tmp_path: Path, new_work_dir: NewWorkDir) -> None:
    store, work = Store(tmp_path / "store"), new_work_dir("a")
    tracker = Tracker(work, store, SERVED, flush_s=0.0)
    tracker.start([RUNS])
    write(store, stages(RUNS)[0])
    training = RUNS.runs["dpo-h1", 0].training[0]
    tracker.observe(StageProgress(training, 1, {"loss": 0.5}))
    tracker.close(60)
    assert statuses(work) == {FIRST: "KILLED", EVA: "KILLED"}
    assert contents(work)[FIRST]["tags"]["state"] == "unfinished"


def test_a_run_that_nobody_asked_for_does_not_appear(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """Row `dpo-1` is computed, whose every stage but its judges row `eva-a_min` needs as well."""
    work, asked = new_work_dir("a"), only(RUNS, "dpo-1")
    store = filled(tmp_path / "store", asked)
    tracker = Tracker(work, store, SERVED)
    mark(work, asked).close()
    tracker.finish(lambda: [TableState(RUNS, [])], timeout_s=60)
    assert statuses(work) == {FIRST: "FINISHED"}
    tracker.sync([TableState(RUNS, [])])
    assert statuses(work) == {FIRST: "FINISHED"}
    tracker.start([RUNS])  # and now somebody does
    tracker.sync([TableState(RUNS, [])])
    assert statuses(work) == {FIRST: "FINISHED", EVA: "RUNNING"}
    tracker.close(60)


def test_what_is_asked_for_less_stays_finished(tmp_path: Path, new_work_dir: NewWorkDir) -> None:
    """A run for another seed of one row changes no MLflow run of the first seed."""
    work, both = new_work_dir("a"), toy_runs((0, 7))
    store = filled(tmp_path / "store", RUNS)
    tracker = Tracker(work, store, SERVED)
    tracker.sync([STATE])
    before = contents(work)
    less = only(toy_runs((7,)), "dpo-1")
    mark(work, less).close()
    for stage in stages(less):
        if store.status(stage.fingerprint) != "done":
            write(store, stage)
    tracker.finish(lambda: [TableState(less, []), STATE], timeout_s=60)
    tracker.sync([TableState(both, toy_cells())])
    after = contents(work)
    assert after.keys() - before.keys() == {"runs/micro | dpo-h1 · seed 7"}
    assert {name: after[name] for name in before if name.startswith("runs/")} == {
        name: run for name, run in before.items() if name.startswith("runs/")
    }


def test_runs_that_this_work_folder_does_not_know_are_left_alone(new_work_dir: NewWorkDir) -> None:
    """Those of another work folder on the same server, and what is nothing of the harness."""
    work = new_work_dir("a")
    client = MlflowClient(default_uri(work))
    experiment = client.create_experiment("runs/micro")
    runs = [client.create_run(experiment, 0, tags).info.run_id for tags in ({ID: "1"}, {})]
    Marks(work).begin({"2": ()}).close()
    ui_command(work, 5123)
    assert {client.get_run(run).info.status for run in runs} == {"RUNNING"}


def test_marks_are_known_as_long_as_their_process_lives_and_kept_afterwards(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    first = marks.begin({"a": ["x"], "b": []})
    second = marks.begin({"a": ["y"]})
    assert marks.read().computing == {"a", "b"}
    second.close()
    asked = marks.read()
    assert asked.computing == {"a", "b"}
    assert asked.benchmarks["a"] == {"x", "y"}
    assert len(asked.ended) == 1
    marks.gather(asked)
    first.close()
    first.close()
    (tmp_path / "tracking" / "marks" / "torn.mark").write_text('{"a": [')
    asked = marks.read()
    assert not asked.computing
    assert len(asked.ended) == 2
    marks.gather(asked)
    marks.gather(asked)  # another process may have been faster
    after = marks.read()
    assert dict(after.benchmarks) == {"a": frozenset("xy"), "b": frozenset()}
    assert not after.ended
