"""Laws of informativeness and of the weights made from it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.errors import HarnessError, UserError
from harness.eva.informativeness import (
    informativeness,
    weights,
)
from harness.extensions import METRICS

REWARDS = [[1.0, 4.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0], [0.0, 5.0, 5.0, 2.0]]

reward_sets = arrays(
    np.float64, st.tuples(st.integers(2, 12), st.integers(2, 6)), elements=st.floats(-100, 100)
)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("a_min", [3.0, 0.0, 5.0]),
        ("a_avg", [2.0, 0.0, 2.0]),
        ("a_dis", [2.0, 0.0, 0.0]),
        ("var", [1.5, 0.0, 4.5]),
        ("mean", [2.0, 3.0, 3.0]),
        ("mean_inv", [2.0, 3.0, 3.0]),
        ("a_min_inv", [3.0, 0.0, 5.0]),
        ("uniform", [1.0, 1.0, 1.0]),
    ],
)
def test_each_metric_equals_its_hand_computed_value(metric: str, expected: list[float]) -> None:
    """Row 1, rewards 1 4 2 1: best 4, second 2, worst 1, mean 2.

    Gap 4-1 = 3, over the mean 4-2 = 2, over the second 4-2 = 2, population variance
    (1+4+0+1)/4 = 1.5. Row 2 is tied. Row 3, rewards 0 5 5 2: mean 3, gap 5, over the mean 2, best
    and second tie (0), variance (9+4+4+1)/4 = 4.5.
    """
    np.testing.assert_allclose(informativeness(REWARDS, metric), expected)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("a_min", [3 / 8, 0, 5 / 8]),
        ("a_min_inv", [2 / 7, 5 / 7, 0]),
        ("mean", [0, 1 / 2, 1 / 2]),
        ("mean_inv", [1, 0, 0]),
        ("uniform", [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_weights_are_min_max_then_divided_by_the_sum(metric: str, expected: list[float]) -> None:
    """Gaps 3, 0, 5 scale to 0.6, 0, 1 with sum 1.6; inverted to 0.4, 1, 0 with sum 1.4.

    Means 2, 3, 3 scale to 0, 1, 1; inverted to 1, 0, 0. A reciprocal of the means would give
    3/7, 2/7, 2/7 instead.
    """
    values = informativeness(REWARDS, metric)
    np.testing.assert_allclose(weights(values, metric), expected, atol=1e-15)


@pytest.mark.parametrize("metric", ["a_min", "a_avg", "a_dis", "var", "a_min_inv"])
def test_tied_rewards_are_exactly_uninformative(metric: str) -> None:
    """0.1 cannot be represented: `max - mean` of six of them is 1.4e-17, not 0."""
    assert (informativeness([[0.1] * 6, [0.7] * 6, [1 / 3] * 6], metric) == 0.0).all()


@pytest.mark.parametrize("metric", [m for m in METRICS if m != "uniform"])
def test_all_rewards_equal_leaves_no_weights(metric: str) -> None:
    values = informativeness([[0.1] * 6] * 4, metric)
    with pytest.raises(HarnessError, match=r"all 4 prompts have the same informativeness"):
        weights(values, metric)


def test_uniform_weights_exist_even_if_all_rewards_are_equal() -> None:
    values = informativeness([[1.0, 1.0]] * 4, "uniform")
    np.testing.assert_array_equal(weights(values, "uniform"), [0.25] * 4)


def test_a_single_prompt_has_no_spread() -> None:
    with pytest.raises(HarnessError):
        weights(informativeness([[0.0, 1.0]], "a_min"), "a_min")


@pytest.mark.parametrize("metric", METRICS)
def test_a_single_completion_is_an_error(metric: str) -> None:
    with pytest.raises(HarnessError, match="single rewarded completion"):
        informativeness([[1.0], [2.0]], metric)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_an_error_that_names_its_place(bad: float) -> None:
    with pytest.raises(HarnessError, match=r"1 of 4 rewards .* prompt 1, sample 0"):
        informativeness([[1.0, 2.0], [bad, 2.0]], "a_min")


@pytest.mark.parametrize("rewards", [[], [1.0, 2.0], [[]], np.zeros((0, 3)), np.zeros((2, 2, 2))])
def test_rewards_of_a_wrong_shape_are_an_error(rewards: object) -> None:
    with pytest.raises(HarnessError):
        informativeness(rewards, "a_min")  # type: ignore[arg-type]


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what adds a metric `mine` that gives some values."""
    monkeypatch.setattr(METRICS, "_added", dict(METRICS._added))

    def add(values: object, inverse: bool = False) -> None:
        METRICS.register("mine", "1", inverse=inverse)(lambda rewards: values)

    return add


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, np.nan, 2.0], "3 prompts, but some that are not finite"),
        ([np.inf] * 3, "some that are not finite"),
        ([1.0, 2.0], r"but an array of the shape \(2,\)"),
        ([[1.0], [2.0], [3.0]], r"but an array of the shape \(3, 1\)"),
        (1.0, "but a single number"),
    ],
)
def test_a_metric_that_gives_no_number_for_each_prompt_is_one_sentence(
    mine: Callable[..., None], values: object, said: str
) -> None:
    mine(values)
    with pytest.raises(HarnessError, match=said):
        informativeness(REWARDS, "mine")


@pytest.mark.parametrize(("inverse", "expected"), [(False, [0, 0.2, 0.8]), (True, [4, 3, 0])])
def test_a_users_metric_says_itself_whether_it_is_inverse(
    mine: Callable[..., None], inverse: bool, expected: list[float]
) -> None:
    """Of 1, 2 and 5 the min-max are 0, 1/4 and 1, the inverse ones 1, 3/4 and 0."""
    mine([1.0, 2.0, 5.0], inverse)
    values = informativeness(REWARDS, "mine")
    assert weights(values, "mine") == pytest.approx(np.array(expected) / sum(expected))


def test_an_unknown_metric_is_the_users_error() -> None:
    with pytest.raises(UserError, match=r"`a_max`: use one of .*a_min_inv"):
        informativeness(REWARDS, "a_max")
    with pytest.raises(UserError, match="a_max"):
        weights([1.0, 2.0], "a_max")


@given(reward_sets)
def test_no_metric_is_negative_but_the_mean(rewards: np.ndarray) -> None:
    for metric in set(METRICS) - {"mean", "mean_inv"}:
        assert (informativeness(rewards, metric) >= 0).all()


@given(reward_sets)
def test_the_advantages_are_ordered(rewards: np.ndarray) -> None:
    """The second best is at least the mean only for N = 2, but the worst never exceeds either."""
    gap = informativeness(rewards, "a_min")
    assert (informativeness(rewards, "a_avg") <= gap + 1e-9).all()
    assert (informativeness(rewards, "a_dis") <= gap + 1e-9).all()


@given(reward_sets, st.sampled_from(sorted(METRICS.shipped)))
def test_weights_are_a_distribution_or_an_error(rewards: np.ndarray, metric: str) -> None:
    values = informativeness(rewards, metric)
    try:
        result = weights(values, metric)
    except HarnessError:
        assert values.min() == values.max()
        return
    assert (result >= 0).all()
    assert result.sum() == pytest.approx(1.0)


@given(reward_sets, st.randoms(use_true_random=False))
def test_the_order_of_completions_does_not_matter(rewards: np.ndarray, random: object) -> None:
    order = list(range(rewards.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    for metric in METRICS:
        np.testing.assert_allclose(
            informativeness(rewards[:, order], metric), informativeness(rewards, metric), atol=1e-9
        )
