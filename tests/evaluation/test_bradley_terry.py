"""Bradley-Terry win rates: closed form, the authors' regression, and limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from harness.errors import HarnessError
from harness.evaluation.statistics import win_rates


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 50))
def test_two_models_give_the_share_of_wins_ties_half(won: int, lost: int, ties: int) -> None:
    wins = np.array([[0.0, lost + ties / 2], [won + ties / 2, 0.0]])
    share = (won + ties / 2) / (won + lost + ties)
    assert win_rates(wins, 0) == pytest.approx([0.5, share], rel=1e-12)


def test_models_that_met_only_the_baseline_do_not_touch_each_other() -> None:
    """Derivation: 3 of 4 and 1 of 10 against model 1, whatever else is in the file."""
    wins = np.array([[0.0, 3.0, 0.0], [1.0, 0.0, 9.0], [0.0, 1.0, 0.0]])
    assert win_rates(wins, 1) == pytest.approx([0.75, 0.5, 0.1])


def test_a_rating_passes_through_a_third_model() -> None:
    """Derivation: odds 3 : 1 over a middle model that has odds 2 : 1 over the baseline make 6 : 1.

    Three models in a chain have as many parameters as pairs, so the fit is exact.
    """
    wins = np.array([[0.0, 3.0, 0.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    assert win_rates(wins, 2) == pytest.approx([6 / 7, 2 / 3, 0.5])


def test_a_round_robin_agrees_with_the_regression_of_the_benchmark() -> None:
    """The benchmark fits ratings of base 10 and scale 400 by logistic regression on battles."""
    rng = np.random.default_rng(0)
    wins = rng.integers(1, 30, size=(4, 4)).astype(float)
    np.fill_diagonal(wins, 0.0)
    rows, labels, weights = [], [], []
    for i in range(4):
        for j in range(4):
            if i != j:
                row = np.zeros(4)
                row[i], row[j] = np.log(10), -np.log(10)
                rows += [row, -row]
                labels += [1, 0]
                weights += [wins[i, j], wins[i, j]]
    fit = LogisticRegression(fit_intercept=False, C=np.inf, tol=1e-10, max_iter=1000)
    ratings = 400 * fit.fit(np.array(rows), labels, sample_weight=weights).coef_[0]
    expected = 1 / (1 + 10 ** ((ratings[0] - ratings) / 400))
    assert win_rates(wins, 0) == pytest.approx(expected, abs=1e-5)


def test_the_fit_makes_expected_wins_equal_to_wins() -> None:
    """The score equations: for each model, the sum of its expected wins is its wins."""
    wins = np.array([[0.0, 5.0, 2.0], [4.0, 0.0, 7.0], [9.0, 1.0, 0.0]])
    rates = win_rates(wins, 0)
    ratings = np.log(rates / (1 - rates))
    chance = expit(ratings[:, None] - ratings[None, :])
    expected = ((wins + wins.T) * chance).sum(axis=1)
    assert expected == pytest.approx(wins.sum(axis=1))


def test_a_model_that_never_loses_has_rate_one_and_one_that_never_wins_zero() -> None:
    wins = np.array([[0.0, 0.0, 4.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert win_rates(wins, 0).tolist() == [0.5, 1.0, 0.0]


def test_between_unbeaten_groups_the_limit_is_taken_and_within_one_the_fit() -> None:
    """Derivation: 0 and 1 split 1 : 3 among themselves; both only lose to 2, so 2's rate is 1."""
    wins = np.array([[0.0, 1.0, 0.0], [3.0, 0.0, 0.0], [5.0, 2.0, 0.0]])
    assert win_rates(wins, 0) == pytest.approx([0.5, 0.75, 1.0])


def test_a_model_without_a_connection_to_the_baseline_is_an_error() -> None:
    """Two models that both lost to a third are not comparable with each other."""
    wins = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    with pytest.raises(HarnessError, match="1 models were never compared"):
        win_rates(wins, 0)
