"""Gains in multiples of human prompts, by hand and against the paper's printed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.statistics import ScoreMatrix
from harness.statistics.dose import Worth, on_curve, worth

PAPER = {1.0: 52.6, 6.0: 62.7}
"""Arena-Hard of RLOO on once and six times the human prompts (table 1)."""


@pytest.mark.parametrize(("score", "times"), [(57.3, 2.3), (60.5, 4.1), (62.4, 5.7)])
def test_the_papers_online_rows_in_multiples_of_human_prompts(score: float, times: float) -> None:
    found: Any = on_curve(score, PAPER)
    assert round(found, 1) == times


def test_between_two_doses_the_curve_is_linear_in_the_logarithm() -> None:
    """Half way from 1x to 4x is 2x; half way from 4x to 9x is 6x."""
    curve = {1.0: 0.0, 4.0: 1.0, 9.0: 2.0}
    assert on_curve(0.5, curve) == pytest.approx(2.0)
    assert on_curve(1.5, curve) == pytest.approx(6.0)
    assert on_curve(2.1, curve) is None
    assert on_curve(-0.1, curve) is None


@pytest.mark.parametrize("curve", [{1.0: 2.0, 2.0: 2.0}, {1.0: 2.0, 2.0: 3.0, 3.0: 1.0}])
def test_nothing_is_read_off_a_curve_that_does_not_rise(curve: dict[float, float]) -> None:
    with pytest.raises(HarnessError, match="do not rise"):
        on_curve(2.0, curve)


def test_one_dose_is_no_curve() -> None:
    with pytest.raises(HarnessError, match="two doses"):
        on_curve(1.0, {1.0: 1.0})


def scores(mean: float, noise: float, seed: int, seeds: int = 5) -> ScoreMatrix:
    rng = np.random.default_rng(seed)
    return ScoreMatrix.of(mean + noise * rng.normal(size=(seeds, 40)))


CURVE = {1.0: scores(0.0, 0.1, 1), 2.0: scores(1.0, 0.1, 2), 4.0: scores(2.0, 0.1, 3)}


@pytest.mark.parametrize(
    ("score", "times", "least", "most"), [(0.5, 2.0**0.5, 1.2, 1.7), (1.5, 2.0**1.5, 2.5, 3.2)]
)
def test_a_row_between_two_doses_has_a_number_and_an_interval_around_it(
    score: float, times: float, least: float, most: float
) -> None:
    """In the first stretch of the curve, and in the second; the interval lies there as well."""
    found: Any = worth(scores(score, 0.1, 4), CURVE)
    assert found.times == pytest.approx(times, rel=0.05)
    assert least < found.low < found.times < found.high < most
    assert found.beyond is None


def flat(mean: float) -> ScoreMatrix:
    """Return scores of two seeds without any spread."""
    return ScoreMatrix.of(np.full((2, 3), mean))


def test_the_ends_of_the_curve_belong_to_it() -> None:
    curve = {1.0: 0.0, 2.0: 1.0, 4.0: 2.0}
    assert [on_curve(score, curve) for score in (0.0, 2.0)] == pytest.approx([1.0, 4.0])
    found = worth(flat(0.0), {dose: flat(score) for dose, score in curve.items()})
    assert (found.times, found.low, found.high, found.beyond) == (1.0, None, 1.0, None)


def test_a_score_without_spread_between_two_points_of_the_curve_has_open_ends() -> None:
    """0.3 of the way from 1 to 2 is none of the 400 doses that a row is compared at."""
    found = worth(flat(0.3), {1.0: flat(0.0), 2.0: flat(1.0), 4.0: flat(2.0)})
    assert found.times == pytest.approx(2.0**0.3)
    assert (found.low, found.high, found.beyond) == (None, None, None)


def test_outside_the_curve_there_is_no_number() -> None:
    above, below = worth(scores(3.0, 0.1, 5), CURVE), worth(scores(-1.0, 0.1, 6), CURVE)
    assert (above.times, above.low, above.high, above.beyond) == (None, 4.0, None, "above")
    assert (below.times, below.low, below.high, below.beyond) == (None, None, 1.0, "below")


def test_an_unsure_row_has_open_ends() -> None:
    found = worth(scores(1.0, 60.0, 7), CURVE)
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(
    ("found", "text", "interval"),
    [
        ((2.34, 1.38, 4.1), "2.3x", "1.4x to 4.1x"),
        ((2.34, None, 4.1), "2.3x", "less than 1x to 4.1x"),
        ((2.34, 1.38, None), "2.3x", "1.4x to more than 6x"),
        ((1.2, 1.0, 2.0), "1.2x", "1.0x to 2.0x"),
        ((5.0, 3.0, 6.0), "5.0x", "3.0x to 6.0x"),
        ((None, 4.0, None, "above"), "more than 6x", "4.0x to more than 6x"),
        ((None, 6.0, None, "above"), "more than 6x", "more than 6x"),
        ((None, None, 1.0, "below"), "less than 1x", "less than 1x"),
    ],
)
def test_the_words_of_a_dose_and_of_its_interval(found: Any, text: str, interval: str) -> None:
    """On a curve from 1 to 6, one of whose ends stands for all that is beyond it."""
    times, low, high, *beyond = found
    said = Worth(times, low, high, 1.0, 6.0, *beyond)
    assert (said.text, said.interval) == (text, interval)


def test_one_seed_is_refused() -> None:
    with pytest.raises(HarnessError, match="One seed"):
        worth(scores(1.0, 0.1, 1, seeds=1), {k: scores(k, 0.1, 2, seeds=1) for k in (1.0, 2.0)})


@given(st.floats(0.05, 1.95), st.floats(0.5, 20.0), st.floats(-50.0, 50.0))
def test_units_of_the_score_do_not_matter(score: float, scale: float, shift: float) -> None:
    curve = {1.0: 0.0, 2.0: 1.0, 4.0: 2.0}
    moved = {dose: shift + scale * it for dose, it in curve.items()}
    assert on_curve(shift + scale * score, moved) == pytest.approx(on_curve(score, curve))
