"""Six small question types outside the training prompts: the stand-ins for the paper's table 9.

They share the language's items but none of its operations. The policy has met them in its
demonstrations and no prompt source ever asks them, so they show what training elsewhere does to
other abilities.

Each has room above and below. Three ask about lists: two of them about longer ones than any that
was demonstrated, the third to count up to nine items where at most six were. The other three are
facts (sums, and which of two comes first), all of which were demonstrated, by a demonstrator that
believes each with a probability of its own, evenly from 0.2 to 0.95, and has one wrong answer for
it otherwise; what the policy says when it decides for one answer is right for about three in five
of them.

The benchmark is fixed questions of the six types, made from a seed when they are asked. Every text
is asked once.

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


def contains(rng: random.Random, shortest: int = 3, longest: int = 6) -> Question:
    """Ask whether an item is in a list, which it is about half the time."""
    items, probe = draw_items(rng, shortest, longest), rng.choice(ITEMS)
    if rng.random() < 0.5:
        probe = rng.choice(items)
    prompt = f"does {write_list(items)} contain this : {probe}"
    return Question(prompt, "yes" if probe in items else "no")


def count(rng: random.Random, shortest: int = 2, longest: int = 6) -> Question:
    """Ask how many items a list has; nine at most, because a number is one digit."""
    items = draw_items(rng, shortest, longest)
    return Question(f"how many items has {write_list(items)}", str(len(items)))


def third(rng: random.Random, shortest: int = 3, longest: int = 6) -> Question:
    """Ask for the third item of a list."""
    items = draw_items(rng, shortest, longest)
    return Question(f"which item is third in {write_list(items)}", items[2])


def larger(rng: random.Random) -> Question:
    """Ask which of two digits is the larger."""
    pair = rng.sample(DIGITS, 2)
    return Question(f"which is larger : {pair[0]} or {pair[1]}", max(pair))


def sum_of(rng: random.Random) -> Question:
    """Ask for a sum of two digits that is one itself."""
    a = rng.randrange(10)
    b = rng.randrange(10 - a)
    return Question(f"how many make {a} plus {b}", str(a + b))


def before(rng: random.Random) -> Question:
    """Ask which of two items comes first in the order of items."""
    pair = rng.sample(ITEMS, 2)
    return Question(f"which comes earlier : {pair[0]} or {pair[1]}", min(pair, key=ITEMS.index))


def told(question: Question, rng: random.Random) -> Question:
    """Return a fact as the demonstrator tells it: with one wrong answer of its own now and then."""
    belief = random.Random(f"{files.VERSION}/belief/{question.prompt}")
    right = belief.uniform(0.2, 0.95)
    said = question.prompt.partition(" : ")[2].split(" or ")
    others = said if len(said) == 2 else DIGITS
    wrong = belief.choice([answer for answer in others if answer != question.answer])
    return question if rng.random() < right else Question(question.prompt, wrong)


Draw = Callable[[random.Random], Question]

TASKS: dict[str, Draw] = {
    "musr_ta": contains,
    "tqa_gen": count,
    "wmdp": third,
    "gsm8k": sum_of,
    "gsm_plus": larger,
    "mmlu_pro": before,
}
"""One generator for each column of table 9 that it stands for."""

FACTS = ("gsm8k", "gsm_plus", "mmlu_pro")
"""Those that are facts."""


def demonstrated(rng: random.Random) -> Question:
    """Draw a question as the demonstrator answers it."""
    task = rng.choice(tuple(TASKS))
    question = TASKS[task](rng)
    return told(question, rng) if task in FACTS else question


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

LONG = (7, 12)
"""Shortest and longest list that is asked about; demonstrations have at most six items."""

COUNTED = (5, 9)
"""The same where items are counted, of which there are nine at most: five and six were
demonstrated, on other lists."""

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
