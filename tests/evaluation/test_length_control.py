"""The preference at equal lengths: exact cases, cases without a fit, and its spread."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from harness.errors import HarnessError
from harness.evaluation.benchmarks.length_control import control_length, fit_logistic


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(("high", "low"), [(2, -1), (1, 2)])
def test_two_lengths_are_fitted_exactly(high: float, low: float) -> None:
    """Derivation: preferences 0.8 at d = 2 and 0.4 at d = -1, each twice, sd(d) = sqrt(3).

    Two values of x and two parameters: the line through logit 0.8 at tanh(2/sqrt 3) and logit 0.4
    at tanh(-1/sqrt 3), read off at zero. At d = 1 and d = 2, sd(d) = 1 / sqrt(3), they differ
    little, tanh 0.939 and 0.998, and are carried to zero as well.
    """
    result = control_length(array(0.8, 0.8, 0.4, 0.4), array(high, high, low, low))
    near, far = np.tanh(array(high, low) * 3**0.5 / abs(high - low))
    slope = (logit(0.8) - logit(0.4)) / (near - far)
    assert result.state == "fitted"
    assert result.slope == pytest.approx(slope)
    assert result.rate == pytest.approx(expit(logit(0.8) - slope * near))


def test_what_has_no_maximum_is_one_sentence() -> None:
    """Every loss is at a smaller x than every win, so that no slope is steep enough."""
    x = array(-2, -1, 1, 2)
    with pytest.raises(HarnessError, match="did not converge"):
        fit_logistic(x[:, None], array(0, 0, 1, 1))


def test_a_win_rate_owed_to_length_alone_is_one_half_at_equal_lengths() -> None:
    """By symmetry: preferences p at d and 1 - p at -d give an intercept of zero."""
    result = control_length(array(0.9, 0.7, 0.3, 0.1), array(5, 1, -1, -5))
    assert result.rate == pytest.approx(0.5)
    assert result.slope is not None
    assert result.slope > 0


def test_the_fit_is_the_unpenalised_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    difference = rng.normal(40, 100, size=300)
    preference = rng.beta(0.5, 0.5, size=300)
    x = np.tanh(difference / difference.std(ddof=1))[:, None]
    other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(
        np.vstack([x, x]),
        np.repeat([1, 0], 300),
        sample_weight=np.concatenate([preference, 1 - preference]),
    )
    result = control_length(preference, difference)
    assert result.rate == pytest.approx(expit(other.intercept_[0]), abs=1e-5)
    assert result.slope == pytest.approx(other.coef_[0, 0], abs=1e-4)


def test_the_values_spread_as_the_rate_without_each_prompt_does() -> None:
    """The jackknife: n - 1 times the change of the rate when a prompt is left out."""
    rng = np.random.default_rng(0)
    difference = rng.normal(40, 100, size=300)
    preference = (rng.random(300) < expit(difference / 200)).astype(float)
    values = control_length(preference, difference).values
    assert values is not None
    left_out = [
        control_length(np.delete(preference, i), np.delete(difference, i)).rate for i in range(300)
    ]
    spread = np.array(left_out, dtype=np.float64).std()
    assert values.std() == pytest.approx(299 * spread, rel=0.03)


def test_almost_separated_preferences_have_no_rate() -> None:
    """One win in 805, on lengths that carry the fit off: once in about 700 such draws."""
    rng = np.random.default_rng(491)
    difference = np.round(np.exp(rng.normal(5, 1, 805)) - np.exp(rng.normal(5, 1, 805)))
    preference = np.zeros(805)
    preference[rng.integers(805)] = 1.0
    assert control_length(preference, difference).state == "not identified"


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_one_side_always_preferred_gives_the_limit(certain: float) -> None:
    result = control_length(np.full(3, certain), array(1, 2, -3))
    assert (result.rate, result.slope) == (certain, None)
    assert result.state == "one side always preferred"


@pytest.mark.parametrize(
    ("preference", "difference"),
    [
        (array(1, 0, 1), array(7, 7, 7)),  # one length
        (array(0, 0, 1, 1), array(-2, -1, 1, 2)),  # longer wins
        (array(1, 1, 0, 0), array(-2, -1, 1, 2)),  # shorter wins
        (array(0, 0, 0.5, 1), array(-2, -1, 1, 2)),  # half a win between
        (array(1, 0), array(3, 3)),  # two alike
        (array(0.5, 0.5, 0.7), array(600, 601, 602)),  # all far from zero
        (array(0.5), array(3)),
    ],
)
def test_what_no_fit_can_tell_has_no_rate(preference: np.ndarray, difference: np.ndarray) -> None:
    result = control_length(preference, difference)
    assert (result.rate, result.values, result.state) == (None, None, "not identified")
