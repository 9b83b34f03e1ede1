"""Laws of best-against-worst pairs and of the training mix."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.errors import HarnessError
from harness.eva.informativeness import informativeness
from harness.eva.pairs import best_against_worst, evolved_count, mix, repeated

# Few distinct values, so that ties are common.
reward_sets = arrays(
    np.float64,
    st.tuples(st.integers(1, 10), st.integers(2, 6)),
    elements=st.sampled_from([0.0, 0.5, 1.0]),
)


def test_the_first_of_equals_is_taken_on_both_sides() -> None:
    """Row 1: best 2 at 1 and 3, worst 0 at 0 and 2. Row 2: tied, so the first against itself."""
    chosen, rejected = best_against_worst([[0.0, 2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    assert (chosen.tolist(), rejected.tolist()) == ([1, 0], [0, 0])


def test_rewards_that_are_not_finite_or_not_comparable_are_errors() -> None:
    for rewards in ([[1.0, np.nan]], [[1.0]], []):
        with pytest.raises(HarnessError):
            best_against_worst(rewards)


@given(reward_sets)
def test_the_margin_of_a_pair_is_the_a_min_of_its_prompt(rewards: np.ndarray) -> None:
    best, worst = (rewards[np.arange(len(rewards)), at] for at in best_against_worst(rewards))
    np.testing.assert_array_equal(best - worst, informativeness(rewards, "a_min"))


@given(reward_sets)
def test_only_tied_prompts_pair_a_completion_with_itself(rewards: np.ndarray) -> None:
    chosen, rejected = best_against_worst(rewards)
    np.testing.assert_array_equal(chosen == rejected, rewards.max(axis=1) == rewards.min(axis=1))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_paper_mix_is_two_thousand_and_eight_thousand_and_no_share_is_lowered() -> None:
    """0.29 * 100 is 28.999999999999996 in floating point."""
    assert evolved_count(10_000, 0.8) == 8_000
    assert evolved_count(100, 0.29) == 29


SEEDS = st.integers(0, 2**31)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60), st.floats(0, 1), SEEDS)
def test_a_mix_has_its_size_and_share_without_repeats_or_is_an_error(
    n_base: int, n_evolved: int, size: int, share: float, seed: int
) -> None:
    base = [("base", i) for i in range(n_base)]
    evolved = [("evolved", i) for i in range(n_evolved)]
    want = evolved_count(size, share)
    assert abs(want / size - share) <= 0.5 / size + 1e-12
    want = min(want, n_evolved)
    if n_base < size - want:
        with pytest.raises(HarnessError):
            mix(base, evolved, size, share, rng(seed))
        return
    result = mix(base, evolved, size, share, rng(seed))
    assert Counter(kind for kind, _ in result)["evolved"] == want
    assert len(result) == len(set(result)) == size
    assert result == mix(base, evolved, size, share, rng(seed))


def test_original_items_fill_the_places_of_evolved_ones_that_are_lacking() -> None:
    result = mix(range(10), range(100, 107), 10, 0.8, rng())
    assert sorted(item for item in result if item >= 100) == list(range(100, 107))
    assert len(set(result)) == 10


def test_too_few_items_is_an_error_that_says_how_many() -> None:
    with pytest.raises(HarnessError, match=r"needs 3 original items beside 7 evolved.* are 2"):
        mix(range(2), range(7), 10, 0.8, rng())
    with pytest.raises(HarnessError, match=r"needs 2 original items beside 8 evolved.* are 1"):
        mix(range(1), range(8), 10, 0.8, rng())


def test_the_mix_is_shuffled_across_both_parts() -> None:
    """A mix left in two blocks would change its kind once; a shuffled one of 50 + 50 about 50x."""
    kinds = [item < 0 for item in mix(range(-50, 0), range(50), 100, 0.5, rng())]
    assert sum(a != b for a, b in pairwise(kinds)) > 30


@given(st.integers(1, 12), st.integers(1, 60), SEEDS)
def test_what_is_repeated_comes_in_whole_passes(count: int, size: int, seed: int) -> None:
    """Every stretch of `count` from the start has each item once; the last may be cut off."""
    items = list(range(count))
    found = repeated(items, size, rng(seed))
    assert len(found) == size
    for start in range(0, size, count):
        stretch = found[start : start + count]
        assert len(set(stretch)) == len(stretch)
    assert found == repeated(items, size, rng(seed))


def test_passes_have_orders_of_their_own() -> None:
    found = repeated(list(range(20)), 40, rng())
    assert found[:20] != found[20:]


def test_nothing_cannot_be_repeated() -> None:
    with pytest.raises(HarnessError, match="no items"):
        repeated([], 4, rng())
