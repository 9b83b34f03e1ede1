"""Six small question types outside the training prompts: the stand-ins for the paper's table 9.

They share the language's items but none of its operations. The policy has seen them in its
demonstrations and no prompt source ever asks them, so they show what training elsewhere does to
other abilities. Which of them the benchmark asks is in `harness.worlds.embedded.downstream_items`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.worlds.embedded.language import draw_items, write_list
from harness.worlds.embedded.operations import DIGITS, ITEMS


@dataclass(frozen=True)
class Question:
    """A question with one right answer."""

    prompt: str
    answer: str


def contains(rng: random.Random, shortest: int = 3, longest: int = 7) -> Question:
    """Ask whether an item is in a list, which it is about half the time."""
    items, probe = draw_items(rng, shortest, longest), rng.choice(ITEMS)
    if rng.random() < 0.5:
        probe = rng.choice(items)
    prompt = f"does {write_list(items)} contain this : {probe}"
    return Question(prompt, "yes" if probe in items else "no")


def count(rng: random.Random, shortest: int = 2, longest: int = 8) -> Question:
    """Ask how many items a list has; nine at most, because a number is one digit."""
    items = draw_items(rng, shortest, longest)
    return Question(f"how many items has {write_list(items)}", str(len(items)))


def third(rng: random.Random, shortest: int = 3, longest: int = 7) -> Question:
    """Ask for the third item of a list."""
    items = draw_items(rng, shortest, longest)
    return Question(f"which item is third in {write_list(items)}", items[2])


def _larger(rng: random.Random) -> Question:
    pair = rng.sample(DIGITS, 2)
    return Question(f"which is larger : {pair[0]} or {pair[1]}", max(pair))


def _sum(rng: random.Random) -> Question:
    a = rng.randrange(10)
    b = rng.randrange(10 - a)
    return Question(f"how many make {a} plus {b}", str(a + b))


def _before(rng: random.Random) -> Question:
    pair = rng.sample(ITEMS, 2)
    first = min(pair, key=ITEMS.index)
    return Question(f"which comes earlier : {pair[0]} or {pair[1]}", first)


Draw = Callable[[random.Random], Question]

TASKS: dict[str, Draw] = {
    "musr_ta": contains,
    "tqa_gen": count,
    "wmdp": third,
    "gsm8k": _sum,
    "gsm_plus": _larger,
    "mmlu_pro": _before,
}
"""One generator for each column of table 9 that it stands for."""

VOCABULARY = frozenset(
    "does contain this : yes no how many items has which item is third in larger or make plus "
    "comes earlier".split()
)
"""Words that occur in these questions and perhaps nowhere else."""
