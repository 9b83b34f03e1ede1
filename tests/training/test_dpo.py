"""Laws of the losses against a reference, DPO and SPPO, checked against plain torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from by_hand import PAIRS, SETTINGS, SOFT, Logs, run

from harness.models.loading import load_tokenizer, tokenize
from harness.training import offline, offline_losses
from harness.training.offline import TrainingError
from harness.training.offline_losses import DPO, SPPO
from harness.training.placement import PLAIN


def train(
    start: Path, out: Path, *, pairs: Any = PAIRS, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    algorithm = DPO(**{**SETTINGS, "beta": 0.5, **settings})
    return run(offline.train, algorithm, start, pairs, out)


def soft(
    start: Path, out: Path, pairs: Any = SOFT, beta: float = 0.1, **settings: Any
) -> tuple[dict[str, float], Logs]:
    return run(offline.train, SPPO(**SETTINGS | settings, beta=beta), start, pairs, out)


def test_the_first_loss_is_log_2_and_what_was_trained_can_be_trained_again(
    policy_path: Path, tmp_path: Path
) -> None:
    start = policy_path
    for number in "12":
        summary, logs = train(start, tmp_path / number)
        assert summary["loss_first"] == pytest.approx(math.log(2), abs=1e-6)
        assert [step for step, _ in logs] == [1]
        start = tmp_path / number / "model"


def test_the_trained_tokens_are_the_completion_and_the_end_of_its_turn(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Any] = []

    class Watched(offline_losses.DPOTrainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            batches.append(inputs)
            return super().compute_loss(model, inputs, *args, **kwargs)

    monkeypatch.setattr(offline_losses, "DPOTrainer", Watched)
    train(policy_path, tmp_path, pairs=PAIRS[:1])
    tokenizer = load_tokenizer(policy_path)
    user = [{"role": "user", "content": "a b c"}]
    [head_ids] = tokenize(tokenizer, [user], add_generation_prompt=True)
    head = tokenizer.convert_ids_to_tokens(head_ids)
    [batch] = batches
    for row, completion in enumerate(("c b a", "a")):  # TRL stacks chosen over rejected
        real = batch["attention_mask"][row].bool()
        words = tokenizer.convert_ids_to_tokens(batch["input_ids"][row][real].tolist())
        trained = batch["completion_mask"][row][real].bool().tolist()
        tail = [*completion.split(), "<end_of_turn>"]
        assert words == head + tail
        assert trained == [False] * len(head) + [True] * len(tail)


def test_no_pair_short_enough_is_an_error(policy_path: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="none of the 4 pairs fits into max_length = 5"):
        train(policy_path, tmp_path, max_length=5)


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


# SPPO.


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


def test_a_pair_of_even_chances_is_pulled_to_the_reference(
    policy_path: Path, tmp_path: Path
) -> None:
    """With both probabilities 1/2 both targets are 0, where the reference is: loss 0."""
    even = [{**pair, "p_chosen": 0.5, "p_rejected": 0.5} for pair in PAIRS]
    summary, _ = soft(policy_path, tmp_path, pairs=even)
    assert summary["loss_first"] == pytest.approx(0, abs=1e-8)


def test_rewards_of_sppo_are_beta_times_the_log_ratios(policy_path: Path, tmp_path: Path) -> None:
    """Whatever the win probabilities: after a step the margin is that of the ratios by hand."""
    from by_hand import log_ratios

    from harness.models.loading import load_model

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
