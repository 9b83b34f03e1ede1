"""Eva's creator offline: one question about a whole set, through the interface of all selectors."""

from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.eva.evolving import Prompt
from harness.selectors.eva import Eva, Parents, StreamSettings, choose
from harness.selectors.selector import Context, Group

SET = [Prompt(f"h{i}", f"human {i}") for i in range(4)]
REWARDS = [[0.0, 1.0], [0.0, 4.0], [2.0, 2.0], [1.0, 4.0]]  # A*_min of 1, 4, 0 and 3


def names(prompts: list[Prompt]) -> list[str]:
    return [prompt.prompt_id for prompt in prompts]


def test_the_greedy_creator_takes_the_largest_gaps_in_their_order() -> None:
    creator = Parents("a_min", 3, sampling="greedy")
    groups, chosen = choose(creator, SET, REWARDS, np.random.default_rng(0))
    assert [group.value for group in groups] == [1.0, 4.0, 0.0, 3.0]
    assert names(chosen) == ["h1", "h3", "h0"]
    # Min-max: 1/4, 1, 0, 3/4, with sum 2.
    np.testing.assert_allclose(creator.chances(groups), [0.125, 0.5, 0.0, 0.375])


def test_weighted_draws_leave_out_what_has_no_weight_and_follow_the_weights() -> None:
    creator, first = Parents("a_min", 1), []
    for seed in range(2000):
        _, (drawn,) = choose(creator, SET, REWARDS, np.random.default_rng(seed))
        first.append(drawn.prompt_id)
    shares = [first.count(name) / len(first) for name in ("h0", "h1", "h2", "h3")]
    assert shares[2] == 0
    np.testing.assert_allclose(shares, [0.125, 0.5, 0.0, 0.375], atol=0.04)  # 3.5 standard errors


def test_a_shuffled_creator_keeps_the_values_and_loses_whose_they_are() -> None:
    creator = Parents("a_min", 1, sampling="greedy", shuffled=True)
    best = []
    for seed in range(400):
        groups, (chosen,) = choose(creator, SET, REWARDS, np.random.default_rng(seed))
        assert sorted(group.value for group in groups) == [0.0, 1.0, 3.0, 4.0]
        best.append(chosen.prompt_id)
    counts = [best.count(name) for name in ("h0", "h1", "h2", "h3")]
    assert min(counts) > 65  # 100 each expected, with a standard deviation of 9


def test_a_selector_that_wants_rollouts_cannot_be_asked_about_finished_ones() -> None:
    class Wants(Parents):
        def observe(self, groups: Any, ctx: Context) -> Any:
            return ctx.roll_out(SET, 2, "screen")

    with pytest.raises(HarnessError, match="no policy is at hand"):
        choose(Wants("a_min", 1), SET, REWARDS, np.random.default_rng(0))


def test_the_online_creator_names_what_the_offline_one_names() -> None:
    """Half of a mini-batch of four, by rank; the two differ in the buffer alone."""
    settings = StreamSettings(metric="a_min", minibatch=4, evolve_share=0.5, buffer=1.0, x=4)
    rng = np.random.default_rng(0)
    online = choose(Eva(settings), SET, REWARDS, rng)
    offline = choose(Parents("a_min", 2, sampling="greedy", floor=0.01), SET, REWARDS, rng)
    assert names(online[1]) == names(offline[1]) == ["h1", "h3"]
    assert [g.value for g in online[0]] == [g.value for g in offline[0]]
    assert all(isinstance(group, Group) for group in online[0])
