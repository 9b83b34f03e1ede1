"""Laws of SimPO and ORPO: losses by hand, and TRL's experimental trainers where we left them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from by_hand import PAIRS, SETTINGS, both_sides, head_and_tail, run, simpo_loss

from harness.models.loading import load_model, load_tokenizer
from harness.training import offline, offline_losses, online_losses
from harness.training.offline_losses import ORPO, SURE, ORPOTrainer, SimPO


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


def test_a_completion_of_probability_1_has_a_finite_loss_and_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mean log-probability of 0 means odds of 1 / 0, and a policy can be as sure in float32.

    Two such completions, as a tied pair has, would even give infinity minus infinity.
    """
    means = torch.zeros(2, requires_grad=True)

    def sure(self: Any, model: Any, batch: Any) -> tuple[Any, ...]:
        return means, means, None, None, torch.tensor(3.0)

    monkeypatch.setattr("harness.training.offline_losses.TRLORPOTrainer.concatenated_forward", sure)
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


FREE: Any = offline_losses
ONLINE: Any = online_losses
"""With what they take from TRL."""


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (FREE.CPOConfig, ("loss_type", "cpo_alpha", "beta", "simpo_gamma", "max_length")),
        (FREE.ORPOConfig, ("beta", "max_length")),
        (FREE.CPOTrainer, ("tokenize_row", "get_batch_loss_metrics")),
        (ONLINE.OnlineDPOConfig, ("beta", "max_length", "max_new_tokens")),
        (ONLINE.OnlineDPOTrainer, ("training_step", "_generate")),
        (FREE.TRLORPOTrainer, ("tokenize_row", "concatenated_forward", "odds_ratio_loss")),
    ],
)
def test_trls_experimental_trainers_have_not_moved(owner: Any, names: tuple[str, ...]) -> None:
    has = {*dir(owner), *inspect.signature(owner).parameters}
    gone = [name for name in names if name not in has]
    assert not gone, f"TRL {trl.__version__} has changed {owner.__name__}: {gone} is gone"


def test_importing_them_says_nothing() -> None:
    code = (
        "import os; os.environ.pop('TRL_EXPERIMENTAL_SILENCE', None); "
        "import harness.training.offline_losses, harness.training.online_losses"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Experimental" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("trainer", "algorithm"),
    [
        ("SimPOTrainer", SimPO(**SETTINGS, beta=2.0, gamma=1.0)),
        ("ORPOTrainer", ORPO(**SETTINGS, odds_weight=0.5)),
    ],
)
def test_the_trained_tokens_are_the_completion_and_the_end_of_its_turn(
    trainer: str,
    algorithm: Any,
    policy_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of DPO (`test_dpo`), where TRL would train on an `<eos>` after the end of the turn."""
    batches: list[Any] = []

    class Watched(getattr(offline_losses, trainer)):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            batches.append(inputs)
            return super().compute_loss(model, inputs, *args, **kwargs)

    monkeypatch.setattr(offline_losses, trainer, Watched)
    pair = PAIRS[0]
    run(offline.train, algorithm, policy_path, [pair], tmp_path)
    [batch] = batches
    for side in ("chosen", "rejected"):
        head, tail = head_and_tail(policy_path, pair["prompt"], pair[side])
        assert batch[f"{side}_input_ids"].tolist() == [head + tail]
        assert batch[f"{side}_attention_mask"].tolist() == [[1] * len(head + tail)]
        assert batch[f"{side}_labels"].tolist() == [[-100] * len(head) + tail]
    assert load_tokenizer(policy_path).eos_token_id not in batch["chosen_labels"]
