"""Laws of the acceptance criteria' arithmetic, on numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from harness.trainer.acceptance import (
    CONSTANTS,
    GRIDS,
    LEARNING_RATES,
    OFFLINE,
    RECIPES,
    Acceptance,
    Point,
    best_of_six,
    chosen,
    grid_failures,
    in_standard_errors,
    rloo,
    share_recovered,
    validation_profile,
    with_training,
)

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


# The grids of SPPO, SimPO and ORPO.


def points(**best: int) -> list[Point]:
    """Every setting gains 0.01 but the best of each algorithm, given by its place: 0.10."""
    return [
        Point(algorithm, changes, 0.10 if best[algorithm] == place else 0.01, 10.0)
        for algorithm in OFFLINE
        for place, changes in enumerate(GRIDS[algorithm])
    ]


def test_each_algorithm_has_three_learning_rates_with_the_papers_constants_first() -> None:
    assert {algorithm: len(GRIDS[algorithm]) for algorithm in OFFLINE} == {
        "sppo": 6, "simpo": 6, "orpo": 6,
    }  # fmt: skip
    assert GRIDS["simpo"][0] == {"learning_rate": 3e-5, "beta": 10.0, "gamma": 5.0}
    assert [constants[0] for constants in CONSTANTS.values()] == [
        {"beta": 0.001}, {"beta": 10.0, "gamma": 5.0}, {"odds_weight": 0.5},
    ]  # fmt: skip


def test_a_clear_best_is_taken() -> None:
    found = points(sppo=5, simpo=0, orpo=3)
    assert chosen(found, "sppo").changes == {"learning_rate": 3e-4, "beta": 0.1}
    assert chosen(found, "simpo").changes == {
        "learning_rate": 3e-5,
        "beta": 10.0,
        "gamma": 5.0,
    }
    assert chosen(found, "orpo").changes == {"learning_rate": 1e-4, "odds_weight": 0.1}


def test_of_equally_good_settings_the_smallest_rate_with_the_papers_constants_is_taken() -> None:
    """Best 0.10 at 10 standard errors: from 0.09 on settings are as good."""
    gains = [0.05, 0.089, 0.091, 0.095, 0.10, 0.10]
    grid = zip(GRIDS["orpo"], gains, strict=True)
    found = [Point("orpo", changes, gain, 10.0) for changes, gain in grid]
    assert chosen(found, "orpo").changes == {"learning_rate": 1e-4, "odds_weight": 0.5}


def test_the_profile_trains_with_what_its_file_says_the_gate_took() -> None:
    training = validation_profile().training
    taken = {
        algorithm: next(
            place
            for place, changes in enumerate(GRIDS[algorithm])
            if all(getattr(training.of(algorithm), name) == v for name, v in changes.items())
        )
        for algorithm in OFFLINE
    }
    assert grid_failures(points(**taken)) == []
    other = {algorithm: (place + 1) % 6 for algorithm, place in taken.items()}
    assert len(grid_failures(points(**other))) == 3


def test_only_first_iterations_on_human_prompts_are_run() -> None:
    assert {RECIPES[algorithm].chain for algorithm in OFFLINE} == {("human",)}


# The grid of RLOO.


def point(learning_rate: float, beta: float, gain: float, errors: float) -> Point:
    return Point("rloo", {"learning_rate": learning_rate, "beta": beta}, gain, errors)


def test_of_equally_good_pairs_the_most_careful_is_taken() -> None:
    """Best 0.10 with a standard error of 0.10 / 5 = 0.02: 0.08 and above count as good."""
    found = [
        point(3e-4, 0.05, 0.10, 5.0),
        point(3e-4, 0.2, 0.081, 5.0),
        point(1e-4, 0.2, 0.080, 5.0),
        point(3e-5, 0.2, 0.079, 5.0),
    ]
    assert chosen(found, "rloo") == found[2]


def test_a_clear_best_is_taken_however_bold() -> None:
    found = [point(3e-4, 0.05, 0.10, 50.0), point(3e-5, 0.2, 0.09, 50.0)]
    assert chosen(found, "rloo") == found[0]


def test_the_profile_trains_with_what_the_gate_takes() -> None:
    hyper = validation_profile().training.rloo
    assert hyper is not None
    assert grid_failures([point(hyper.learning_rate, hyper.beta, 0.1, 50.0)]) == []
    other = next(lr for lr in LEARNING_RATES if lr != hyper.learning_rate)
    reasons = grid_failures([point(other, hyper.beta, 0.1, 50.0)])
    assert [reason.split()[3] for reason in reasons] == ["rloo", "oaif"]
    assert "the gate takes" in reasons[0]


@pytest.mark.parametrize("size", [1, 6])
def test_the_gate_looks_at_human_prompts_alone(size: int) -> None:
    online = rloo(size).online
    assert online is not None
    assert (online.prompts, online.size) == ("human", size)


def test_a_changed_profile_keeps_all_but_what_was_changed() -> None:
    profile = validation_profile()
    changed = with_training(profile, "rloo", {"beta": 0.7})
    assert changed.training.rloo is not None
    assert changed.training.rloo.beta == 0.7
    assert changed.training.dpo == profile.training.dpo
