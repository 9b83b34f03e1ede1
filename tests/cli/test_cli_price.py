"""`plan` shows what a plan costs before anything is spent, and `run` keeps to a limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TABLE4 = ("plan", "table4", "--profile", "paper", "--seeds", "0")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without models, benchmarks and prices of its own."""
    for name in ("HARNESS_MODELS", "HARNESS_BENCHMARKS", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    for role in ("CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{role}_PRICE", raising=False)


def test_the_paper_plan_of_a_table_has_a_price(says: Any, folders: Path) -> None:
    """Table 4, one seed: nine policies, each judged 1,000 + 805 + 160 times, and eight creators."""
    plan = says("plan", *TABLE4)
    price = plan["price"]
    asked = {(call["role"], call["model"]): call["requests"] for call in price["usd"]["calls"]}
    assert asked == {
        ("judge", "gpt-4-1106-preview"): 9 * 1805,
        ("judge", "gpt-4"): 9 * 160,
        ("creator", "gemini-1.5-pro"): 8 * 11_000,
    }
    assert price["usd"]["complete"]
    assert price["gpu_hours"]["complete"]
    assert price["hardware"]["gpus"] == 8
    assert plan["estimated_s"] is None
    assert not folders.exists()


def test_people_read_the_same_with_its_assumptions_and_without_cents(call: Any) -> None:
    text = call(*TABLE4).stdout
    for part in (
        *("GPU hours:", "disk:", "nothing measured", "tokens.answer", "as remembered"),
        "within a factor of 2 (",
    ):
        assert part in text, part
    (dollars,) = [line for line in text.splitlines() if line.startswith("dollars:")]
    assert not re.search(r"\.\d\d\b", dollars)


def test_all_prices_every_table_and_says_what_it_leaves_out(says: Any) -> None:
    plan = says("plan", "plan", "all", "--profile", "paper", "--seeds", "0")
    assert [line["table"] for line in plan["tables"]][:3] == ["table1", "table2", "table4"]
    assert len([line for line in plan["tables"] if line["table"].startswith("table")]) == 15
    left_out = [line["table"] for line in plan["left_out"]]
    assert left_out == ["choosing", "reward-models", "selectors"]
    table4 = says("plan", *TABLE4)["price"]
    assert plan["price"]["gpu_hours"]["known"] > table4["gpu_hours"]["known"]


def test_a_plan_over_a_limit_is_shown_and_ends_with_1(call: Any) -> None:
    result = call(*TABLE4, "--max-gpu-hours", "1")
    assert result.exit_code == 1
    assert "GPU hours:" in result.stdout
    assert "--max-gpu-hours is 1" in result.stderr
    assert result.stderr.count("\n") == 1
    assert call(*TABLE4, "--max-gpu-hours", "1e6", "--budget-usd", "1e6").exit_code == 0


@pytest.mark.parametrize("name", ["table4", "figure9", "all-offline"])
def test_a_run_over_its_budget_starts_nothing(call: Any, folders: Path, name: str) -> None:
    asked = ("run", name, "--profile", "paper", "--seeds", "0", "--budget-usd", "5")
    result = call(*asked)
    assert result.exit_code == 1
    assert "--budget-usd is 5" in result.stderr
    assert not folders.exists()


def test_a_budget_needs_every_price(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user names who rewrites, only he knows the price."""
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:8000/v1")
    asked = ("plan", "table4", "--profile", "single-gpu", "--seeds", "0", "--budget-usd", "1e6")
    result = call(*asked)
    assert result.exit_code == 1
    assert "HARNESS_CREATOR_PRICE" in result.stderr
    assert "creator unknown" in result.stdout
    monkeypatch.setenv("HARNESS_CREATOR_PRICE", "0,0")
    assert call(*asked).exit_code == 0


def test_the_embedded_profile_has_no_price(call: Any, says: Any) -> None:
    plan = says("plan", "plan", "table4", "--seeds", "0")
    assert plan["price"] is None
    assert plan["estimated_s"] > 0
    result = call("run", "table4", "--budget-usd", "5")
    assert result.exit_code == 2
    assert "costs nothing" in result.stderr
