"""Trials in MLflow: parameters and objectives."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient
from toy_sweep import SHARE, InlineEngine, choice, micro, order_of, toy
from typer.testing import CliRunner

from harness.cli.main import app
from harness.report.sweep import SweepTrial
from harness.sweep.conduct import Order, run_sweep, shared_stages, stored_report
from harness.tracking.connection import default_uri
from harness.tracking.trials import trial_record

RECIPE = {"algorithm": "dpo"}
STUDY = "toy/micro/1"
TRIAL = SweepTrial(
    number=7, state="pruned", params={SHARE: 0.4, "x": None}, values=None,
    started="2026-01-01T00:00:00+00:00", ended="2026-01-01T00:00:05+00:00", seconds=5.0, reused=3,
    computed=2, failure=None,
)  # fmt: skip


def test_a_record_says_what_the_trial_is() -> None:
    record = trial_record(STUDY, TRIAL, RECIPE)
    assert record.experiment == "sweeps/toy/micro"
    assert record.params == {SHARE: "0.4", "x": "none"}
    assert record.status == "FINISHED"
    assert record.end_ms == record.start_ms + 5000
    assert record.scores == {}
    assert record.tags["trial.state"] == "pruned"
    assert record.tags["mlflow.source.name"] == "harness sweep run toy --profile micro"
    assert "Trials of the sweep toy" in record.note
    assert b"algorithm: dpo" in record.files()["recipe.yaml"]  # type: ignore[operator]
    complete = TRIAL.model_copy(update={"state": "complete", "values": {"win_rate": 4.5}})
    again = trial_record(STUDY, complete, RECIPE)
    assert again.scores["win_rate"] == 4.5
    assert again.identity == record.identity
    other = TRIAL.model_copy(update={"number": 8})
    assert trial_record(STUDY, other, RECIPE).identity != record.identity


def test_ended_trials_are_written_once_and_to_any_server(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = toy(space={SHARE: choice(0.2, 0.4)}, trials=2)
    monkeypatch.setattr(Order, "engine", lambda order: InlineEngine())
    order = order_of(sweep, final=False)
    run_sweep(order, shared_stages(sweep, micro()), lambda line: None, pytest.fail)
    client = MlflowClient(default_uri(work_dir))
    experiment = client.get_experiment_by_name("sweeps/toy/micro").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert set(runs) == {"trial-0", "trial-1"}
    for trial in stored_report(order).trials:
        run = runs[f"trial-{trial.number}"]
        assert run.info.status == "FINISHED"
        assert run.data.params == {SHARE: str(trial.params[SHARE])}
        assert run.data.metrics["win_rate"] == (trial.values or {})["win_rate"]
    monkeypatch.setattr("harness.sweep.conduct.load_sweeps", lambda: {"toy": sweep})
    (synced,) = json.loads(CliRunner().invoke(app, ["sync", "--json"]).stdout)["items"]
    assert synced == {"what": "sweep toy/micro", "runs": 2, "changes": {"unchanged": 2}}
