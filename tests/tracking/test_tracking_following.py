"""Tracking while stages run: the same as a sync afterwards, and never in the way."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_table import contents, stages, toy_runs, toy_state, toy_tracker, write

from harness.errors import UserError
from harness.pipeline.runs import TableRuns
from harness.quiet import QUIET, worker_environment
from harness.runtime import Stage, Store
from harness.runtime.plan import StageFinished
from harness.tracking import Mlflow, TableState, Tracker, TrackingError, ui_command
from harness.tracking.connection import default_uri

NewWorkDir = Callable[[str], Path]
PATIENCE_S = 20.0
"""MLflow's own defaults would retry for minutes; ours give up within a second."""

NOWHERE = "http://user:secret@127.0.0.1:9"
RUNS = toy_runs((0,))
FIRST, EVA = "table4/micro | dpo-h1-seed0", "table4/micro | dpo-eva-a_min-seed0"
STATE = toy_state(RUNS)


def compute(tracker: Tracker, store: Store, stage: Stage) -> None:
    """Report a stage as the engine does."""
    write(store, stage)
    tracker.observe(StageFinished(stage, 0.0))


def synced(work_dir: Path, store: Store) -> dict[str, object]:
    toy_tracker(work_dir, store).sync([STATE])
    return contents(work_dir)


@pytest.mark.parametrize("every_s", [0.0, 60.0])
@pytest.mark.parametrize("turn", [1, -1])
def test_a_run_tracked_as_it_is_computed_and_synced_equals_one_only_synced(
    tmp_path: Path, new_work_dir: NewWorkDir, every_s: float, turn: int
) -> None:
    """Whether every stage is written by itself, in any order, or all at the end."""
    store = Store(tmp_path / "store")
    live, after = new_work_dir("live"), new_work_dir("after")
    threads = threading.enumerate()
    tracker = toy_tracker(live, store, every_s=every_s)
    tracker.follow([RUNS])
    for stage in stages(RUNS)[::turn]:
        compute(tracker, store, stage)
    tracker.finish(lambda: [STATE])
    assert threading.enumerate() == threads
    assert contents(live) == synced(after, store)
    assert toy_tracker(live, store).sync([STATE]) == {"unchanged": 4}


def test_curves_are_there_once_their_stage_is_finished(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """In both runs that share a training; a later iteration follows the first in one curve."""
    store, work = Store(tmp_path / "store"), new_work_dir("live")
    tracker = toy_tracker(work, store, every_s=0.0)
    tracker.follow([RUNS])
    first, second = RUNS.runs["dpo-eva-a_min", 0].training
    order = stages(RUNS)
    at = order.index(first) + 1
    for stage in order[:at]:
        compute(tracker, store, stage)
    found = contents(work)
    assert [len(run["metrics"]["train/loss"]) for run in found.values()] == [3, 3]
    assert {run["info"][0] for run in found.values()} == {"SCHEDULED"}
    for stage in order[at : order.index(second) + 1]:
        compute(tracker, store, stage)
    held = contents(work)[EVA]
    assert held["info"][0] == "SCHEDULED"
    assert [step for step, *_ in held["metrics"]["train/loss"]] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_nobody_asked_for_does_not_appear(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """Row `dpo-1` is computed, whose every stage but its judges row `eva-a_min` needs as well."""
    store, work = Store(tmp_path / "store"), new_work_dir("a")
    rows = tuple(row for row in RUNS.rows if row.id == "dpo-1")
    asked = TableRuns(
        RUNS.table, RUNS.profile, RUNS.seeds, rows, {("dpo-h1", 0): RUNS.runs["dpo-h1", 0]}
    )
    tracker = toy_tracker(work, store, every_s=0.0)
    tracker.follow([asked])
    for stage in stages(asked):
        compute(tracker, store, stage)
    tracker.sync([TableState(RUNS)])
    assert {name: run["info"][0] for name, run in contents(work).items()} == {FIRST: "FINISHED"}


def test_what_another_command_finished_while_this_one_waited_is_not_overwritten(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """This one saw a stage fail; before it may write, another computes it."""
    store, work, once = Store(tmp_path / "store"), new_work_dir("both"), new_work_dir("once")
    *most, last = stages(RUNS)
    for stage in most:
        write(store, stage)
    store.record_failure(last, "its worker was killed", "")
    seen = threading.Event()

    def known() -> list[TableState]:
        seen.set()
        return [toy_state(RUNS, state="failed")]

    ends = threading.Thread(
        target=lambda: toy_tracker(work, store).finish(lambda: [STATE], known=known)
    )
    with Mlflow(work).writing():
        ends.start()
        assert seen.wait(60)
        write(store, last)
    ends.join()
    toy_tracker(once, store).sync([STATE])
    assert contents(work) == contents(once)


def test_an_unreachable_server_is_one_quick_warning_and_the_next_sync_catches_up(
    tmp_path: Path, new_work_dir: NewWorkDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    store, work, warnings = Store(tmp_path / "store"), new_work_dir("a"), list[str]()
    tracker = toy_tracker(work, store, warnings.append, every_s=0.0)
    began = time.monotonic()
    tracker.follow([RUNS])
    for stage in stages(RUNS):
        compute(tracker, store, stage)
    tracker.finish(lambda: [STATE])
    assert time.monotonic() - began < PATIENCE_S
    (warning,) = warnings
    assert "http://***@127.0.0.1:9 cannot be written ([Errno 111] Connection refused): " in warning
    assert "secret" not in warning
    assert "the same command brings MLflow up to date" in warning

    began = time.monotonic()
    with pytest.raises(TrackingError, match="cannot be written"):
        toy_tracker(work, store).sync([STATE])
    assert time.monotonic() - began < PATIENCE_S
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert toy_tracker(work, store).sync([STATE]) == {"created": 4}


def test_the_pages_are_served_on_loopback_by_one_process(
    new_work_dir: NewWorkDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = new_work_dir("a")
    command, environment = ui_command(work, 5123)
    assert command[:4] == [sys.executable, "-m", "mlflow", "server"]
    options = dict(zip(command[4::2], command[5::2], strict=True))
    assert options == {
        "--artifacts-destination": str(work / "mlartifacts"),
        "--host": "127.0.0.1",
        "--port": "5123",
        "--workers": "1",
        "--uvicorn-opts": "--log-level warning",
    }
    assert environment["MLFLOW_BACKEND_STORE_URI"] == default_uri(work)
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    with pytest.raises(UserError, match="open that address in a browser"):
        ui_command(work, 5123)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user:secret@127.0.0.1/db")
    with pytest.raises(TrackingError, match=r"//\*\*\*@.*driver is not installed"):
        ui_command(work, 5123)


def test_neither_mlflow_nor_its_pages_collect_usage_data(new_work_dir: NewWorkDir) -> None:
    """The pages ask their server, and send nothing where it says no.

    MLflow is silent in tests and in CI, which it tells by variables that are taken away here.
    """
    code = (
        "import mlflow.telemetry, mlflow.server\n"
        "pages = mlflow.server.app.test_client()\n"
        "told = pages.get('/ajax-api/3.0/mlflow/ui-telemetry').json\n"
        "sent = pages.post('/ajax-api/3.0/mlflow/ui-telemetry', json={'records': [1]}).json\n"
        "print(mlflow.telemetry.get_telemetry_client(), told['disable_ui_telemetry'], sent)\n"
    )
    _, environment = ui_command(new_work_dir("a"))
    kept = {"PATH", "HOME", "PYTHONPATH"} | QUIET.keys()
    for found in (environment, worker_environment()):
        bare = {name: text for name, text in found.items() if name in kept}
        said = subprocess.check_output([sys.executable, "-c", code], env=bare, text=True)
        assert said == "None True {'status': 'disabled'}\n"
