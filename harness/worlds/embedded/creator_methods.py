"""What the embedded creator does to a task: the methods of four evolving schemes.

- EvolInstruct: four in-depth methods, which add to a task, and one in breadth, which writes a new
  one of the same depth.
- EvolComplexity: the in-depth methods alone.
- EvolQuality: distilabel's five instructions for better *answers*, taken as instructions for
  better questions: leave out what has no effect (helpfulness) or was just said (relevance), ask for
  more of the same kind (depth), for something else (creativity), or give more to work on (details).
- SelfInstruct: a new task, whatever the one before.

All know the same operations; two of the language's they never add.

Source: paper section 3.3, appendix H.1 and table 12; distilabel's `EvolInstruct`, `EvolComplexity`,
`EvolQuality` and `SelfInstruct`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from harness.worlds.embedded.language import Task, draw_items
from harness.worlds.embedded.operations import BY_NAME, ITEMS, NAMES

Method = Callable[[Task, random.Random], Task]

NEVER_ADDED = ("swap", "every_other")
"""Operations outside the creator's repertoire."""

REPERTOIRE = tuple(name for name in NAMES if name not in NEVER_ADDED)

CONSTRAINTS = ("first_three", "keep_letters", "keep_digits", "drop_first")
"""Operations that restrict the answer."""

MORE_SPECIFIC = {"sort_up": "sort_down", "reverse": "rotate", "keep_letters": "keep_digits"}
"""What concretising turns an operation into, where it has something narrower to offer."""

LONGEST_LIST = 7
"""Concretising may add an item up to this length."""


def _constraints(task: Task, rng: random.Random) -> Task:
    return Task(task.items, (*task.operations, rng.choice(CONSTRAINTS)))


def _deepening(task: Task, rng: random.Random) -> Task:
    category = BY_NAME[task.operations[-1]].category
    kin = [n for n in REPERTOIRE if BY_NAME[n].category == category]
    return Task(task.items, (*task.operations, rng.choice(kin or REPERTOIRE)))


def _concretising(task: Task, rng: random.Random) -> Task:
    operations = list(task.operations)
    place = rng.randrange(len(operations))
    operations[place] = MORE_SPECIFIC.get(operations[place], operations[place])
    items = task.items or ()
    if len(items) < LONGEST_LIST:
        items = (*items, rng.choice(ITEMS))
    return Task(items, tuple(operations))


def _reasoning(task: Task, rng: random.Random) -> Task:
    place = rng.randrange(len(task.operations) + 1)
    added = rng.choice(REPERTOIRE)
    return Task(task.items, (*task.operations[:place], added, *task.operations[place:]))


def _breadth(task: Task, rng: random.Random) -> Task:
    names = tuple(rng.choice(REPERTOIRE) for _ in task.operations)
    return Task(draw_items(rng, 4, 6), names)


def _helpful(task: Task, rng: random.Random) -> Task:
    items, kept = task.items or (), []
    for name in task.operations:
        changed = BY_NAME[name].apply(items)
        if changed != items:
            kept.append(name)
        items = changed
    return Task(task.items, tuple(kept) or task.operations)


def _relevant(task: Task, rng: random.Random) -> Task:
    kept = [
        name
        for place, name in enumerate(task.operations)
        if place == 0 or name != task.operations[place - 1]
    ]
    return Task(task.items, tuple(kept))


def _creative(task: Task, rng: random.Random) -> Task:
    operations = list(task.operations)
    operations[rng.randrange(len(operations))] = rng.choice(REPERTOIRE)
    return Task(task.items, tuple(operations))


def _detailed(task: Task, rng: random.Random) -> Task:
    items = task.items or ()
    if len(items) < LONGEST_LIST:
        items = (*items, rng.choice(ITEMS))
    return Task(items, task.operations)


def _new(task: Task, rng: random.Random) -> Task:
    depth = rng.randint(1, 3)
    return Task(draw_items(rng, 4, 6), tuple(rng.choice(REPERTOIRE) for _ in range(depth)))


IN_DEPTH: Mapping[str, Method] = {
    "constraints": _constraints,
    "deepening": _deepening,
    "concretizing": _concretising,
    "reasoning": _reasoning,
}

METHODS: Mapping[str, Mapping[str, Method]] = {
    "evol_instruct": {**IN_DEPTH, "breadth": _breadth},
    "evol_complexity": IN_DEPTH,
    "evol_quality": {
        "helpfulness": _helpful,
        "relevance": _relevant,
        "deepening": _deepening,
        "creativity": _creative,
        "details": _detailed,
    },
    "self_instruct": {"new": _new},
}
"""The methods of each scheme by name; one is drawn at random for each rewrite."""
