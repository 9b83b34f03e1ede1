"""`harness evaluate --calibrate`: judges of all kinds, what is kept of them, where it is said."""

import json
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import completion, serving
from small_checkpoints import write_armo

CALIBRATE = ("evaluate", "alpaca_eval", "--calibrate", "--judge")


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Write four comparisons, of which the longer answer was always preferred."""
    rows = [
        {
            "instruction": f"question {i}", "annotator": "people",
            "output_1": "word " * (3 if i == 0 else 1), "output_2": "word " * (1 if i == 0 else 3),
            "preference": 1.0 if i == 0 else 2.0,
        }
        for i in range(4)
    ]  # fmt: skip
    path = tmp_path / "published.json"
    path.write_text(json.dumps(rows))
    return path


def shorter(body: Any) -> Any:
    """Prefer the shorter answer, whichever is shown first."""
    text = body["messages"][0]["content"]
    first, second = (
        text.partition(f"<answer {name}>")[2].partition(f"</answer {name}>")[0] for name in "AB"
    )
    return completion(f"[[{'A' if len(first) < len(second) else 'B'}]]")


def test_a_judge_at_an_endpoint_is_asked_in_both_orders_and_kept(
    says: Any, call: Any, published: Path
) -> None:
    with serving(shorter) as server:
        found = says(*CALIBRATE, "gpt-4", "--judgments", str(published))
        assert server.requests == 8
    assert (found["agreement"], found["longer"], found["longer_published"]) == (0.0, 0.0, 100.0)
    assert (found["consistent"], found["first"], found["one_side"]) == (100.0, 50.0, 75.0)
    said = call("claims", "table4", "--profile", "paper")
    assert "the judge of arena_hard, alpaca_eval is not calibrated" in said.stderr


def test_a_reward_model_is_calibrated_without_any_server(
    says: Any, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_MODELS", str(tmp_path / "models"))
    write_armo(tmp_path / "models" / "me" / "judge")
    found = says(*CALIBRATE, "reward:me/judge", "--judgments", str(published))
    assert found["identity"].startswith("me/judge@files-")
    assert (found["comparisons"], found["consistent"], found["first"]) == (4, 100.0, 50.0)


def test_calibrating_stops_at_its_budget_and_needs_a_price(
    call: Any, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (*CALIBRATE, "judge", "--judgments", str(published), "--budget-usd", "0.001")
    with serving(shorter) as server:
        assert "needs the price of judge" in call(*asked, code=2).stderr
        monkeypatch.setenv("HARNESS_JUDGE_PRICE", "10,30")
        stopped = call(*asked, code=1)
        assert server.requests == 0
    assert "Stopped before the budget of $0.00 is passed" in stopped.stderr
