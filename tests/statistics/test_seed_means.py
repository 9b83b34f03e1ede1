"""Means over seeds of numbers that each seed has of its own."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.statistics import mean_over_seeds


def test_the_interval_by_hand() -> None:
    """1, 2, 3: mean 2, standard deviation 1, standard error 1/√3, t(0.975; 2) = 4.30265.

    Half the width is 4.30265 / 1.73205 = 2.48414.
    """
    found = mean_over_seeds([1.0, 2.0, 3.0])
    assert found == pytest.approx((2.0, 2.0 - 2.48414, 2.0 + 2.48414), abs=1e-5)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    assert mean_over_seeds([0.25]) == (0.25, None, None)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_what_is_not_a_number_is_no_part_of_a_mean(values: list[float]) -> None:
    with pytest.raises(HarnessError, match="finite value of each seed"):
        mean_over_seeds(values)
