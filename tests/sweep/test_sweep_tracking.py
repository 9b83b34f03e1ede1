"""Trials in MLflow: parameters, objectives, and links in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from toy_sweep import SHARE, InlineEngine, order_of, toy

from harness.report.sweep import SweepTrial
from harness.runtime import Store
from harness.sweep.conduct import track_rest
from harness.sweep.results import trial_line
from harness.sweep.study import open_study, trials_of
from harness.sweep.work import Worker
from harness.tracking import Source, StudyName, TrialTracker
from harness.tracking.connection import default_uri
from harness.tracking.projection import trial_record

SOURCE = Source("harness sweep run toy", "c0ffee", {"algorithm": "dpo"})
NAME = StudyName("toy", "micro", "toy/micro/1", ("win_rate",))
TRIAL = SweepTrial(
    number=7, state="pruned", params={SHARE: 0.4, "x": None}, values=None, so_far={1: 4.0},
    started="2026-01-01T00:00:00+00:00", ended="2026-01-01T00:00:05+00:00", seconds=5.0, reused=3,
    computed=2, failure=None, done_again=False, retry_of=2, mlflow_run=None,
)  # fmt: skip


def test_a_record_says_what_the_trial_is() -> None:
    record = trial_record(NAME, TRIAL, SOURCE)
    assert record.experiment == "sweeps/toy/micro"
    assert record.params == {SHARE: "0.4", "x": "none"}
    assert record.status == "FINISHED"
    assert record.end_ms == record.start_ms + 5000
    assert record.read_scores() == {"win_rate/seeds1": 4.0}
    assert record.tags["trial.state"] == "pruned"
    assert record.tags["retry_of"] == "2"
    assert record.tags["mlflow.source.name"] == "harness sweep run toy"
    assert record.tags["mlflow.source.git.commit"] == "c0ffee"
    assert "Trial 7 of the sweep toy" in record.tags["mlflow.note.content"]
    assert record.files is not None
    assert b"algorithm: dpo" in record.files.make()["recipe.yaml"]  # type: ignore[operator]
    complete = TRIAL.model_copy(update={"state": "complete", "values": {"win_rate": 4.5}})
    assert trial_record(NAME, complete, SOURCE).read_scores()["win_rate"] == 4.5
    assert trial_record(NAME, complete, SOURCE).identity == record.identity
    assert (
        trial_record(NAME, TRIAL.model_copy(update={"number": 8}), SOURCE).identity
        != record.identity
    )


def test_an_mlflow_that_cannot_be_reached_is_one_warning(work_dir: Path) -> None:
    warned: list[str] = []
    (work_dir.parent / "file").write_text("")
    uri = f"sqlite:///{work_dir.parent / 'file' / 'mlflow.db'}"
    tracker = TrialTracker(work_dir, Store(work_dir / "store"), NAME, warned.append, uri)
    assert tracker.write(TRIAL, [], None, SOURCE) is None
    assert tracker.write(TRIAL, [], None, SOURCE) is None
    assert len(warned) == 1
    assert "cannot be written" in warned[0]


def test_trials_and_their_runs_lead_to_one_another(work_dir: Path) -> None:
    sweep = toy(space={SHARE: {"kind": "categorical", "choices": [0.2, 0.4]}}, trials=1)
    order = order_of(sweep, work_dir)
    study, tracker = open_study(sweep, order.study, order.journal), order.tracker(pytest.fail)
    engine = InlineEngine(Store(order.store_dir))
    Worker(order, engine, study, tracker, lambda line: None).work()  # type: ignore[arg-type]
    line = trial_line(sweep, trials_of(study)[0])
    client = MlflowClient(default_uri(work_dir))
    assert line.mlflow_run is not None
    trial = client.get_run(line.mlflow_run)
    assert trial.info.status == "FINISHED"
    assert trial.data.params == {SHARE: str(line.params[SHARE])}
    assert trial.data.metrics["win_rate"] == (line.values or {})["win_rate"]
    runs = [client.get_run(name) for name in trial.data.tags["runs.mlflow"].split(", ")]
    assert [run.data.tags["trial"] for run in runs] == ["0", "0"]
    assert [run.data.params["seed"] for run in runs] == ["0", "1"]
    assert ", ".join(r.data.tags["harness.id"] for r in runs) == trial.data.tags["runs"]
    assert "iter2/loss" in runs[0].data.metrics
    track_rest(order, study, tracker)
    (experiment,) = [e for e in client.search_experiments() if e.name == "sweeps/toy/micro"]
    assert len(client.search_runs([experiment.experiment_id])) == 1
