"""Laws of SimPO, checked against plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import (
    PAIRS,
    SETTINGS,
    Logs,
    assert_close,
    assert_equals_plain_loop,
    both_sides,
    digest,
    run,
)
from torch.nn import functional as F

from harness.models.loading import load_model
from harness.training import offline
from harness.training.simpo import SimPO


def train(
    start: Path, out: Path, *, pairs: Any = PAIRS, seed: int = 0, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    algorithm = SimPO(**{**SETTINGS, "beta": 2.0, "gamma": 1.5, **settings})
    return run(offline.train, algorithm, start, pairs, out, seed=seed)


def simpo_loss(policy: Any, path: Path, beta: float, gamma: float) -> torch.Tensor:
    """Mean over the pairs of -log sigmoid(beta * difference of the mean log-probs - gamma)."""
    losses = []
    for pair in PAIRS:
        chosen, rejected = both_sides(policy, path, pair)
        losses.append(-F.logsigmoid(beta * (chosen.mean() - rejected.mean()) - gamma))
    return torch.stack(losses).mean()


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
    summary, [(_, metrics)] = train(policy_path, tmp_path)
    assert summary["loss_first"] == pytest.approx(expected, abs=1e-5)
    rewards = 2.0 * torch.tensor([[side.mean() for side in pair] for pair in sides])
    margins = rewards[:, 0] - rewards[:, 1]
    assert metrics["rewards/chosen"] == pytest.approx(rewards[:, 0].mean().item(), abs=1e-5)
    assert summary["margin_last"] == pytest.approx(margins.mean().item(), abs=1e-5)
    assert summary["accuracy_last"] == (margins > 0).float().mean().item()


def test_a_whole_training_equals_a_plain_torch_loop(policy_path: Path, tmp_path: Path) -> None:
    policy = load_model(policy_path)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, eps=1e-8, weight_decay=0.0)
    _, logs = train(policy_path, tmp_path, epochs=3)
    assert_equals_plain_loop(
        policy,
        lambda: simpo_loss(policy, policy_path, beta=2.0, gamma=1.5),
        optimizer,
        logs,
        tmp_path / "model",
    )


def test_the_same_seed_gives_the_same_weights_to_the_last_bit(
    policy_path: Path, tmp_path: Path
) -> None:
    settings = {"epochs": 2, "batch_size": 2, "micro_batch_size": 2}
    torch.manual_seed(1)
    first, _ = train(policy_path, tmp_path / "a", seed=3, **settings)
    torch.manual_seed(2)
    again, _ = train(policy_path, tmp_path / "b", seed=3, **settings)
    train(policy_path, tmp_path / "c", seed=4, **settings)
    digests = [digest(tmp_path / name / "model") for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    assert first == again


def test_accumulated_micro_batches_equal_one_batch(policy_path: Path, tmp_path: Path) -> None:
    train(policy_path, tmp_path / "whole", epochs=3)
    train(policy_path, tmp_path / "parts", epochs=3, micro_batch_size=1)
    assert_close(load_model(tmp_path / "whole" / "model"), tmp_path / "parts" / "model")


def test_pairs_that_are_too_long_are_left_out_whole_and_the_loss_stays_finite(
    policy_path: Path, tmp_path: Path
) -> None:
    """A limit of 12 keeps the second and fourth pair as they are; see `by_hand.PAIRS`.

    The third prompt alone, with header and end of turn, would fill a limit of 9: TRL would train on
    an empty completion, whose mean is not a number.
    """
    kept = [PAIRS[1], PAIRS[3]]
    summary, _ = train(policy_path, tmp_path / "all", max_length=12)
    assert (summary["pairs"], summary["too_long"], summary["trained_pairs"]) == (4, 2, 2)
    alone, _ = train(policy_path, tmp_path / "kept", pairs=kept)
    assert summary["loss_first"] == alone["loss_first"]


def test_only_the_model_is_written_and_nothing_is_said(
    policy_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = digest(policy_path)
    train(policy_path, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    suffixes = {path.suffix for path in (tmp_path / "model").iterdir()}
    assert suffixes == {".json", ".safetensors", ".jinja"}
    assert digest(policy_path) == before != digest(tmp_path / "model")
    assert load_model(tmp_path / "model").config.use_cache
