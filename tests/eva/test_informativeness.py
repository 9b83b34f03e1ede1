"""Laws of informativeness, of the weights made from it, and of selecting prompts by weight."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.errors import HarnessError, UserError
from harness.eva.informativeness import informativeness, select, selected_count, weights
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


@pytest.mark.parametrize(
    ("values", "metric", "floor", "expected"),
    [
        ([1.0, 2.0, 3.0], "a_avg", 0.1, [0.1 / 1.6, 0.5 / 1.6, 1.0 / 1.6]),
        ([1.0, 2.0, 3.0], "mean_inv", 0.0, [2 / 3, 1 / 3, 0.0]),
        ([0.0] * 4, "a_avg", 0.01, [0.25] * 4),
    ],
)
def test_a_floor_is_put_under_the_scaled_values(
    values: list[float], metric: str, floor: float, expected: list[float]
) -> None:
    """Values 1, 2, 3 scale to 0, 1/2, 1; a floor of 0.1 makes 0.1, 0.5, 1.0 of sum 1.6.

    Inverted they are 1, 1/2, 0 of sum 3/2. Equal values have equal chances.
    """
    assert weights(values, metric, floor) == pytest.approx(expected)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    floor=st.floats(0.001, 1),
    metric=st.sampled_from(["a_avg", "a_min", "mean_inv", "a_min_inv"]),
)
def test_with_a_floor_every_prompt_has_a_chance_and_chances_sum_to_one(
    values: list[float], floor: float, metric: str
) -> None:
    chances = weights(values, metric, floor)
    assert chances.sum() == pytest.approx(1.0)
    assert (chances > 0).all()


@pytest.mark.parametrize("metric", ["a_min", "a_avg", "a_dis", "var", "a_min_inv"])
def test_tied_rewards_are_exactly_uninformative(metric: str) -> None:
    """0.1 cannot be represented: `max - mean` of six of them is 1.4e-17, not 0."""
    assert (informativeness([[0.1] * 6, [0.7] * 6, [1 / 3] * 6], metric) == 0.0).all()


@pytest.mark.parametrize("metric", [m for m in METRICS if m != "uniform"])
def test_all_rewards_equal_leaves_no_weights(metric: str) -> None:
    values = informativeness([[0.1] * 6] * 4, metric)
    with pytest.raises(HarnessError, match=r"all 4 prompts have the same informativeness"):
        weights(values, metric)


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
def mine(registries: None) -> Callable[..., None]:
    """Return what adds a metric `mine` that gives some values."""

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


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_count_is_rounded_down() -> None:
    assert [selected_count(n, 0.25) for n in (4, 7, 8, 10_000)] == [1, 1, 2, 2500]
    # In floating point, 0.29 x 400 is a little less than 116.
    assert selected_count(400, 0.29) == 116


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


def test_enough_positive_weights_leave_the_zeros_alone_whatever_is_to_be_done_without() -> None:
    weights = [0.5, 0.5, 0.0, 0.0]
    assert sorted(select(weights, 2, "weighted", rng(), "uniform")) == [0, 1]


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
