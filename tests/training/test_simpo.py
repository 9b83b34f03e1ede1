"""Laws of SimPO, checked against plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from by_hand import PAIRS, SETTINGS, both_sides, run, simpo_loss

from harness.models.loading import load_model
from harness.training import offline
from harness.training.simpo import SimPO


def test_the_first_loss_equals_a_hand_computation_with_an_absolute_gamma(
    policy_path: Path, tmp_path: Path
) -> None:
    """A gamma relative to beta would be 2 * 1.5 = 3 here, and the loss another."""
    policy = load_model(policy_path)
    with torch.no_grad():
        expected = simpo_loss(policy, policy_path, beta=2.0, gamma=1.5).item()
        relative = simpo_loss(policy, policy_path, beta=2.0, gamma=3.0).item()
        sides = [both_sides(policy, policy_path, pair) for pair in PAIRS]
    assert abs(expected - relative) > 0.1
    algorithm = SimPO(**SETTINGS, beta=2.0, gamma=1.5)
    summary, [(_, metrics)] = run(offline.train, algorithm, policy_path, PAIRS, tmp_path)
    assert summary["loss_first"] == pytest.approx(expected, abs=1e-5)
    rewards = 2.0 * torch.tensor([[side.mean() for side in pair] for pair in sides])
    margins = rewards[:, 0] - rewards[:, 1]
    assert metrics["rewards/chosen"] == pytest.approx(rewards[:, 0].mean().item(), abs=1e-5)
    assert summary["margin_last"] == pytest.approx(margins.mean().item(), abs=1e-5)
    assert summary["accuracy_last"] == (margins > 0).float().mean().item()
