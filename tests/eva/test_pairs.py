"""Laws of best-against-worst pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.errors import HarnessError
from harness.eva.informativeness import informativeness
from harness.eva.pairs import best_against_worst

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
