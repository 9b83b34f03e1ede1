"""Intervals over crossed seeds and prompts, against sums done by hand, and their invariances."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from harness.statistics import (
    Interval,
    NestedScores,
    ScoreMatrix,
    conjunction,
    mean_interval,
    mean_over_seeds,
    paired_difference,
)
from harness.statistics.scores import CrossedMoments, crossed_moments

MATRICES = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
    elements=st.integers(-50, 50).map(float),
)
SETS = st.lists(st.integers(-40, 40).map(float), min_size=2, max_size=6)
Values = list[list[float]]
Of = Callable[[Values], ScoreMatrix | NestedScores]
Drawn = st.SearchStrategy[Values]


def nested(sets: Values) -> NestedScores:
    return NestedScores.from_seeds({
        seed: {f"{seed}/{i}": value for i, value in enumerate(values)}
        for seed, values in enumerate(sets)
    })  # fmt: skip


of_both_kinds = pytest.mark.parametrize(
    ("of", "drawn"),
    [
        pytest.param(ScoreMatrix.of, MATRICES.map(np.ndarray.tolist), id="crossed"),
        pytest.param(nested, st.lists(SETS, min_size=2, max_size=5), id="nested"),
    ],
)


def test_mean_squares_of_a_two_by_three_matrix() -> None:
    """Derivation, seeds in rows: [[1, 2, 6], [3, 4, 8]], grand mean 4.

    Seed means 3 and 5: MS_seed = 3 (1 + 1) / 1 = 6. Prompt means 2, 3, 7: MS_prompt =
    2 (4 + 1 + 9) / 2 = 14. Each entry is seed mean + prompt mean - 4, so MS_error = 0.
    The variance of the mean is (6 + 14 - 0) / 6 = 10/3. The seeds' share is 6/20 = 0.3, so
    1/df = 0.3/1 + 0.7/2 = 0.65.
    """
    moments = crossed_moments(np.array([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]]))
    assert moments.mean == pytest.approx(4.0)
    assert moments.ms_seed == pytest.approx(6.0)
    assert moments.ms_prompt == pytest.approx(14.0)
    assert moments.ms_error == pytest.approx(0.0, abs=1e-12)
    assert moments.variance == pytest.approx(10.0 / 3.0)
    assert moments.df == pytest.approx(1.0 / 0.65)


def test_prompts_never_take_away_from_the_variance_of_the_seeds() -> None:
    """Mean squares 1, 1 and 4 of three seeds and two prompts: 1 - 4 is cut at zero.

    The seeds keep their mean square: variance 1/6, with their two degrees of freedom.
    """
    squares = [np.asarray(square) for square in (1.0, 1.0, 4.0)]
    found = CrossedMoments.of(np.asarray(0.0), squares, (3, 2))
    assert float(found.variance) == pytest.approx(1.0 / 6.0)
    assert float(found.df) == pytest.approx(2.0)


def test_two_seeds_that_agree_by_chance_are_as_uncertain_as_their_answers() -> None:
    """Derivation: [[1, 0], [0, 3]], grand mean 1, seed means 0.5 and 1.5, prompt means the same.

    MS_seed = 2 (0.25 + 0.25) / 1 = 1 = MS_prompt. Residuals: 1 - 0.5 - 0.5 + 1 = 1, then -1, -1,
    1, so MS_error = 4, which two seeds have at least: variance 4/4, df 1, and t at 0.975 with one
    degree of freedom is tan(0.475 pi) = 12.706. In [[1, -1], [-1, 1]], seeds and prompts all have
    mean 0 and MS_error is 4 again.
    """
    interval = mean_interval([[1.0, 0.0], [0.0, 3.0]])
    assert interval.standard_error == pytest.approx(1.0)
    assert interval.widest.df == pytest.approx(1.0)
    assert interval.high == pytest.approx(1.0 + math.tan(0.475 * math.pi))
    assert mean_interval([[1.0, -1.0], [-1.0, 1.0]]).standard_error == pytest.approx(1.0)


def test_mean_squares_of_a_matrix_with_error_by_hand() -> None:
    """The mean is 1.5, seeds are 1.5 from it, prompts 1.5, 0 and 1.5; four residuals are 1.5.

    3 (2 x 2.25) / 1 = 13.5, 2 (2 x 2.25) / 2 = 4.5, and 4 x 2.25 / (1 x 2) = 4.5.
    """
    found = crossed_moments(np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 6.0]]))
    assert (found.ms_seed, found.ms_prompt, found.ms_error) == pytest.approx((13.5, 4.5, 4.5))


def test_degrees_of_freedom_by_hand() -> None:
    """Three seeds, 41 prompts, mean squares 4, 6 and 2: the prompts' own part is 6 - 2 = 4 of 8.

    Its freedom is 4^2 / ((6^2 + 2^2 / 2) / 40) = 16 / 0.95, the seeds' 2, and each has half.
    """
    squares = [np.asarray(square) for square in (4.0, 6.0, 2.0)]
    found = CrossedMoments.of(np.asarray(0.0), squares, (3, 41))
    assert float(found.variance) == pytest.approx(8.0 / (3 * 41))
    assert float(found.df) == pytest.approx(1.0 / (0.5 / 2.0 + 0.5 * 0.95 / 16.0))


def test_one_seed_is_over_prompts_only() -> None:
    """Derivation: values 1, 2, 6 have mean 3 and variance (4 + 1 + 9) / 2 = 7; 7/3 for the mean."""
    interval = mean_interval([[1.0, 2.0, 6.0]])
    assert interval.seeds == 1
    assert interval.widest.df == 2.0
    assert interval.standard_error == pytest.approx(math.sqrt(7.0 / 3.0))


def test_a_difference_of_nothing_at_all_has_p_one_and_a_certain_one_has_p_zero() -> None:
    same = paired_difference(np.ones((3, 4)), np.ones((3, 4)))
    assert (same.mean, same.low, same.high, p_of(same)) == (0.0, 0.0, 0.0, 1.0)
    certain = paired_difference(np.full((3, 4), 2.0), np.ones((3, 4)))
    assert (certain.mean, certain.low, certain.high, p_of(certain)) == (1.0, 1.0, 1.0, 0.0)


def test_pairing_removes_what_both_sides_share() -> None:
    """Two sides with the same large prompt effects, one higher by 1: the difference is certain."""
    prompts = np.array([[0.0, 50.0, 100.0, 20.0]] * 3)
    assert paired_difference(prompts + 1.0, prompts).standard_error == pytest.approx(0.0, abs=1e-9)
    assert mean_interval(prompts).standard_error > 10.0


def p_of(interval: Interval) -> float:
    return conjunction([interval]).p_value


@of_both_kinds
@given(data=st.data())
def test_the_reverse_comparison_is_the_negative(of: Of, drawn: Drawn, data: st.DataObject) -> None:
    values = data.draw(drawn)
    one, other = of(values), of([[v / 2 for v in (*row[1:], row[0])] for row in reversed(values)])
    if isinstance(other, NestedScores):
        # The other side's prompts are other ones, and fewer.
        other = of([row[:2] for row in reversed(values)])
    forth, back = paired_difference(one, other), paired_difference(other, one)
    assert (back.mean, back.low, back.high) == pytest.approx(
        (-forth.mean, -forth.high, -forth.low), abs=1e-9
    )
    assert p_of(back) == pytest.approx(p_of(forth))


@settings(max_examples=50)
@given(MATRICES)
def test_p_is_below_five_percent_just_when_the_interval_leaves_out_zero(values: np.ndarray) -> None:
    difference = paired_difference(values + 0.125, np.zeros_like(values))
    p_value = p_of(difference)
    if abs(p_value - 0.05) > 1e-9:
        assert (p_value < 0.05) == (difference.low > 0 or difference.high < 0)


@given(MATRICES)
def test_degrees_of_freedom_lie_between_those_of_the_two_factors(values: np.ndarray) -> None:
    seeds, prompts = values.shape
    low, high = sorted((seeds - 1.0, prompts - 1.0))
    assert low - 1e-9 <= mean_interval(values).widest.df <= high + 1e-9


def test_a_number_of_each_seed_has_a_t_interval() -> None:
    """1, 2, 3: mean 2, standard deviation 1, standard error 1/√3, t(0.975; 2) = 4.30265.

    Half the width is 4.30265 / 1.73205 = 2.48414.
    """
    found = mean_over_seeds([1.0, 2.0, 3.0])
    assert found == pytest.approx((2.0, 2.0 - 2.48414, 2.0 + 2.48414), abs=1e-5)
    assert mean_over_seeds([0.25]) == (0.25, None, None)
