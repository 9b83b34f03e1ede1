"""Laws of the gates' arithmetic, on numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from harness.trainer.acceptance import Acceptance, best_of_six, in_standard_errors, share_recovered

PASSED = Acceptance(
    mean_answer=0.5,
    best_by_oracle=0.9,
    best_by_reward=0.7,
    recovered=0.5,
    dpo_gain=0.02,
    dpo_standard_errors=4.0,
    no_spread=0.3,
)


def test_the_best_by_reward_lies_where_the_reward_is_highest() -> None:
    """Two prompts, three answers: means 0.4 and 0.5, best 0.9 and 1.0, by reward 0.3 and 1.0."""
    scores = np.array([[0.0, 0.3, 0.9], [0.0, 1.0, 0.5]])
    rewards = np.array([[1.0, 2.0, -1.0], [0.0, 5.0, 4.0]])
    assert best_of_six(scores, rewards) == pytest.approx((0.45, 0.95, 0.65))


def test_a_gain_in_standard_errors_is_its_mean_over_its_standard_error() -> None:
    """0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1, standard error 0.1 / sqrt(3)."""
    mean, errors = in_standard_errors([0.1, 0.2, 0.3])
    assert mean == pytest.approx(0.2)
    assert errors == pytest.approx(2 * math.sqrt(3))


def test_gains_without_spread_are_infinitely_many_standard_errors() -> None:
    assert in_standard_errors([0.25, 0.25]) == (0.25, math.inf)
    assert in_standard_errors([-0.25, -0.25]) == (-0.25, -math.inf)
    assert in_standard_errors([0.0, 0.0]) == (0.0, 0.0)


def test_the_share_recovered_is_of_the_gain_the_oracle_makes_possible() -> None:
    """Of 0.5 to 0.9 the reward reaches 0.6: a quarter. Where nothing can be gained it is 0."""
    assert share_recovered(0.5, 0.9, 0.6) == pytest.approx(0.25)
    assert share_recovered(0.5, 0.9, 0.4) == pytest.approx(-0.25)
    assert share_recovered(0.5, 0.5, 0.5) == 0.0


def test_a_world_that_passes_has_no_failures() -> None:
    assert PASSED.failures() == []
    on_the_edge = dataclasses.replace(PASSED, recovered=0.4, dpo_standard_errors=3.0, no_spread=0.6)
    assert on_the_edge.failures() == []


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"recovered": 0.39}, "the reward model recovers 0.39 of the best-of-6 gain"),
        ({"dpo_standard_errors": 2.9}, "DPO gains 2.9 standard errors over θ0"),
        ({"no_spread": 0.09}, "9% of the prompts have no reward spread"),
        ({"recovered": math.nan}, "the reward model recovers nan of the best-of-6 gain"),
        ({"no_spread": 0.61}, "61% of the prompts have no reward spread"),
    ],
)
def test_each_gate_that_is_not_passed_is_named(measured: dict[str, float], words: str) -> None:
    assert dataclasses.replace(PASSED, **measured).failures() == [words]
