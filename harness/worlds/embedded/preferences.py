"""Noisy preferences over demonstrations: what the reward models of the world learn from.

A pair is two attempts by the fallible demonstrator at one task, ordered by the oracle; a share of
the labels is the wrong way round, as some human preferences are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.worlds.embedded.demonstrations import Mix, attempt, draw_task, word
from harness.worlds.embedded.language import write_list
from harness.worlds.embedded.oracle import partial_credit


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
