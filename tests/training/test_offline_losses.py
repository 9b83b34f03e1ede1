"""Laws of each loss on pairs, by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import PAIRS, SETTINGS, SOFT, Logs, both_sides, log_ratios, run

from harness.models.loading import load_model
from harness.training import offline
from harness.training.offline import TrainingError
from harness.training.offline_losses import DPO, MAX_MEAN_LOGP, SPPO, ORPOTrainer, SimPO
from harness.training.placement import PLAIN


def soft(
    start: Path, out: Path, pairs: Any = SOFT, beta: float = 0.1, **settings: Any
) -> tuple[dict[str, float], Logs]:
    return run(offline.train, SPPO(**SETTINGS | settings, beta=beta), start, pairs, out)


def test_no_pair_short_enough_is_an_error(policy_path: Path, tmp_path: Path) -> None:
    algorithm = DPO(**SETTINGS | {"max_length": 5}, beta=0.5)
    with pytest.raises(TrainingError, match="none of the 4 pairs fits into max_length = 5"):
        run(offline.train, algorithm, policy_path, PAIRS, tmp_path)


def test_a_template_that_ends_every_turn_cannot_train_on_answers_that_were_cut_off(
    policy_path: Path, tmp_path: Path
) -> None:
    cut = [{**pair, "chosen_open": True, "rejected_open": False} for pair in PAIRS]
    with pytest.raises(TrainingError, match=r"set `profile\.pairs\.open_cut=false`"):
        run(offline.train, DPO(**SETTINGS, beta=0.5), policy_path, cut, tmp_path)


@pytest.mark.parametrize("algorithm", [DPO(**SETTINGS, beta=0.5), SPPO(**SETTINGS, beta=0.5)])
@pytest.mark.parametrize(
    ("loss", "apart", "message"), [(0.65, 1.0, r"differ by 2\.0000 nats"), (math.nan, 0, "is nan")]
)
def test_a_loss_that_cannot_be_right_stops_the_training(
    algorithm: Any, loss: float, apart: float, message: str
) -> None:
    """A reward is beta times the log-ratio, which is 0 before the first update."""
    recorder = offline._PairsRecorder(lambda step, metrics: None, algorithm, PLAIN)

    class State:
        global_step = 1

    logs = {"loss": loss, "rewards/chosen": apart, "rewards/rejected": 0.0}
    with pytest.raises(TrainingError, match=message):
        recorder.on_log(None, State(), None, logs=logs)


def test_the_first_loss_of_sppo_is_that_of_the_targets_alone(
    policy_path: Path, tmp_path: Path
) -> None:
    """All log-ratios are 0, so a pair's loss is eta^2 / 2 * [(P_w - 1/2)^2 + (P_l - 1/2)^2].

    The brackets are 0.16 + 0.09, 0.0625 + 0, 0.25 + 0.25 and 0.01 + 0.0025, together 0.825. At
    beta = 0.001, eta^2 / 2 is 500,000, and the mean over four pairs 500,000 * 0.825 / 4 = 103,125.
    The hard form would give 250,000, and TRL's, which lacks the half, 500,000.
    """
    summary, [(step, metrics)] = soft(policy_path, tmp_path, beta=0.001)
    assert step == 1
    assert summary["loss_first"] == pytest.approx(103_125, rel=1e-6)
    for name in ("rewards/chosen", "rewards/rejected", "rewards/margins"):
        assert metrics[name] == pytest.approx(0, abs=1e-6)  # not moved by the probabilities


def test_rewards_of_sppo_are_beta_times_the_log_ratios(policy_path: Path, tmp_path: Path) -> None:
    """Whatever the win probabilities: after a step the margin is that of the ratios by hand."""
    once, _ = soft(policy_path, tmp_path / "1", learning_rate=1e-2)
    _, [_, (_, metrics)] = soft(policy_path, tmp_path / "2", learning_rate=1e-2, epochs=2)
    policy, reference = load_model(tmp_path / "1" / "model"), load_model(policy_path)
    ratios = [[side.item() for side in pair] for pair in log_ratios(policy, reference, policy_path)]
    for side, name in enumerate(("chosen", "rejected")):
        mean = sum(pair[side] for pair in ratios) / len(ratios)
        assert metrics[f"rewards/{name}"] == pytest.approx(0.1 * mean, abs=1e-5)
    right = sum(chosen > rejected for chosen, rejected in ratios) / len(ratios)
    assert metrics["rewards/accuracies"] == right
    assert once["steps"] == 1


def test_rewards_of_simpo_are_beta_times_the_mean_log_probabilities(
    policy_path: Path, tmp_path: Path
) -> None:
    policy = load_model(policy_path)
    with torch.no_grad():
        sides = [both_sides(policy, policy_path, pair) for pair in PAIRS]
    algorithm = SimPO(**SETTINGS, beta=2.0, gamma=1.5)
    summary, [(_, metrics)] = run(offline.train, algorithm, policy_path, PAIRS, tmp_path)
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
    assert chosen.tolist() == [pytest.approx(MAX_MEAN_LOGP)] * 2
    losses = trainer.odds_ratio_loss(chosen, rejected)[0]
    (nll - losses.mean()).backward()
    assert losses.isfinite().all()
    assert means.grad is not None
    assert means.grad.isfinite().all()
