"""Laws of every loss that trains on pairs, checked against plain torch."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from by_hand import (
    PAIRS,
    SETTINGS,
    SOFT,
    Logs,
    assert_close,
    assert_equals_plain_loop,
    digest,
    dpo_loss,
    orpo_loss,
    run,
    simpo_loss,
    sppo_loss,
)

from harness.models.loading import load_model
from harness.training import offline
from harness.training.offline_losses import DPO, ORPO, SPPO, SimPO


class Loss(NamedTuple):
    """A loss with the same by hand, at the same constants."""

    algorithm: Callable[..., offline.OfflineAlgorithm]
    by_hand: Callable[..., torch.Tensor]
    uses_reference: bool
    """Whether there is a reference."""
    pairs: list[dict[str, Any]] = PAIRS
    optimizer: partial[torch.optim.Optimizer] = partial(
        torch.optim.AdamW, lr=1e-3, eps=1e-8, weight_decay=0.0
    )


LOSSES = {
    "dpo": Loss(partial(DPO, beta=0.5), partial(dpo_loss, beta=0.5), uses_reference=True),
    "sppo": Loss(
        partial(SPPO, beta=0.1),
        partial(sppo_loss, beta=0.1),
        uses_reference=True,
        pairs=SOFT,
        optimizer=partial(torch.optim.RMSprop, lr=1e-4, alpha=0.99, eps=1e-8),
    ),
    "simpo": Loss(
        partial(SimPO, beta=2.0, gamma=1.5),
        partial(simpo_loss, beta=2.0, gamma=1.5),
        uses_reference=False,
    ),
    "orpo": Loss(
        partial(ORPO, odds_weight=0.5), partial(orpo_loss, weight=0.5), uses_reference=False
    ),
}


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> Loss:
    return LOSSES[request.param]


def train(
    loss: Loss, start: Path, out: Path, *, pairs: Any = None, seed: int = 0, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    optimizer, rate = loss.optimizer.func.__name__, loss.optimizer.keywords["lr"]
    own = {"optimizer": "rmsprop"} if optimizer == "RMSprop" else {}
    algorithm = loss.algorithm(**{**SETTINGS, **own, "learning_rate": rate, **settings})
    return run(offline.train, algorithm, start, pairs or loss.pairs, out, seed=seed)


def test_a_whole_training_equals_a_plain_torch_loop(
    loss: Loss, policy_path: Path, tmp_path: Path
) -> None:
    """Three updates on one full batch, so that the order of the data does not matter.

    AdamW has betas 0.9 and 0.999, RMSprop smoothing 0.99 and no momentum; gradients are clipped to
    norm 1, and the reference is evaluated anew in each update, where the trainer computes it once
    beforehand.
    """
    policy, reference = load_model(policy_path), load_model(policy_path)
    optimizer = loss.optimizer(policy.parameters())
    _, logs = train(loss, policy_path, tmp_path, epochs=3)
    assert len(logs) == 3
    models = (policy, reference) if loss.uses_reference else (policy,)
    by_hand = partial(loss.by_hand, *models, policy_path)
    assert_equals_plain_loop(policy, by_hand, optimizer, logs, tmp_path / "model")


def test_the_same_seed_gives_the_same_weights_to_the_last_bit(
    loss: Loss, policy_path: Path, tmp_path: Path
) -> None:
    settings: Any = {"epochs": 2, "batch_size": 2, "micro_batch_size": 2}
    torch.manual_seed(1)
    first, _ = train(loss, policy_path, tmp_path / "a", seed=3, **settings)
    torch.manual_seed(2)
    again, _ = train(loss, policy_path, tmp_path / "b", seed=3, **settings)
    train(loss, policy_path, tmp_path / "c", seed=4, **settings)
    digests = [digest(tmp_path / name / "model") for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    assert first == again


def test_accumulated_micro_batches_equal_one_batch(
    loss: Loss, policy_path: Path, tmp_path: Path, passes: list[int]
) -> None:
    """TRL's own likelihood term of ORPO, a mean over a micro-batch's tokens, breaks this law.

    A pair is two sequences: three passes of eight, and then twelve of two.
    """
    _, whole = train(loss, policy_path, tmp_path / "whole", epochs=3)
    _, parts = train(loss, policy_path, tmp_path / "parts", epochs=3, micro_batch_size=1)
    assert passes == [8] * 3 + [2] * 12
    for (_, one), (_, other) in zip(whole, parts, strict=True):
        for name in ("loss", "rewards/margins", "rewards/accuracies"):
            assert one[name] == pytest.approx(other[name], abs=1e-3)
    assert_close(load_model(tmp_path / "whole" / "model"), tmp_path / "parts" / "model")


def test_pairs_that_are_too_long_are_left_out_whole_and_counted(
    loss: Loss, policy_path: Path, tmp_path: Path
) -> None:
    """A limit of 12, which is inclusive, keeps the second and fourth pair; see `by_hand.PAIRS`.

    The third prompt alone, with header and end of turn, would fill a limit of 9: TRL would train on
    an empty completion, whose mean is not a number.
    """
    summary, _ = train(loss, policy_path, tmp_path / "all", max_length=12)
    assert (summary["pairs"], summary["too_long"], summary["trained_pairs"]) == (4, 2, 2)
    kept = [loss.pairs[1], loss.pairs[3]]
    alone, _ = train(loss, policy_path, tmp_path / "kept", pairs=kept)
    assert summary["loss_first"] == alone["loss_first"]


def test_only_the_model_is_written_and_nothing_is_said(
    loss: Loss, policy_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = digest(policy_path)
    train(loss, policy_path, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    suffixes = {path.suffix for path in (tmp_path / "model").iterdir()}
    assert suffixes == {".json", ".safetensors", ".jinja"}
    assert digest(policy_path) == before != digest(tmp_path / "model")
    assert load_model(tmp_path / "model").config.use_cache
