"""Live tracking: the same as a sync afterwards, and never in the way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_table import contents, losses, stages, toy_runs, toy_state, toy_tracker, write

from harness.errors import UserError
from harness.quiet import QUIET, worker_environment
from harness.runtime import Stage, StageFailed, StageFinished, StageProgress, Store
from harness.tracking import Tracker, TrackingError, ui_command
from harness.tracking.connection import default_uri

NewWorkDir = Callable[[str], Path]
PATIENCE_S = 20.0
"""MLflow's own defaults would retry for minutes; ours give up within a second."""

NOWHERE = "http://user:secret@127.0.0.1:9"
RUNS = toy_runs((0,))
STATE = toy_state(RUNS)


def compute(tracker: Tracker, store: Store, stage: Stage, *, steps: int = 3) -> None:
    """Report a stage as the engine does; with fewer than all steps it is not finished."""
    if stage.kind == "train":
        for step, loss in enumerate(losses(stage)[:steps], start=1):
            values = {"loss": loss, "rewards/margins": step / 8, "grad norm %": 1.0}
            tracker.observe(StageProgress(stage, step, values))
    if steps == 3:
        write(store, stage)
        tracker.observe(StageFinished(stage, 0.0))


def synced(work_dir: Path, store: Store) -> dict[str, object]:
    toy_tracker(work_dir, store).sync([STATE])
    return contents(work_dir)


@pytest.mark.parametrize("every_s", [0.0, 60.0])
def test_a_run_tracked_live_and_synced_equals_one_only_synced(
    tmp_path: Path, new_work_dir: NewWorkDir, every_s: float
) -> None:
    """Whether every event is written by itself, or all at the end; and no thread is left."""
    store = Store(tmp_path / "store")
    live, after = new_work_dir("live"), new_work_dir("after")
    threads = threading.enumerate()
    tracker = toy_tracker(live, store, every_s=every_s)
    tracker.start([RUNS])
    for stage in stages(RUNS):
        compute(tracker, store, stage)
    tracker.finish(lambda: [STATE])
    assert threading.enumerate() == threads
    assert contents(live) == synced(after, store)
    assert toy_tracker(live, store).sync([STATE]) == {"unchanged": 4}


def test_curves_are_there_before_their_stage_is_finished(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """Both runs that share a training show its first two steps.

    Then it fails, is tried again from its first step, and all is as if nothing had happened.
    """
    store, live, after = Store(tmp_path / "store"), new_work_dir("live"), new_work_dir("after")
    training = RUNS.runs["dpo-h1", 0].training[0]
    order = stages(RUNS)
    at = order.index(training)
    first = toy_tracker(live, store, every_s=0.0)
    first.start([RUNS])
    for stage in order[:at]:
        compute(first, store, stage)
    compute(first, store, training, steps=2)
    found = contents(live).values()
    assert [len(run["metrics"]["train/loss"]) for run in found] == [2, 2]
    assert {run["info"][0] for run in found} == {"RUNNING"}
    store.record_failure(training, "killed", "")
    first.observe(StageFailed(training, "killed"))
    first.close()
    assert {run["info"][0] for run in contents(live).values()} == {"FAILED"}

    second = toy_tracker(live, store)
    second.start([RUNS])
    store.clear_failure(training.fingerprint)
    for stage in order[at:]:
        compute(second, store, stage)
    second.finish(lambda: [STATE])
    assert contents(live) == synced(after, store)


def test_points_of_a_later_iteration_follow_those_of_the_first(
    tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    store, work = Store(tmp_path / "store"), new_work_dir("live")
    _, second = RUNS.runs["dpo-eva-a_min", 0].training
    tracker = toy_tracker(work, store, every_s=0.0)
    tracker.start([RUNS])
    for stage in stages(RUNS)[: stages(RUNS).index(second)]:
        compute(tracker, store, stage)
    compute(tracker, store, second, steps=2)
    curve = contents(work)["table4/micro | dpo-eva-a_min-seed0"]["metrics"]["train/loss"]
    assert [step for step, *_ in curve] == [1, 2, 3, 4, 5]
    tracker.close()


def test_an_unreachable_server_is_one_quick_warning_and_the_next_sync_catches_up(
    tmp_path: Path, new_work_dir: NewWorkDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    store, work, warnings = Store(tmp_path / "store"), new_work_dir("a"), list[str]()
    tracker = toy_tracker(work, store, warnings.append, every_s=0.0)
    began = time.monotonic()
    tracker.start([RUNS])
    for stage in stages(RUNS):
        compute(tracker, store, stage)
    tracker.finish(lambda: [STATE])
    assert time.monotonic() - began < PATIENCE_S
    (warning,) = warnings
    assert "http://***@127.0.0.1:9 cannot be written ([Errno 111] Connection refused): " in warning
    assert "secret" not in warning
    assert "harness sync" in warning

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
