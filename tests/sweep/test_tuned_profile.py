"""The profile `micro` trains as its published tuning sweeps say, and each optimum is no edge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_sweep import micro

ROOT = Path(__file__).resolve().parents[2]

ALGORITHMS = ("dpo", "sppo", "simpo", "orpo", "rloo", "oaif")


def published(algorithm: str) -> dict[str, Any]:
    path = ROOT / "results" / "micro" / "sweeps" / f"tune-{algorithm}" / "report.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_profile_trains_with_the_best_point(algorithm: str) -> None:
    report = published(algorithm)
    complete = [trial for trial in report["trials"] if trial["state"] == "complete"]
    best = max(complete, key=lambda trial: trial["values"]["score"])
    training = micro().model_dump(by_alias=True)["training"][algorithm]
    assert len(complete) == 12
    for path, value in best["params"].items():
        assert training[path.rpartition(".")[2]] == value


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_best_point_lies_inside_its_grid(algorithm: str) -> None:
    report = published(algorithm)
    best = max(report["trials"], key=lambda trial: trial["values"]["score"])
    for path, choices in report["space"].items():
        assert min(choices) < best["params"][path] < max(choices), path


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_algorithm_breaks_down_by_the_third_round(algorithm: str) -> None:
    """With the settings that the profile has, score and exactness are higher after 3x than 1x."""
    report = published(algorithm)
    best = max(report["trials"], key=lambda trial: trial["values"]["score"])["values"]
    assert best["score"] > best["score_1x"]
    assert best["exact"] > best["exact_1x"]
