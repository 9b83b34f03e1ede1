"""Conjunctions of one-sided statements, against values worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics import (
    Interval,
    ScoreMatrix,
    conjunction,
    mean_interval,
    paired_difference,
    weighted_sum,
)


def additive(mean: float) -> Interval:
    """Return the interval of two seeds and two prompts, each a unit from the mean.

    The values are mean + {-1, +1} + {-1, +1}. MS_seed = 2 (1 + 1) / 1 = 4, MS_prompt the same and
    MS_error 0, so the variance is (4 + 4) / 4 = 2. The seeds' share is 1/2, and both factors have
    one degree of freedom: df = 1 / (1/2 + 1/2) = 1.
    """
    return mean_interval([[mean - 2.0, mean], [mean, mean + 2.0]])


def cauchy(t: float) -> float:
    """Return the upper tail of t with one degree of freedom."""
    return 0.5 - math.atan(t) / math.pi


def test_one_statement_is_the_usual_two_sided_test() -> None:
    """At 3 / sqrt(2) with one degree of freedom, whose distribution is Cauchy's."""
    p = cauchy(3.0 / math.sqrt(2.0))
    result = conjunction([additive(3.0)])
    assert result.p_for == pytest.approx(p)
    assert result.p_against == pytest.approx(1.0 - p)
    assert result.p_value == pytest.approx(2.0 * p)
    assert result.favored
    usual = paired_difference([[1.0, 3.0], [3.0, 5.0]], [[0.0, 0.0], [0.0, 0.0]])
    assert result == conjunction([usual])


def test_a_mean_of_zero_leans_neither_way() -> None:
    result = conjunction([additive(0.0)])
    assert (result.p_for, result.p_against) == pytest.approx((0.5, 0.5))
    assert not result.favored


def test_a_conjunction_is_as_strong_as_its_weakest_statement() -> None:
    """Means 3 and 1: for it, the p-value of 1; against it, twice that of the more refuted, 1."""
    result = conjunction([additive(3.0), additive(1.0)])
    assert result.weakest == 1
    assert result.p_for == pytest.approx(cauchy(1.0 / math.sqrt(2.0)))
    assert result.p_against == pytest.approx(min(1.0, 2.0 * cauchy(-1.0 / math.sqrt(2.0))))


def test_one_refuted_statement_refutes_the_conjunction() -> None:
    """Means 3 and -40: against it, 2 cauchy(40 / sqrt 2); no p-value is above 1."""
    result = conjunction([additive(3.0), additive(-40.0)])
    assert not result.favored
    assert result.p_value == pytest.approx(4.0 * cauchy(40.0 / math.sqrt(2.0)))
    assert conjunction([additive(0.1), additive(-0.1)]).p_value <= 1.0


def test_without_variance_the_sign_decides() -> None:
    for mean, p in ((2.0, 0.0), (0.0, 0.5), (-2.0, 1.0)):
        assert mean_interval(np.full((3, 4), mean)).p_above_zero() == p


def test_detectable_is_two_quantiles_of_standard_errors() -> None:
    """With one degree of freedom the quantile of q is tan(pi (q - 1/2)); the error is sqrt 2."""
    quantiles = math.tan(math.pi * 0.475) + math.tan(math.pi * 0.3)
    assert additive(0.0).detectable(0.05) == pytest.approx(quantiles * math.sqrt(2.0))
    assert additive(7.0).detectable(0.05) == pytest.approx(additive(0.0).detectable(0.05))
    assert additive(0.0).detectable(0.01) > additive(0.0).detectable(0.05)


def test_a_detectable_margin_is_found_eight_times_in_ten() -> None:
    """Simulated: 3 seeds x 40 prompts, the true mean at the margin a typical run reports."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(400, 10, 40)) + 0.3 * rng.normal(size=(400, 10, 1))
    margin = float(np.median([mean_interval(x).detectable(0.05) for x in noise[:100]]))
    found = [conjunction([mean_interval(x + margin)]).p_value < 0.05 for x in noise]
    assert 0.7 < float(np.mean(found)) < 0.9


def test_a_weighted_sum_is_paired_by_seed_and_prompt() -> None:
    """Entry by entry 2 a - b, with b's rows and columns in another order."""
    a = ScoreMatrix(np.array([[1.0, 2.0], [3.0, 4.0]]), (0, 1), ("p", "q"))
    b = ScoreMatrix(np.array([[40.0, 30.0], [20.0, 10.0]]), (1, 0), ("q", "p"))
    total = weighted_sum([(2.0, a), (-1.0, b)])
    assert isinstance(total, ScoreMatrix)
    assert total.values.tolist() == [[2.0 - 10.0, 4.0 - 20.0], [6.0 - 30.0, 8.0 - 40.0]]


@given(st.lists(st.floats(-20.0, 20.0), min_size=1, max_size=4), st.floats(-20.0, 20.0))
def test_a_further_statement_never_makes_a_conjunction_easier(
    means: list[float], further: float
) -> None:
    before = conjunction([additive(mean) for mean in means])
    after = conjunction([additive(mean) for mean in (*means, further)])
    assert after.p_for >= before.p_for
    assert 0.0 <= after.p_value <= 1.0
