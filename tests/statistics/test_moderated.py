"""What gains borrow from each other: limma's formulas, and the error rates that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from harness.statistics import NestedScores, Prior, ScoreMatrix, paired_difference, seed_prior
from harness.statistics.intervals import fit_prior, inverse_trigamma
from harness.statistics.scores import FloatArray, crossed_moments

PROMPTS = 12
EULER, PI_6 = 0.5772156649, np.pi**2 / 6


def table(
    rng: np.random.Generator, seeds: int, spreads: FloatArray, error: float = 0.5
) -> list[ScoreMatrix]:
    """Return rows of one mean, each with its own spread of seeds, the baseline first."""
    prompts = rng.normal(size=PROMPTS)
    luck = rng.normal(size=(seeds, 1))  # what all rows of one seed share
    return [
        ScoreMatrix.of(
            prompts + luck + spread * rng.normal(size=(seeds, 1))
            + error * rng.normal(size=(seeds, PROMPTS))
        )
        for spread in spreads
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("df", "digamma", "trigamma"), [(2.0, -EULER, PI_6), (4.0, 1.0 - EULER, PI_6 - 1.0)]
)
@pytest.mark.parametrize("step", [1.5, 2.0])
def test_the_prior_is_where_the_logarithms_of_the_mean_squares_say(
    df: float, digamma: float, trigamma: float, step: float
) -> None:
    """By hand: digamma(1) = -0.5772, trigamma(1) = pi^2 / 6; of 2, 1 / 1 more and 1 / 1 less.

    The logarithms 0, s and 2 s have the variance s^2, so trigamma(d0 / 2) = s^2 - trigamma(df / 2).
    """
    d0, mean_square = fit_prior(np.exp([0.0, step, 2.0 * step]), df)
    assert special.polygamma(1, d0 / 2) == pytest.approx(step**2 - trigamma)
    by_hand = step - digamma + np.log(df / 2) + special.digamma(d0 / 2) - np.log(d0 / 2)
    assert np.log(mean_square) == pytest.approx(by_hand)


def test_mean_squares_that_differ_no_more_than_by_chance_are_pooled() -> None:
    assert fit_prior(np.array([1.0, 1.2, 0.8]), 2.0) == pytest.approx((float("inf"), 1.0))


def test_a_prior_draws_the_mean_square_of_the_seeds_by_its_weight() -> None:
    values = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, 2.0]])
    own = crossed_moments(values)
    drawn = crossed_moments(values, Prior(mean_square=7.0, df=4.0))
    assert drawn.ms_seed == pytest.approx((4.0 * 7.0 + 2.0 * own.ms_seed) / 6.0)
    assert drawn.ms_prompt == own.ms_prompt
    assert float(drawn.mean) == float(own.mean)


def test_without_weight_a_prior_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    a, b = table(rng, 3, np.ones(2))
    assert paired_difference(a, b, prior=Prior(5.0, 0.0)) == paired_difference(a, b)


def test_two_gains_one_seed_no_spread_or_prompts_of_each_seed_s_own_borrow_nothing() -> None:
    rng = np.random.default_rng(1)
    for seeds, rows in ((3, 1), (3, 2), (1, 4)):
        baseline, *others = table(rng, seeds, np.ones(rows + 1))
        assert seed_prior(others, baseline) is None
    flat = ScoreMatrix.of(np.zeros((3, PROMPTS)))
    assert seed_prior([flat] * 4, flat) is None
    own = {seed: {"p": float(seed), "q": 1.0} for seed in range(3)}
    nested = [NestedScores.from_seeds(own)] * 4
    assert seed_prior(nested, nested[0]) is None


@pytest.mark.parametrize("rows", [3, 8, 20])
@pytest.mark.parametrize("seeds", [3, 10])
def test_no_gain_borrows_more_than_correlated_gains_are_worth(rows: int, seeds: int) -> None:
    rng = np.random.default_rng(rows)
    worth = rows / (1.0 + (rows - 1) * 0.6**2)
    for _ in range(20):
        baseline, *others = table(rng, seeds, np.ones(rows + 1))
        prior: Any = seed_prior(others, baseline)
        assert 0.0 <= prior.df <= (seeds - 1) * (worth - 1.0)


def gains_of(*directions: tuple[float, ...]) -> tuple[list[ScoreMatrix], ScoreMatrix]:
    """Return rows whose gains over a row of zeros have these means in each seed."""
    rows = [ScoreMatrix.of(np.tile(np.array(own)[:, None], PROMPTS)) for own in directions]
    return rows, ScoreMatrix.of(np.zeros((len(directions[0]), PROMPTS)))


A = (1 / 2**0.5, -1 / 2**0.5, 0.0)
B = (1 / 6**0.5, 1 / 6**0.5, -2 / 6**0.5)
MINUS_A, MINUS_B = (tuple(-x for x in it) for it in (A, B))


def test_what_four_gains_that_spread_alike_are_worth_by_hand() -> None:
    """A, B and their opposites have one sum of squares, 1, and add up to zero: r is below 0.6.

    The mean square is 12 / 2. Taken as correlated by 0.6, four gains are worth 4 / (1 + 3 0.36) =
    1.923, and add 2 (1.923 - 1) = 1.846 degrees of freedom to two; (4 - 2) / 4 of them count.
    """
    prior: Any = seed_prior(*gains_of(A, B, MINUS_A, MINUS_B))
    assert prior.mean_square == pytest.approx(PROMPTS / 2)
    assert prior.df == pytest.approx(2.0 * (4.0 / 2.08 - 1.0) * 2.0 / 4.0)


def test_what_gains_that_vary_together_are_worth_by_hand() -> None:
    """Five times A (squares 1, products 1) and once B (square 1, products with A 0); levels differ.

    All products are |5 A + B|^2 = 26, so that r = (26 - 6) / (6 - 1) / 6 = 2/3, and the six are
    worth 6 / (1 + 5 (2/3)^2) = 54/29.
    """
    raised = tuple(7.0 + x for x in A)
    prior: Any = seed_prior(*gains_of(A, A, A, raised, raised, B))
    assert prior.mean_square == pytest.approx(PROMPTS / 2)
    assert prior.df == pytest.approx(2.0 * (54 / 29 - 1.0) * 4.0 / 6.0)


def test_two_seeds_borrow_as_well() -> None:
    """Three gains of r below 0.6 are worth 3 / (1 + 2 0.36); a third of what is over 1 counts."""
    prior: Any = seed_prior(*gains_of((1.0, -1.0), (-1.0, 1.0), (1.0, -1.0)))
    assert (prior.mean_square, prior.df) == pytest.approx((2 * PROMPTS, (3 / 1.72 - 1.0) / 3.0))


def test_one_gain_without_spread_among_others_leaves_nothing_to_fit() -> None:
    assert seed_prior(*gains_of(A, B, MINUS_A, (0.0, 0.0, 0.0))) is None


def test_gains_that_are_one_gain_are_worth_nothing_more() -> None:
    """Correlated by 1, four gains are worth 4 / (1 + 3) = 1."""
    prior: Any = seed_prior(*gains_of(A, A, A, A))
    assert prior.df == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "spreads",
    [
        pytest.param([1.0] + [1.0] * 8, id="alike"),
        pytest.param([1.0] + [0.5, 2.0] * 4, id="rows differ"),
        pytest.param([2.0] + [1.0] * 8, id="the baseline spreads more"),
        pytest.param([1.0] * 4, id="three gains"),
    ],
)
def test_moderated_intervals_miss_a_true_zero_as_often_as_they_say(spreads: list[float]) -> None:
    rng = np.random.default_rng(77)
    missed, widths, own_widths = [], [], []
    for _ in range(600):
        baseline, *others = table(rng, 3, np.array(spreads))
        prior = seed_prior(others, baseline)
        for row in others:
            gain = paired_difference(row, baseline, prior=prior)
            missed.append(not gain.low <= 0.0 <= gain.high)
        own = paired_difference(others[-1], baseline)
        widths.append(gain.high - gain.low)
        own_widths.append(own.high - own.low)
    assert 0.03 <= np.mean(missed) <= 0.07
    assert np.mean(widths) < 0.95 * np.mean(own_widths)


@given(st.floats(-12, 12))
def test_the_inverse_of_trigamma_is_its_inverse(log: float) -> None:
    """Over 24 decades; trigamma(1) is pi squared over 6."""
    value = 10.0**log
    assert float(special.polygamma(1, inverse_trigamma(value))) == pytest.approx(value, rel=1e-12)
    assert inverse_trigamma(np.pi**2 / 6) == pytest.approx(1.0, rel=1e-14)
