"""Laws of ORPO, checked against plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import PAIRS, SETTINGS, both_sides, orpo_loss, run

from harness.models.loading import load_model
from harness.training import offline
from harness.training.experimental import SURE, ORPOTrainer
from harness.training.orpo import ORPO


def test_the_first_loss_equals_a_hand_computation(policy_path: Path, tmp_path: Path) -> None:
    policy = load_model(policy_path)
    with torch.no_grad():
        expected = orpo_loss(policy, policy_path, weight=0.5).item()
        means = [both_sides(policy, policy_path, pair)[0].mean() for pair in PAIRS]
    algorithm = ORPO(**SETTINGS, odds_weight=0.5)
    summary, [(_, metrics)] = run(offline.train, algorithm, policy_path, PAIRS, tmp_path)
    assert summary["loss_first"] == pytest.approx(expected, abs=1e-5)
    assert metrics["nll_loss"] == pytest.approx(-torch.stack(means).mean().item(), abs=1e-5)


def test_a_completion_of_probability_1_has_a_finite_loss_and_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mean log-probability of 0 means odds of 1 / 0, and a policy can be as sure in float32.

    Two such completions, as a tied pair has, would even give infinity minus infinity.
    """
    means = torch.zeros(2, requires_grad=True)

    def sure(self: Any, model: Any, batch: Any) -> tuple[Any, ...]:
        return means, means, None, None, torch.tensor(3.0)

    monkeypatch.setattr("harness.training.experimental.TRLORPOTrainer.concatenated_forward", sure)
    trainer = object.__new__(ORPOTrainer)
    trainer.beta = 0.5
    trainer.accelerator = type("Accelerator", (), {"device": "cpu"})
    chosen, rejected, _, _, nll = trainer.concatenated_forward(None, {})
    assert chosen.tolist() == [pytest.approx(SURE)] * 2
    losses = trainer.odds_ratio_loss(chosen, rejected)[0]
    (nll - losses.mean()).backward()
    assert losses.isfinite().all()
    assert means.grad is not None
    assert means.grad.isfinite().all()
