"""Training a pointwise reward model on noisy preferences over demonstrations.

The reward model is θ0's body with a scalar head. It learns from pairs of attempts by the fallible
demonstrator, labelled by the oracle with a tenth of the labels flipped, as human preferences are.
It is therefore neither the oracle nor blind: how good it is, is measured on held-out pairs and
written in its card.

Source: the Bradley-Terry loss of the paper's reward models (ArmoRM's and Skywork's reports).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.micro.demonstrations import Mix, attempt, draw_task, word
from harness.micro.language import write_list
from harness.micro.oracle import partial_credit
from harness.micro.pretrain import descent, encode, padded, reproducible
from harness.micro.tokenizer import PAD, build_tokenizer, token_ids

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RewardConfig:
    """Settings of a reward model's training (ours)."""

    seed: int = 0
    steps: int = 1500
    batch_size: int = 64
    learning_rate: float = 5e-4
    warmup_steps: int = 50
    threads: int = 2
    """Compute threads; another number rounds differently."""
    flipped: float = 0.1
    """Share of training labels that are wrong."""
    held_out: int = 2000
    """Pairs that accuracy is measured on, with true labels."""


@dataclass(frozen=True)
class Preference:
    """A prompt with a better and a worse answer (by the label, which may be wrong)."""

    prompt: str
    chosen: str
    rejected: str


def draw_preference(rng: random.Random, flipped: float) -> Preference:
    """Draw a pair of unequally good attempts at one task."""
    while True:
        task = draw_task(rng, Mix())
        assert task.items is not None
        answers = [write_list(attempt(task.operations, task.items, rng)) for _ in range(2)]
        first, second = (partial_credit(answer, task.answer()) for answer in answers)
        if first == second:
            continue
        if (first < second) != (rng.random() < flipped):
            answers.reverse()
        return Preference(word(task, rng), *answers)


def train_reward_model(
    config: RewardConfig,
    policy: Path,
    output: Path,
    on_step: Callable[[int, float], None] | None = None,
) -> float:
    """Train a reward model and save it with its tokenizer (bfloat16 safetensors).

    Args:
        config: settings.
        policy: folder of θ0, whose body it starts from.
        output: folder to write to.
        on_step: called with the step and the loss after every step.

    Returns:
        Accuracy on held-out pairs with true labels, of the saved weights.
    """
    with reproducible(config.seed, config.threads) as device:
        _train(config, policy, output, device, on_step)
    return held_out_accuracy(output, config)


def _train(
    config: RewardConfig,
    policy: Path,
    output: Path,
    device: str,
    on_step: Callable[[int, float], None] | None,
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(
        policy, num_labels=1, dtype=torch.float32, attn_implementation="eager"
    ).to(device)
    descend = descent(model, config.learning_rate, config.warmup_steps, config.steps)
    rng = random.Random(f"{config.seed}/preferences")
    for step in range(1, config.steps + 1):
        pairs = [draw_preference(rng, config.flipped) for _ in range(config.batch_size)]
        with torch.autocast(device, dtype=torch.bfloat16):
            rewards = _rewards(model, pairs, device)
        chosen, rejected = rewards.float().chunk(2)
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        descend(loss)
        if on_step is not None:
            on_step(step, float(loss.detach()))
    model.to(torch.bfloat16).save_pretrained(output)
    build_tokenizer().save_pretrained(output)


def held_out_accuracy(folder: Path, config: RewardConfig) -> float:
    """Return the share of held-out pairs that a saved reward model orders as the oracle does."""
    import torch
    from transformers import AutoModelForSequenceClassification

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).to(device)
    model.eval()
    rng = random.Random(f"{config.seed}/held-out preferences")
    right = 0
    with torch.inference_mode():
        for pairs in _parts(rng, config):
            chosen, rejected = _rewards(model, pairs, device).chunk(2)
            right += int((chosen > rejected).sum())
    return right / config.held_out


def _parts(rng: random.Random, config: RewardConfig) -> Iterator[list[Preference]]:
    for start in range(0, config.held_out, config.batch_size):
        count = min(config.batch_size, config.held_out - start)
        yield [draw_preference(rng, flipped=0.0) for _ in range(count)]


def _rewards(model: torch.nn.Module, pairs: list[Preference], device: str) -> torch.Tensor:
    """Return the rewards of all chosen, then all rejected answers, shape (2 x pairs,)."""
    ids = token_ids()
    rows = [encode([(p.prompt, p.chosen)], ids)[0] for p in pairs]
    rows += [encode([(p.prompt, p.rejected)], ids)[0] for p in pairs]
    tokens, mask = (part.to(device) for part in padded(rows, ids[PAD]))
    logits: torch.Tensor = model(input_ids=tokens, attention_mask=mask).logits
    return logits[:, 0]
