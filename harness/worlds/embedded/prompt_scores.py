"""Complexity and quality of a prompt, read from its text and from nothing else.

They stand for the two questions that the paper puts to a language model about each prompt (table
7), on the same scale of 1 to 5. Complexity counts what is asked: the operations, and whether the
list is long. Since most of the creator's methods add operations, that evolved prompts are more
complex is true here by construction. Quality counts what speaks for a prompt as a question: that
it can be read, that its list gives every operation something to do, that it does not say the same
thing twice, and that its answer is not simply what was given.

Source: paper section 4.2.5, table 7 and appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from harness.worlds.embedded.language import parse
from harness.worlds.embedded.operations import compute

RULES = "rules"
"""The judge's name in profiles."""

LONG_LIST = 7
"""Items from which on a list makes a task more complex."""


def complexity(prompt: str) -> float:
    """Return how much a prompt asks for, from 1 to 5; 1 where it cannot be read."""
    task = parse(prompt)
    if task is None:
        return 1.0
    return float(min(5, len(task.operations) + (len(task.items or ()) >= LONG_LIST)))


def quality(prompt: str) -> float:
    """Return how good a question a prompt is, from 1 to 5; 1 where it cannot be read."""
    task = parse(prompt)
    if task is None or task.items is None:
        return 1.0
    steps = [task.items]
    for name in task.operations:
        steps.append(compute((name,), steps[-1]))
    return 2.0 + sum(
        (
            all(before != after for before, after in pairwise(steps)),
            all(first != second for first, second in pairwise(task.operations)),
            bool(steps[-1]) and steps[-1] != task.items,
        )
    )


SCORERS: Mapping[str, Callable[[str], float]] = {"complexity": complexity, "quality": quality}
"""Each score by the column of the registry that reads it."""
