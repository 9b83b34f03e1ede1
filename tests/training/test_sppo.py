"""Laws of SPPO with soft win probabilities, checked against plain torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import PAIRS, SETTINGS, Logs, assert_equals_plain_loop, both_sides, digest, run

from harness.models.loading import load_model
from harness.training import offline
from harness.training.offline import TrainingError
from harness.training.sppo import SPPO

PROBABILITIES = [(0.9, 0.2), (0.75, 0.5), (1.0, 0.0), (0.6, 0.55)]
SOFT = [
    {**pair, "p_chosen": chosen, "p_rejected": rejected}
    for pair, (chosen, rejected) in zip(PAIRS, PROBABILITIES, strict=True)
]


def train(
    start: Path, reference: Path, out: Path, *, pairs: Any = SOFT, seed: int = 0, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    algorithm = SPPO(**{**SETTINGS, "beta": 0.1, **settings})
    return run(offline.train, algorithm, start, pairs, out, reference_path=reference, seed=seed)


def log_ratios(policy: Any, reference: Any, path: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    ratios = []
    for pair in SOFT:
        with torch.no_grad():
            base = both_sides(reference, path, pair)
        ours = both_sides(policy, path, pair)
        ratios.append((ours[0].sum() - base[0].sum(), ours[1].sum() - base[1].sum()))
    return ratios


def sppo_loss(policy: Any, reference: Any, path: Path, beta: float) -> torch.Tensor:
    """Mean over the pairs of half the two squared distances to eta * (P - 1/2), eta = 1 / beta."""
    eta = 1 / beta
    losses = [
        0.5 * ((chosen - eta * (p - 0.5)) ** 2 + (rejected - eta * (q - 0.5)) ** 2)
        for (chosen, rejected), (p, q) in zip(
            log_ratios(policy, reference, path), PROBABILITIES, strict=True
        )
    ]
    return torch.stack(losses).mean()


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


def test_a_whole_training_equals_a_plain_torch_loop_with_rmsprop(
    policy_path: Path, other_path: Path, tmp_path: Path
) -> None:
    """RMSprop with smoothing 0.99, no momentum; at this beta gradients are clipped to norm 1."""
    policy, reference = load_model(policy_path), load_model(other_path)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-4, alpha=0.99, eps=1e-8)
    _, logs = train(policy_path, other_path, tmp_path, epochs=3, learning_rate=1e-4)
    assert_equals_plain_loop(
        policy,
        lambda: sppo_loss(policy, reference, policy_path, beta=0.1),
        optimizer,
        logs,
        tmp_path / "model",
    )


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


def test_accumulated_micro_batches_equal_one_batch(policy_path: Path, tmp_path: Path) -> None:
    _, whole = train(policy_path, policy_path, tmp_path / "whole", epochs=2)
    _, parts = train(policy_path, policy_path, tmp_path / "parts", epochs=2, micro_batch_size=1)
    for (_, one), (_, other) in zip(whole, parts, strict=True):
        for name in ("loss", "rewards/margins", "rewards/accuracies"):
            assert one[name] == pytest.approx(other[name], abs=1e-3)


def test_the_same_seed_gives_the_same_weights_to_the_last_bit(
    policy_path: Path, tmp_path: Path
) -> None:
    settings = {"epochs": 2, "batch_size": 2, "micro_batch_size": 2}
    first, _ = train(policy_path, policy_path, tmp_path / "a", seed=3, **settings)
    again, _ = train(policy_path, policy_path, tmp_path / "b", seed=3, **settings)
    train(policy_path, policy_path, tmp_path / "c", seed=4, **settings)
    digests = [digest(tmp_path / name / "model") for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    assert first == again


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
