"""`harness sweep`: what it prints, its JSON, and mistakes that end before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from harness.project import results_dir
from harness.report.sweep import published_sweep
from harness.sweep.declaration import FOLDER


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute toy stages, and let MLflow be away."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "sweep"))
    import toy_sweep

    monkeypatch.setattr("harness.pipeline.steps.FUNCTIONS", toy_sweep.FUNCTIONS)
    monkeypatch.setattr("harness.pipeline.factory.needed_modules", lambda stages: [])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////dev/null/mlflow.db")


def test_models_that_are_not_here_are_named_before_anything_begins(
    call: Any, folders: Path
) -> None:
    result = call("sweep", "run", "offline-evolve", "--profile", "paper", code=2)
    assert "that this run needs are missing" in result.stderr
    assert "hf download google/gemma-2-9b-it" in result.stderr
    assert not folders.exists()


def test_the_list_names_the_shipped_sweeps(
    call: Any, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [s["name"] for s in says("sweep", "list")]
    assert {"offline-evolve", "online-evolve"} <= set(names)
    assert names == sorted(path.stem for path in FOLDER.glob("*.yaml"))
    assert "maximize win_rate, minimize rollouts" in call("sweep", "list").stdout
    monkeypatch.setenv("COLUMNS", "80")
    text = call("sweep", "list").stdout
    assert "  learning_rate, " in text
    assert len(text.splitlines()) < 40


def test_a_sweep_that_never_ran_says_so(call: Any, says: Any, folders: Path, results: Path) -> None:
    found = says("sweep", "show", "online-evolve")
    assert (found["trials"], found["winner"], found["pareto"], found["benchmarks"]) == (
        [], None, [], []
    )  # fmt: skip
    assert not folders.exists()
    text = call("sweep", "show", "online-evolve").stdout
    assert "Trials: 0 of 12" in text
    assert "no trial is complete yet" in text


def test_a_sweep_that_was_not_run_here_is_shown_as_published(call: Any, folders: Path) -> None:
    found = call("sweep", "show", "tune-dpo")
    assert "these are its published results" in found.stderr
    assert "Trials: 12 of 12" in found.stdout
    assert not folders.exists()


def test_without_the_final_the_winner_is_not_run(call: Any, says: Any, toys: None) -> None:
    found = says("sweep", "run", "offline-evolve", "--trials", "1", "--no-final")
    assert [trial["state"] for trial in found["trials"]] == ["complete"]
    assert found["benchmarks"] == []


def test_a_sweep_runs_goes_on_and_is_shown(call: Any, says: Any, toys: None, results: Path) -> None:
    """Two trials of two seeds, then the winner with three fresh seeds beside the base recipe."""
    asked = ("sweep", "run", "offline-evolve", "--trials", "2")
    found = says(*asked)
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * 2
    assert found["winner"] in (0, 1)
    assert {score["score"] for score in found["benchmarks"]} >= {"ah_wr", "ae_lc", "mt_avg"}
    again = call(*asked)
    assert "2 of 2 trials done" in again.stdout
    assert "0 to compute" in again.stdout
    result, trials = map(again.stdout.index, ("Result: the winner", "Best trials"))
    assert result < trials
    publish = ("sweep", "show", "offline-evolve", "--publish")
    assert "it lacks 18 of 20 trials" in call(*publish, code=1).stderr
    allowed = says(*publish, "--allow-fewer")
    assert allowed == {**found, "target": 20}
    assert (results / "micro" / "sweeps" / "offline-evolve" / "report.md").exists()


def test_a_failed_trial_makes_the_exit_code_1(call: Any, monkeypatch: Any) -> None:
    report: Any = published_sweep(results_dir(), "micro", "tune-dpo")
    first, *others = report.trials
    failed = first.model_copy(update={"state": "fail", "values": None, "failure": "no memory"})
    ended = report.model_copy(update={"trials": (failed, *others)})
    monkeypatch.setattr("harness.sweep.conduct.run_sweep", lambda *_: ended)
    monkeypatch.setattr("harness.sweep.conduct.shared_stages", lambda *_: [])
    assert "no memory" in call("sweep", "run", "tune-dpo", code=1).stdout
