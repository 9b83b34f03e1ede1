"""What a pairwise reward model reads, and how it learns to order two answers.

It reads one conversation: the prompt, then both answers as two model turns in a row,

    <bos> <start_of_turn> user P <end_of_turn> <start_of_turn> model A <end_of_turn>
    <start_of_turn> model B <end_of_turn>

which is what the chat template makes of it; from the last token, which has seen everything, a
scalar head says how much better A is than B. In training the better answer is put first or second
by a fair coin, so that place carries no information. When the model is used both orders are read
(`harness.models.pair_preference`).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from harness.worlds.embedded.preferences import Preference
from harness.worlds.embedded.pretrain import encode, padded
from harness.worlds.embedded.tokenizer import END, MODEL, PAD, START, token_ids

if TYPE_CHECKING:
    import torch

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
