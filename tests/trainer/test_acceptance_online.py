"""Laws of the online gate's choice, on numbers worked out by hand."""

from __future__ import annotations

import pytest

from harness.trainer.acceptance import (
    LEARNING_RATES,
    Point,
    chosen,
    grid_failures,
    rloo,
    validation_profile,
    with_training,
)


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
