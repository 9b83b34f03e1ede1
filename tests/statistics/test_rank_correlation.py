"""Laws of rank correlations over things, and how often their intervals hold the truth."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.errors import HarnessError
from harness.statistics import NestedScores, ScoreMatrix, rank_agreement, rank_correlation
from harness.statistics.comparisons import RankCorrelation, permutation_p


def things(
    means: list[float], noise: float = 0.0, seeds: int = 3, draw: int = 0
) -> list[ScoreMatrix]:
    """Return a matrix of seeds x 40 prompts for each thing, scattered about its mean."""
    rng = np.random.default_rng(draw)
    shape = (len(means), seeds, 40)
    values = np.array(means)[:, None, None] + noise * rng.normal(size=shape)
    return [ScoreMatrix.of(matrix) for matrix in values]


def found(left: list[float], right: list[float], **scatter: float) -> RankCorrelation:
    noise = scatter.get("noise", 0.0)
    result = rank_correlation(things(left, noise), things(right, noise, draw=1))
    assert result is not None
    return result


def test_without_noise_the_order_is_certain_over_seeds_and_prompts() -> None:
    """Ranks 1 2 3 4 5 against 2 1 3 4 5: the squared differences sum to 2, rho = 1 - 12/120."""
    result = found([1.0, 2.0, 3.0, 4.0, 5.0], [20.0, 10.0, 30.0, 40.0, 50.0])
    assert result.rho == pytest.approx(0.9)
    assert (result.low, result.high) == pytest.approx((0.9, 0.9))
    assert result.things_low < 0.9 <= result.things_high
    assert result.things == 5


def test_the_p_value_counts_all_pairings() -> None:
    """Of 5! = 120 pairings one orders all alike and one all opposite: 2 / 120."""
    five = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert found(five, five).p_value == pytest.approx(2 / 120)
    partly = found([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 3.0])
    rhos = [stats.spearmanr([1, 2, 3, 4], order).statistic
            for order in itertools.permutations([1, 2, 3, 4])]  # fmt: skip
    above = sum(rho >= partly.rho - 1e-9 for rho in rhos)
    assert partly.p_value == pytest.approx(2 * above / math.factorial(4))


def test_the_mirror_image_has_the_mirrored_correlation() -> None:
    up = found([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0])
    down = found([1.0, 2.0, 3.0, 4.0], [-1.0, -3.0, -2.0, -4.0])
    assert down.rho == pytest.approx(-up.rho)
    assert down.p_value == pytest.approx(up.p_value)


def test_prompts_in_another_order_are_the_same_prompts() -> None:
    """The second thing's columns are turned round, ids and all."""
    left, right = things([1.0, 2.0, 3.0, 4.0], 1.0), things([1.0, 2.0, 3.0, 4.0], 1.0, draw=1)
    turned = ScoreMatrix(left[1].values[:, ::-1], left[1].seeds, left[1].prompts[::-1])
    assert rank_correlation([left[0], turned, *left[2:]], right) == rank_correlation(left, right)


def test_means_that_are_one_number_are_a_tie_however_they_are_rounded() -> None:
    """Of six things on a grid of ten values, many tie; 1e-13 is far below what scores resolve."""
    rng = np.random.default_rng(0)
    grid = rng.integers(0, 2, size=(2, 6, 3, 20)).astype(float)

    def correlated(noise: float) -> RankCorrelation | None:
        moved = grid + noise * rng.standard_normal(grid.shape)
        left, right = ([ScoreMatrix.of(matrix) for matrix in side] for side in moved)
        return rank_correlation(left, right)

    assert correlated(1e-13) == correlated(0.0)


def test_means_are_ranked_to_nine_decimals() -> None:
    """1 and 1 + 4e-10 are a tie: ranks 1.5, 1.5, 3, 4 beside 2, 1, 3, 4.

    By hand, from their means of 2.5: products 0.5 + 1.5 + 0.25 + 2.25, squares 4.5 and 5.
    """
    given = [2.0, 1.0, 3.0, 4.0]
    result = rank_agreement(things([1.0, 1.0 + 4e-10, 2.0, 3.0]), given)
    assert result == pytest.approx((4.5 / 22.5**0.5,) * 3)
    correlated = found([1.0, 1.0 + 4e-10, 2.0, 3.0], given)
    assert (correlated.rho, correlated.low) == pytest.approx((4.5 / 22.5**0.5,) * 2)


def test_the_two_measurements_may_have_other_seeds_and_prompts() -> None:
    """A reward model has one accuracy, over pairs; its policies have seeds."""
    left = things([1.0, 2.0, 3.0, 4.0], seeds=1)
    right = [ScoreMatrix.of(np.full((5, 7), mean)) for mean in (1.0, 2.0, 3.0, 4.0)]
    result: Any = rank_correlation(left, right)
    assert (result.rho, result.low) == pytest.approx((1.0, 1.0))


def test_what_says_nothing_is_none() -> None:
    assert rank_correlation(things([1.0, 2.0, 3.0]), things([1.0, 2.0, 3.0])) is None
    assert rank_correlation(things([1.0] * 5), things([1.0, 2.0, 3.0, 4.0, 5.0])) is None


def test_measurements_of_other_things_are_refused() -> None:
    other = ScoreMatrix.of(np.zeros((3, 39)))
    with pytest.raises(HarnessError, match="prompts"):
        rank_correlation([*things([1.0, 2.0, 3.0]), other], things([1.0, 2.0, 3.0, 4.0]))


def test_the_interval_over_seeds_and_prompts_is_on_the_careful_side() -> None:
    """Six things whose true order is the same on both sides, with noise that mixes neighbours up.

    The truth is rho = 1, at the edge, so no interval can cover it from both sides; what must hold
    is that its upper end comes near 1 and its lower end lies below the estimate.
    """
    means = [0.0, 0.3, 0.6, 0.9, 1.2, 1.5]
    below = 0
    for draw in range(20):
        left = things(means, 2.0, draw=2 * draw)
        right = things(means, 2.0, draw=2 * draw + 1)
        result: Any = rank_correlation(left, right)
        assert result.low <= result.rho <= result.high + 1e-9
        below += result.high < 0.9
    assert below <= 1


def test_unrelated_measurements_are_rarely_called_related() -> None:
    """200 pairs of random orders of six things: p below 0.05 at most about one time in twenty.

    With 2 x 360 = 720 pairings the level can be met closely: 0.05 + 2 sqrt(0.05 * 0.95 / 200) =
    0.081.
    """
    rng = np.random.default_rng(5)
    small = sum(
        permutation_p(rng.normal(size=6), rng.normal(size=6), rng) < 0.05 for _ in range(200)
    )
    assert small / 200 <= 0.081


def nested(means: list[float], noise: float = 0.0, seeds: int = 3) -> list[NestedScores]:
    rng = np.random.default_rng(7)
    return [
        NestedScores.from_seeds({
            seed: {f"p{i}": mean + shift for i in range(4)}
            for seed, shift in enumerate(noise * rng.normal(size=seeds))
        })
        for mean in means
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [things, nested])
def test_the_order_of_given_numbers(kind: Any) -> None:
    """As above, 0.9: an order that is certain has no width, a rising transformation no effect."""
    ours, given = [1.0, 2.0, 3.0, 4.0, 5.0], [20.0, 10.0, 30.0, 40.0, 50.0]
    result: Any = rank_agreement(kind(ours), given)
    assert result == pytest.approx((0.9, 0.9, 0.9))
    assert rank_agreement(kind(ours), [math.exp(x) for x in given]) == result
    noisy: Any = rank_agreement(kind(ours, 2.0), given)
    assert -1.0 <= noisy[1] < noisy[2] <= 1.0
    assert rank_agreement(kind(ours[:3]), given[:3]) is None
    assert rank_agreement(kind([1.0] * 5), given) is None
    assert rank_agreement(kind(ours), [1.0] * 5) is None
    assert rank_agreement([], []) is None


@pytest.mark.parametrize("kind", [things, nested])
def test_more_noise_widens_the_interval_of_an_order(kind: Any) -> None:
    ours = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    widths = []
    for noise in (0.0, 0.3, 3.0):
        result: Any = rank_agreement(kind(ours, noise), ours)
        widths.append(result[2] - result[1])
    assert widths[0] == 0.0
    assert widths == sorted(widths)


def test_seeds_are_resampled_as_well_as_prompts() -> None:
    """Two seeds that order four things in opposite ways, and prompts that say nothing.

    The first weighs more, so that the means are in its order; a quarter of the resamples has the
    second alone, and their correlation is -1.
    """
    given = [1.0, 2.0, 3.0, 4.0]
    turned = [ScoreMatrix.of(np.array([[level] * 5, [-0.5 * level] * 5])) for level in given]
    sure = [ScoreMatrix.of(np.full((2, 5), level)) for level in given]
    result: Any = rank_correlation(turned, sure)
    assert (result.rho, result.low, result.high) == pytest.approx((1.0, -1.0, 1.0))
    assert rank_agreement(turned, given) == pytest.approx((1.0, -1.0, 1.0))
    own = [
        NestedScores.from_seeds({0: dict.fromkeys("ab", k), 1: dict.fromkeys("ab", -k / 2)})
        for k in given
    ]
    assert rank_agreement(own, given) == pytest.approx((1.0, -1.0, 1.0))
