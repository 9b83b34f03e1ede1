"""Demonstrations: conversations by a fallible demonstrator, from which the base policy learns.

The demonstrator applies each operation correctly with a probability of its own; otherwise it
leaves the operation out or does a neighbouring one. Competence is therefore uneven across skills
and falls with depth, as in a real instruction-tuned model: the policy that imitates these
conversations is often right on common skills, seldom on rare ones, and its best of several
answers is much better than its average one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.worlds.embedded.downstream import TASKS
from harness.worlds.embedded.language import (
    FOLLOW_UPS,
    FRAMES,
    REVISE,
    Task,
    draw_items,
    render,
    write_list,
)
from harness.worlds.embedded.operations import BY_NAME, NAMES, Sequence

RELIABILITY: dict[str, float] = {
    "reverse": 0.95,
    "drop_first": 0.93,
    "first_three": 0.91,
    "keep_letters": 0.88,
    "sort_up": 0.84,
    "keep_digits": 0.80,
    "rotate": 0.75,
    "double_last": 0.69,
    "swap": 0.63,
    "sort_down": 0.56,
    "successor": 0.49,
    "every_other": 0.42,
}
"""Probability that the demonstrator applies an operation correctly."""

MISTAKEN_FOR: dict[str, str] = {
    "reverse": "rotate",
    "drop_first": "first_three",
    "first_three": "drop_first",
    "keep_letters": "keep_digits",
    "sort_up": "reverse",
    "keep_digits": "keep_letters",
    "rotate": "swap",
    "double_last": "drop_first",
    "swap": "reverse",
    "sort_down": "sort_up",
    "successor": "double_last",
    "every_other": "first_three",
}
"""Which operation is done by mistake; otherwise a missed operation is left out."""

LEFT_OUT = 0.5
"""Share of missed operations that are left out rather than mistaken."""

Turn = tuple[str, str]
"""One exchange: what the user says and what the model answers."""


@dataclass(frozen=True)
class Mix:
    """Shares of the kinds of conversation; what is left over is single tasks."""

    follow_up: float = 0.12
    revision: float = 0.06
    downstream: float = 0.08
    depths: tuple[float, ...] = (0.30, 0.32, 0.23, 0.15)


def attempt(
    names: tuple[str, ...], items: Sequence, rng: random.Random, lift: float = 0.0
) -> Sequence:
    """Apply operations as the demonstrator does.

    Args:
        names: operations in order.
        items: the list they start from.
        rng: source of the mistakes.
        lift: share of the failure probability that is removed (0 as is, 1 infallible).
    """
    for name in names:
        failure = (1.0 - RELIABILITY[name]) * (1.0 - lift)
        draw = rng.random()
        if draw >= failure:
            items = BY_NAME[name].apply(items)
        elif draw >= failure * LEFT_OUT:
            items = BY_NAME[MISTAKEN_FOR[name]].apply(items)
    return items


def draw_task(rng: random.Random, mix: Mix) -> Task:
    """Draw a task evenly over skills, phrasings and lengths: what a broad corpus would hold."""
    depth = rng.choices(range(1, len(mix.depths) + 1), weights=mix.depths)[0]
    return Task(draw_items(rng, 3, 8), tuple(rng.choices(NAMES, k=depth)))


def word(task: Task, rng: random.Random) -> str:
    """Put a task into words, evenly over frames and phrasings."""
    frames = FRAMES if task.items is not None else FOLLOW_UPS
    phrases = tuple(rng.randrange(4) for _ in task.operations)
    return render(task, rng.randrange(len(frames)), phrases)


def demonstrate(rng: random.Random, mix: Mix) -> list[Turn]:
    """Draw one conversation of one or two turns."""
    kind = rng.random()
    if kind < mix.downstream:
        question = rng.choice(tuple(TASKS.values()))(rng)
        return [(question.prompt, question.answer)]
    task = draw_task(rng, mix)
    assert task.items is not None
    first = attempt(task.operations, task.items, rng)
    turns = [(word(task, rng), write_list(first))]
    if kind < mix.downstream + mix.revision:
        revised = attempt(task.operations, task.items, rng, lift=0.5)
        turns.append((REVISE, write_list(revised)))
    elif kind < mix.downstream + mix.revision + mix.follow_up:
        follow_up = Task(None, tuple(rng.choices(NAMES, k=rng.choice((1, 1, 2)))))
        turns.append((word(follow_up, rng), write_list(attempt(follow_up.operations, first, rng))))
    return turns
