"""The profile `micro` trains as its published tuning sweeps say, and each optimum is no edge."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy_sweep import micro

ROOT = Path(__file__).resolve().parents[2]

ALGORITHMS = ("dpo", "sppo", "simpo", "orpo", "rloo", "oaif")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_profile_trains_with_the_best_point_which_is_no_edge_and_does_not_break_down(
    algorithm: str,
) -> None:
    """By the third round nothing breaks down: score and exactness are higher after 3x than 1x."""
    path = ROOT / "results" / "micro" / "sweeps" / f"tune-{algorithm}" / "report.json"
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    complete = [trial for trial in report["trials"] if trial["state"] == "complete"]
    assert len(complete) == 12
    best = max(complete, key=lambda trial: trial["values"]["score"])
    training = micro().model_dump(by_alias=True)["training"][algorithm]
    for setting, value in best["params"].items():
        assert training[setting.rpartition(".")[2]] == value
    for setting, choices in report["space"].items():
        assert min(choices) < best["params"][setting] < max(choices), setting
    assert best["values"]["score"] > best["values"]["score_1x"]
    assert best["values"]["exact"] > best["values"]["exact_1x"]
