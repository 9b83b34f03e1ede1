"""Laws of selecting prompts by weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.eva.informativeness import select, selected_count


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_count_is_rounded_down() -> None:
    assert [selected_count(n, 0.25) for n in (4, 7, 8, 10_000)] == [1, 1, 2, 2500]


def test_a_fraction_that_selects_nothing_is_an_error() -> None:
    with pytest.raises(HarnessError, match=r"0.25 of 3 prompts"):
        selected_count(3, 0.25)


def test_weighted_draws_are_successive_and_without_replacement() -> None:
    """Inclusion probabilities of two draws from weights 0.5, 0.3, 0.2, by hand.

    Item 1: drawn first 0.5; else second, after item 2 (0.3 * 0.5/0.7) or 3 (0.2 * 0.5/0.8):
    0.5 + 0.214286 + 0.125 = 0.839286. Item 2: 0.3 + 0.5 * 0.3/0.5 + 0.2 * 0.3/0.8 = 0.675. Item 3:
    0.2 + 0.5 * 0.2/0.5 + 0.3 * 0.2/0.7 = 0.485714. (Sum 2.) First draws follow the weights. With
    20,000 repetitions the standard error is at most 0.0036; four of them are allowed.
    """
    generator, repetitions = rng(1), 20_000
    draws = np.array(
        [select([0.5, 0.3, 0.2], 2, "weighted", generator) for _ in range(repetitions)]
    )
    included = np.bincount(draws.ravel(), minlength=3) / repetitions
    first = np.bincount(draws[:, 0], minlength=3) / repetitions
    np.testing.assert_allclose(included, [0.839286, 0.675, 0.485714], atol=0.0144)
    np.testing.assert_allclose(first, [0.5, 0.3, 0.2], atol=0.0144)


def test_fewer_positive_weights_than_draws_is_an_error_with_both_numbers() -> None:
    with pytest.raises(HarnessError, match=r"3 prompts .* only 2 of 4"):
        select([0.5, 0.5, 0.0, 0.0], 3, "weighted", rng())


def test_draws_beyond_the_positive_weights_can_be_uniform_over_the_others() -> None:
    """Two positive weights and three zeros, three draws: both, then each zero with chance 1/3.

    With 6,000 repetitions the standard error of a share is 0.0061; four of them are allowed.
    """
    generator = rng(2)
    draws = np.array(
        [select([0, 0.9, 0, 0.1, 0], 3, "weighted", generator, "uniform") for _ in range(6000)]
    )
    assert all(sorted(draw[:2]) == [1, 3] for draw in draws)
    shares = np.bincount(draws[:, 2], minlength=5) / len(draws)
    np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 0, 1 / 3], atol=0.0244)


def test_uniform_draws_beyond_the_positive_weights_repeat_nothing() -> None:
    chosen = select([1.0] + [0.0] * 7, 8, "weighted", rng(), "uniform")
    assert sorted(chosen) == list(range(8))


def test_enough_positive_weights_leave_the_zeros_alone_whatever_is_to_be_done_without() -> None:
    weights = [0.5, 0.5, 0.0, 0.0]
    assert sorted(select(weights, 2, "weighted", rng(), "uniform")) == [0, 1]


def test_exactly_as_many_positive_weights_as_draws_takes_them_all() -> None:
    assert sorted(select([0.0, 0.9, 0.0, 0.1], 2, "weighted", rng())) == [1, 3]


def test_greedy_takes_the_heaviest_and_breaks_ties_by_position() -> None:
    assert select([0.1, 0.3, 0.3, 0.0, 0.3], 3, "greedy", rng()).tolist() == [1, 2, 4]
    assert select([0.1, 0.3, 0.3, 0.0, 0.3], 2, "greedy", rng()).tolist() == [1, 2]


def test_greedy_draws_nothing_from_the_generator() -> None:
    used, untouched = rng(), rng()
    select([0.4, 0.6], 1, "greedy", used)
    assert used.random() == untouched.random()


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=30), st.data())
def test_a_selection_is_distinct_and_repeats_with_its_seed(
    raw: list[float], data: st.DataObject
) -> None:
    weights = np.array(raw) / np.sum(raw)
    count = data.draw(st.integers(1, len(raw)))
    sampling: Any = data.draw(st.sampled_from(["weighted", "greedy"]))
    first = select(weights, count, sampling, rng(3))
    assert len(set(first.tolist())) == count
    np.testing.assert_array_equal(first, select(weights, count, sampling, rng(3)))
