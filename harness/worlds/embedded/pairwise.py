"""Noisy preferences over demonstrations, and what a pairwise reward model reads of them.

The model reads one conversation: the prompt, then both answers as two model turns in a row,

    <bos> <start_of_turn> user P <end_of_turn> <start_of_turn> model A <end_of_turn>
    <start_of_turn> model B <end_of_turn>

which is what the chat template makes of it; from the last token, which has seen everything, a
scalar head says how much better A is than B. In training the better answer is put first or second
by a fair coin, so that place carries no information. When the model is used both orders are read
(`harness.models.pair_preference`).

All reward models of the world learn from such preferences. A pair is two attempts by the fallible
demonstrator at one task, ordered by the oracle; a share of the labels is the wrong way round, as
some human preferences are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.worlds.embedded.demonstrations import Mix, attempt, draw_task, word
from harness.worlds.embedded.language import write_list
from harness.worlds.embedded.oracle import partial_credit
from harness.worlds.embedded.pretrain import encode, padded
from harness.worlds.embedded.tokenizer import END, MODEL, PAD, START, token_ids

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Preference:
    """A prompt with a better and a worse answer (by the label, which may be wrong)."""

    prompt: str
    chosen: str
    rejected: str


def draw_preference(rng: random.Random, flipped: float) -> Preference:
    """Draw a pair of unequally good attempts at one task.

    Args:
        rng: source of everything drawn.
        flipped: probability that the label is wrong.
    """
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


SCORING_BATCH = 256
"""Sequences read at a time when accuracy is measured."""


def encode_pair(prompt: str, first: str, second: str, ids: dict[str, int]) -> list[int]:
    """Return the token ids of a prompt with two answers to it."""
    tokens, _ = encode([(prompt, first)], ids)
    return [*tokens, ids[START], ids[MODEL], *(ids[w] for w in second.split()), ids[END]]


def pair_margins(
    model: torch.nn.Module, pairs: list[Preference], device: str, rng: random.Random
) -> torch.Tensor:
    """Return by how much the model puts each chosen answer first, in logits, shape (pairs,).

    Args:
        model: transformer with a scalar head.
        pairs: preferences.
        device: torch device.
        rng: source of the order in which each pair's answers are shown.
    """
    import torch

    ids = token_ids()
    chosen_first = [rng.random() < 0.5 for _ in pairs]
    rows = [
        encode_pair(p.prompt, *((p.chosen, p.rejected) if first else (p.rejected, p.chosen)), ids)
        for p, first in zip(pairs, chosen_first, strict=True)
    ]
    tokens, mask = (part.to(device) for part in padded(rows, ids[PAD]))
    logits: torch.Tensor = model(input_ids=tokens, attention_mask=mask).logits
    sign = torch.tensor([1.0 if first else -1.0 for first in chosen_first], device=device)
    return logits[:, 0].float() * sign


def pairs_in_order(folder: Path, pairs: list[Preference]) -> list[bool]:
    """Return of each pair whether a saved model, reading both orders, agrees with its label."""
    from harness.models.pair_preference import win_probabilities

    conversations = [[{"role": "user", "content": p.prompt}] for p in pairs]
    answers = [[p.chosen, p.rejected] for p in pairs]
    wins = win_probabilities(folder, conversations, answers, batch_size=SCORING_BATCH)
    return [bool(right) for right in wins[:, 0, 1] > 0.5]
