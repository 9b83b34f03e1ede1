"""`harness evaluate lm_eval`: what would be run, results that others wrote, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Collect the evaluations that would be written to MLflow."""
    files: list[Path] = []
    monkeypatch.setattr("harness.tracking.Mlflow.attempt", lambda self, records: records())
    monkeypatch.setattr("harness.tracking.evaluation_records", files.extend)
    return files


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Write results of one task."""
    path = tmp_path / "results.json"
    metrics = {"exact_match,strict-match": 0.2464, "exact_match_stderr,strict-match": 0.01}
    content = {"results": {"gsm8k": metrics}, "versions": {"gsm8k": 3.0}, "n-shot": {"gsm8k": 5}}
    path.write_text(json.dumps(content))
    return path


def test_results_that_others_wrote_are_scored_without_the_package(
    says: Any, call: Any, results: Path, tracked: list[Path]
) -> None:
    command = ["evaluate", "lm_eval", "--results", str(results), "--model", "mine"]
    (found,) = says("evaluate", *command)
    assert (found["model"], found["scores"]["gsm8k"]) == ("mine", pytest.approx(24.64))
    assert found["scores"]["wmdp"] is None
    assert found["tasks"]["gsm8k"]["shots"] == 5
    (kept,) = tracked
    assert json.loads(kept.read_text())["source"]["kind"] == "published"
    text = call(*command).stdout
    assert "not_available: wmdp was not run" in text
