"""Scores of prompts that each seed has of its own, against sums done by hand."""

import math

import pytest
from scipy import stats
from test_intervals import nested

from harness.errors import HarnessError
from harness.statistics import (
    NestedScores,
    conjunction,
    mean_interval,
    paired_difference,
    weighted_sum,
)

FIRST = {0: {"a": 1.0, "b": 3.0}, 1: {"c": 4.0, "d": 6.0, "e": 8.0}}
SECOND = {0: {"f": 0.0, "g": 0.0, "h": 3.0}, 1: {"i": 2.0, "j": 4.0}}


def test_the_interval_is_that_of_the_seed_means_where_they_differ_more_than_prompts() -> None:
    """Seed means 2 and 6, mean 4, of five prompts in all.

    Their variance is (4 + 4) / 1 = 8, a half of it, 4, that of the mean: standard error 2. With one
    degree of freedom t at 0.975 is tan(0.475 pi) = 12.706. By the prompts (seed means of variance
    2 / 2 and 4 / 3) the standard error is sqrt(7 / 3) / 2 = 0.76, and the interval narrower.
    """
    interval = mean_interval(NestedScores.from_seeds(FIRST))
    assert (interval.mean, interval.standard_error, interval.widest.df) == (4.0, 2.0, 1.0)
    assert interval.high == pytest.approx(4.0 + 2.0 * math.tan(0.475 * math.pi))
    assert interval.seeds == 2


def test_a_difference_is_taken_seed_by_seed() -> None:
    """Derivation: seed means 2, 6 less 1, 3 are 1 and 3: mean 2, variance 2, a half of it 1.

    By the prompts the standard error is less, sqrt(1 + 1 + 4 / 3 + 1) / 2 = 1.04 with 5.5 degrees
    of freedom, and its interval narrower.
    """
    found = paired_difference(NestedScores.from_seeds(FIRST), NestedScores.from_seeds(SECOND))
    assert (found.mean, found.standard_error, found.widest.df) == (2.0, 1.0, 1.0)
    assert conjunction([found]).p_value == pytest.approx(1.0 - 2.0 * math.atan(2.0) / math.pi)


def test_it_is_never_narrower_than_the_prompts_alone_would_give() -> None:
    """Both seeds have the mean 2, of 1 and 3, so the seeds show no spread at all.

    By the prompts each seed mean has variance 2 / 2 = 1, with one degree of freedom. The mean of
    both has (1 + 1) / 4 = 1/2 with (1 + 1)^2 / (1 + 1) = 2 degrees, and t at 0.975 is 4.3027.
    """
    interval = mean_interval(nested([[1.0, 3.0], [3.0, 1.0]]))
    assert interval.standard_error == pytest.approx(math.sqrt(0.5))
    assert interval.widest.df == pytest.approx(2.0)
    assert interval.high == pytest.approx(2.0 + 4.302653 * math.sqrt(0.5))
    assert interval.spreads[0].standard_error == 0.0
    # The p-value is the larger of the two, so that it agrees with the interval.
    assert interval.p_above_zero() == pytest.approx(float(stats.t.sf(2.0 / math.sqrt(0.5), 2)))


def test_one_seed_is_over_its_prompts() -> None:
    """The prompts are taken as independent, by Welch and Satterthwaite.

    1 and 3 have variance 2, their mean 2 / 2 = 1 with one degree of freedom; 0, 0 and 3 have
    variance (1 + 1 + 4) / 2 = 3, their mean 3 / 3 = 1 with two. The difference has variance
    1 + 1 = 2 and 2^2 / (1^2 / 1 + 1^2 / 2) = 8/3 degrees of freedom.
    """
    first, second = (NestedScores.from_seeds({0: sets[0]}) for sets in (FIRST, SECOND))
    alone = mean_interval(first)
    assert (alone.mean, alone.standard_error, alone.widest.df, alone.seeds) == (2.0, 1.0, 1.0, 1)
    found = paired_difference(first, second)
    assert found.mean == 1.0
    assert found.standard_error == pytest.approx(math.sqrt(2.0))
    assert found.widest.df == pytest.approx(8.0 / 3.0)


def test_what_both_sides_share_in_a_seed_cancels() -> None:
    luck = [[0.0, 0.5], [50.0, 50.5], [-30.0, -29.5]]
    better = [[value + 1.0 for value in values] for values in luck]
    found = paired_difference(nested(better), nested(luck))
    assert found.mean == 1.0
    assert found.spreads[0].standard_error == 0.0
    assert found.standard_error < 0.3
    assert mean_interval(nested(luck)).standard_error > 10.0


def test_prompts_without_any_spread_are_a_point() -> None:
    interval = mean_interval(nested([[3.0, 3.0]]))
    assert (interval.low, interval.high) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("sets", "level"),
    [
        ([[2.0, 2.0], [2.0, 2.0]], 2.0),
        ([[2.0, 2.0 + 4e-10], [2.0, 2.0 + 4e-10]], 2.0),
        ([[2.0 - 1e-6, 2.0 + 1e-6], [2.0, 2.0]], None),
        ([[2.0, 2.0], [3.0, 3.0]], None),
    ],
)
def test_scores_that_are_one_number_have_a_level(
    sets: list[list[float]], level: float | None
) -> None:
    found = nested(sets).level
    assert found == (None if level is None else pytest.approx(level))


def test_small_scores_have_the_freedom_of_their_prompts() -> None:
    """One seed of three prompts: two degrees, in any unit."""
    (spread,) = nested([[0.0, 0.01, 0.02]]).spreads()
    assert spread.df == pytest.approx(2.0)
    assert spread.standard_error == pytest.approx(0.01 / 3**0.5)


def test_a_weighted_sum_weighs_means_and_adds_variances() -> None:
    """Derivation for seed 0: 2 x 2 - 1 = 3; variance 4 x 1 + 1 x 1 = 5, of 16 / 1 + 1 / 2 squares.

    A constant has a mean and no variance.
    """
    first, second = NestedScores.from_seeds(FIRST), NestedScores.from_seeds(SECOND)
    total = weighted_sum([(2.0, first), (-1.0, second)])
    assert isinstance(total, NestedScores)
    assert total.means.tolist() == [3.0, 9.0]
    assert total.variances[0] == pytest.approx(5.0)
    assert total.squares[0] == pytest.approx(16.5)
    shifted = weighted_sum([(1.0, first), (1.0, first.constant(0.5))])
    assert isinstance(shifted, NestedScores)
    assert (shifted.mean, shifted.variances.tolist()) == (4.5, first.variances.tolist())


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({0: {"a": 1.0}}, "1 scored prompts"),
        ({0: {"a": 1.0, "b": math.nan}}, "not finite"),
    ],
)
def test_what_is_no_set_of_scores_is_said(
    scores: dict[int, dict[str, float]], message: str
) -> None:
    with pytest.raises(HarnessError, match=message):
        NestedScores.from_seeds(scores)
