"""The downstream benchmark: fixed questions of the six types, made from a seed when they are asked.

Every text is asked once. Where a task has enough questions, none of its items is one that the base
policy saw in its demonstrations: two tasks ask about longer lists than any demonstration, which
also leaves them harder than what was demonstrated, and one leaves out lists so short that most of
them were demonstrated. The sums and pairs of the other three are few, and all of them were
demonstrated; two of these tasks ask every question there is.

An identity is `<version>/downstream@<digest>`, as of the world's files, with the digest taken over
the items themselves: code that made other items would have another one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random

from harness.errors import HarnessError
from harness.worlds.embedded.downstream import TASKS, Draw, Question, contains, count, third
from harness.worlds.embedded.world import DIGITS, VERSION
from harness.worlds.protocol import Item

NAME = "downstream"
"""The benchmark's name in profiles."""

SEED = 0
"""Seed of the items."""

ITEMS = {
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
        for task, wanted in ITEMS.items()
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
    return f"{VERSION}/{NAME}@{digest[:DIGITS]}"


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
