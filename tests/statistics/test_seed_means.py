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
    assert found.mean == 2.0
    assert found.low == pytest.approx(2.0 - 2.48414, abs=1e-5)
    assert found.high == pytest.approx(2.0 + 2.48414, abs=1e-5)
    assert found.seeds == 3


def test_a_wider_confidence_is_a_wider_interval() -> None:
    """t(0.995; 2) = 9.92484, so that half the width is 5.73011."""
    found = mean_over_seeds([1.0, 2.0, 3.0], confidence=0.99)
    assert found.high == pytest.approx(2.0 + 5.73011, abs=1e-5)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    found = mean_over_seeds([0.25])
    assert (found.mean, found.low, found.high, found.seeds) == (0.25, None, None, 1)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_what_is_not_a_number_is_no_part_of_a_mean(values: list[float]) -> None:
    with pytest.raises(HarnessError, match="finite value of each seed"):
        mean_over_seeds(values)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(HarnessError, match="not between 0 and 1"):
        mean_over_seeds([1.0, 2.0], confidence)
