"""Many p-values, rank correlation over rows, agreement of signs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.statistics import holm, sign_agreement, spearman
from harness.statistics.comparisons import mean_ranks


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.04, 0.01, 0.02], [0.04, 0.03, 0.04]),  # 0.01, 0.02, 0.04 times 3, 2, 1
        ([0.02, 0.025, 0.9], [0.06, 0.06, 0.9]),  # 0.025 x 2 = 0.05 is raised to 0.02 x 3
        ([], []),
    ],
)
def test_holm_steps_down_and_never_decreases(p_values: list[float], adjusted: list[float]) -> None:
    assert holm(p_values) == pytest.approx(adjusted)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_p_value_and_bonferroni(p_values: list[float]) -> None:
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        assert p <= adjusted <= min(1.0, len(p_values) * p)


def test_spearman_by_hand() -> None:
    """Ranks 1 2 3 4 and 2 1 3 4: 1 - 6 (1 + 1) / (4 x 15) = 0.8; 1 2 3 and 1 3 2: 1/2."""
    assert spearman([10.0, 20.0, 30.0, 40.0], [5.0, 1.0, 7.0, 9.0]) == pytest.approx(0.8)
    assert spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("a", "b"), [([1.0, 2.0], [1.0, 2.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([], [])]
)
def test_spearman_says_nothing_of_two_rows_or_a_constant(a: list[float], b: list[float]) -> None:
    assert spearman(a, b) is None


def test_signs_agree_row_by_row_and_a_printed_zero_claims_nothing() -> None:
    assert sign_agreement([1.0, -0.5, 2.0, 0.0], [8.5, 0.2, 0.0, 1.0]) == (1, 3)
    assert sign_agreement([1.0, -1.0, 2.0], [1.0, 1.0, 0.0]) == (1, 2)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_ranks_are_those_of_scipy_ties_included(rows: list[list[int]]) -> None:
    values = np.array(rows, dtype=np.float64)
    assert mean_ranks(values).tolist() == stats.rankdata(values, axis=-1).tolist()
    assert mean_ranks(values[0]).tolist() == stats.rankdata(values[0]).tolist()
