"""Laws of SPPO with soft win probabilities, checked against plain torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import PAIRS, SETTINGS, SOFT, Logs, log_ratios, run, sppo_loss

from harness.models.loading import load_model
from harness.training import offline
from harness.training.offline import TrainingError
from harness.training.sppo import SPPO


def train(
    start: Path, reference: Path, out: Path, *, pairs: Any = SOFT, seed: int = 0, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    algorithm = SPPO(**{**SETTINGS, "beta": 0.1, **settings})
    return run(offline.train, algorithm, start, pairs, out, reference_path=reference, seed=seed)


def test_the_first_loss_is_that_of_the_targets_alone_if_policy_and_reference_are_one(
    policy_path: Path, tmp_path: Path
) -> None:
    """All log-ratios are 0, so a pair's loss is eta^2 / 2 * [(P_w - 1/2)^2 + (P_l - 1/2)^2].

    The brackets are 0.16 + 0.09, 0.0625 + 0, 0.25 + 0.25 and 0.01 + 0.0025, together 0.825. At
    beta = 0.001, eta^2 / 2 is 500,000, and the mean over four pairs 500,000 * 0.825 / 4 = 103,125.
    The hard form would give 250,000, and TRL's, which lacks the half, 500,000.
    """
    summary, [(step, metrics)] = train(policy_path, policy_path, tmp_path, beta=0.001)
    assert step == 1
    assert summary["loss_first"] == pytest.approx(103_125, rel=1e-6)
    for name in ("rewards/chosen", "rewards/rejected", "rewards/margins"):
        assert metrics[name] == pytest.approx(0, abs=1e-6)  # not moved by the probabilities


def test_loss_and_rewards_equal_a_hand_computation_against_another_reference(
    policy_path: Path, other_path: Path, tmp_path: Path
) -> None:
    """Rewards are beta times the log-ratios, whatever the win probabilities."""
    policy, reference = load_model(policy_path), load_model(other_path)
    with torch.no_grad():
        expected = sppo_loss(policy, reference, policy_path, beta=0.1).item()
        ratios = torch.tensor(log_ratios(policy, reference, policy_path))
    _, [(_, metrics)] = train(policy_path, other_path, tmp_path)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    rewards = 0.1 * ratios
    assert metrics["rewards/chosen"] == pytest.approx(rewards[:, 0].mean().item(), abs=1e-5)
    assert metrics["rewards/rejected"] == pytest.approx(rewards[:, 1].mean().item(), abs=1e-5)
    margins = rewards[:, 0] - rewards[:, 1]
    assert metrics["rewards/margins"] == pytest.approx(margins.mean().item(), abs=1e-5)
    assert metrics["rewards/accuracies"] == (margins > 0).float().mean().item()


def test_a_pair_of_even_chances_is_pulled_to_the_reference(
    policy_path: Path, tmp_path: Path
) -> None:
    """With both probabilities 1/2 both targets are 0, where the reference is: loss 0."""
    even = [{**pair, "p_chosen": 0.5, "p_rejected": 0.5} for pair in PAIRS]
    summary, _ = train(policy_path, policy_path, tmp_path, pairs=even)
    assert summary["loss_first"] == pytest.approx(0, abs=1e-8)


def test_the_schedule_is_linear_and_the_optimizer_rmsprop_unless_told() -> None:
    given = {name: value for name, value in SETTINGS.items() if name != "schedule"}
    algorithm = SPPO(**given, beta=0.001)
    assert (algorithm.schedule, algorithm.optimizer) == ("linear", "rmsprop")


def test_pairs_that_are_too_long_are_left_out_with_their_probabilities(
    policy_path: Path, tmp_path: Path
) -> None:
    """The second and fourth pair fit into 12 tokens: brackets 0.0625 and 0.0125, eta^2 / 2 = 50."""
    summary, _ = train(policy_path, policy_path, tmp_path, max_length=12)
    assert (summary["too_long"], summary["trained_pairs"]) == (2, 2)
    assert summary["loss_first"] == pytest.approx(50 * (0.0625 + 0.0125) / 2, rel=1e-5)


@pytest.mark.parametrize("wrong", [None, -0.1, 1.5, math.nan])
def test_a_win_probability_that_cannot_be_is_one_clear_error(
    wrong: float | None, policy_path: Path, tmp_path: Path
) -> None:
    pairs = [SOFT[0], {**SOFT[1], "p_rejected": wrong}]
    with pytest.raises(TrainingError, match="pair 1 has p_rejected"):
        train(policy_path, policy_path, tmp_path, pairs=pairs)


def test_a_reference_that_is_not_the_policy_stops_the_training() -> None:
    algorithm = SPPO(**SETTINGS, beta=0.001)
    with pytest.raises(TrainingError, match=r"differ by 1\.0000 nats"):
        algorithm.check_first({"rewards/chosen": 0.0, "rewards/rejected": -0.001}, "float32")
