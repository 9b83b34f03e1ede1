"""Six small question types outside the training prompts: the stand-ins for the paper's table 9.

They share the language's items but none of its operations. The policy has seen them in its
demonstrations and no prompt source ever asks them, so they show what training elsewhere does to
other abilities.

The benchmark is fixed questions of the six types, made from a seed when they are asked. Every text
is asked once. Where a task has enough questions, none of its items is one that the base policy saw
in its demonstrations: two tasks ask about longer lists than any demonstration, which also leaves
them harder than what was demonstrated, and one leaves out lists so short that most of them were
demonstrated. The sums and pairs of the other three are few, and all of them were demonstrated; two
of these tasks ask every question there is.

An identity is `<version>/downstream@<digest>`, as of the world's files, with the digest taken over
the items themselves: code that made other items would have another one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.worlds.embedded import files
from harness.worlds.embedded.language import DIGITS, ITEMS, draw_items, write_list
from harness.worlds.protocol import Item


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

NAME = "downstream"
"""The benchmark's name in profiles."""

SEED = 0
"""Seed of the items."""

ITEMS_OF_TASKS = {
    "musr_ta": 200,
    "tqa_gen": 200,
    "wmdp": 200,
    "gsm8k": 55,
    "gsm_plus": 90,
    "mmlu_pro": 200,
}
"""Items of each task; there are 55 sums of two digits up to 9 and 90 ordered pairs of digits."""

LONG = (8, 14)
"""Shortest and longest list of the two tasks with long lists; demonstrations have at most 7."""

COUNTED = (4, 8)
"""The same where items are counted; demonstrations have 2 to 8."""

DRAWS: dict[str, Draw] = {
    **TASKS,
    "musr_ta": functools.partial(contains, shortest=LONG[0], longest=LONG[1]),
    "wmdp": functools.partial(third, shortest=LONG[0], longest=LONG[1]),
    "tqa_gen": functools.partial(count, shortest=COUNTED[0], longest=COUNTED[1]),
}
"""How the items of each task are drawn."""


@functools.cache
def items() -> tuple[Item, ...]:
    """Return the items, task by task; the category is the task, the reference the answer."""
    return tuple(
        Item(f"{task}-{i:04d}", task, question.prompt, reference=question.answer)
        for task, wanted in ITEMS_OF_TASKS.items()
        for i, question in enumerate(_questions(task, wanted))
    )


def _questions(task: str, wanted: int) -> list[Question]:
    """Draw distinct questions; there must be as many."""
    rng = random.Random(f"{SEED}/{NAME}/{task}")
    found: dict[str, Question] = {}
    while len(found) < wanted:
        question = DRAWS[task](rng)
        found.setdefault(question.prompt, question)
    return list(found.values())


@functools.cache
def identity() -> str:
    """Return the identity of the items."""
    lines = (json.dumps([i.item_id, i.turn_1, i.reference]) for i in items())
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{files.VERSION}/{NAME}@{digest[: files.DIGITS]}"


def items_of(wanted: str) -> tuple[Item, ...]:
    """Return the items that an identity means.

    Raises:
        HarnessError: they are not those that this code makes.
    """
    if wanted != identity():
        raise HarnessError(
            f"the downstream items `{wanted}` are not those of this code, `{identity()}`; use the "
            "code that they were asked with"
        )
    return items()
