"""Preferences: win rate, draws, missing preferences, and the column at equal lengths."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks.alpaca_eval import Preference, score_preferences
from harness.evaluation.scores import BenchmarkScore


def scored(*preferences: float | None, **options: Any) -> BenchmarkScore:
    items = [Preference(str(i), p, float(i - 1)) for i, p in enumerate(preferences)]
    return score_preferences(items, "m", **options)


def test_a_draw_is_half_a_win_written_either_way() -> None:
    """Derivation: (1 + 0 + 0.5 + 0.5 + 0.25) / 5 = 45%."""
    score = scored(2, 1, 1.5, 0, 1.25)
    assert score.scores["win_rate"] == pytest.approx(45.0)
    assert score.by_prompt("win_rate") == pytest.approx(
        {"0": 100.0, "1": 0.0, "2": 50.0, "3": 50.0, "4": 25.0}
    )


def test_the_standard_error_is_that_of_a_mean() -> None:
    """Derivation: wins 1, 0, 1, 0 have variance 1/3; sqrt(1/12) of 100%."""
    values = scored(2, 1, 2, 1).values["win_rate"]
    assert values.std(ddof=1) / 2 == pytest.approx(100 / math.sqrt(12))


def test_what_is_not_a_preference_is_counted_and_left_out() -> None:
    score = scored(2, None, float("nan"), 3, -1, 1)
    assert score.scores["win_rate"] == pytest.approx(50.0)
    assert (score.n, score.n_missing) == (2, 4)
    assert score.values["win_rate"].mean() == pytest.approx(50.0)


def test_a_prompt_never_judged_counts_as_missing() -> None:
    score = score_preferences([Preference("b", 2.0)], "m", prompts=["a", "b"])
    assert (score.prompts, score.n, score.n_missing) == (("a", "b"), 1, 1)
    assert score.scores["win_rate"] == 100.0


def test_length_control_is_a_column_only_where_asked_for() -> None:
    assert set(scored(2, 1, 1.5).scores) == {"win_rate"}
    score = scored(2, 1, 1.5, None, length_control=True)
    assert set(score.scores) == {"win_rate", "length_controlled_win_rate"}
    column = score.values["length_controlled_win_rate"]
    assert column.mean() == pytest.approx(score.scores["length_controlled_win_rate"])
    assert column[3] == pytest.approx(column.mean())


def test_length_control_that_is_not_identified_has_no_value_and_says_so() -> None:
    """Longer answers always win: what happens at equal lengths cannot be told."""
    score = scored(1, 1, 2, 2, length_control=True)
    assert score.scores["length_controlled_win_rate"] is None
    assert "length_controlled_win_rate" not in score.values
    assert score.notes == {"length_controlled_win_rate": "not identified"}


def test_two_preferences_of_a_prompt_are_an_error() -> None:
    with pytest.raises(UserError, match="two preferences"):
        score_preferences([Preference("a", 2.0), Preference("a", 1.0)], "m")


def test_no_valid_preference_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(HarnessError, match="None of the 1 preferences"):
        scored(None)


@given(st.lists(st.none() | st.floats(1, 2), min_size=1).filter(lambda x: any(x)))
def test_per_prompt_values_average_to_the_win_rate(preferences: list[float | None]) -> None:
    score = scored(*preferences)
    assert score.values["win_rate"].mean() == pytest.approx(score.scores["win_rate"], abs=1e-9)
