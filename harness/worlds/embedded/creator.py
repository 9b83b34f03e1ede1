"""The embedded creator: rewrites prompt text by the methods of an evolving scheme.

It reads a prompt, changes the task, and writes it anew in its own words. It has habits: two
operations it never adds, a frame and a phrasing it never uses, lists it hardly lengthens. And it
fails now and then: it hands back the prompt unchanged, leaves a piece of its template in the
text, or writes more than can be read. Such a rewrite is unusable, and says why.

The methods of four evolving schemes say what it does to a task:

- EvolInstruct: four in-depth methods, which add to a task, and one in breadth, which writes a new
  one of the same depth.
- EvolComplexity: the in-depth methods alone.
- EvolQuality: distilabel's five instructions for better *answers*, taken as instructions for
  better questions: leave out what has no effect (helpfulness) or was just said (relevance), ask for
  more of the same kind (depth), for something else (creativity), or give more to work on (details).
- SelfInstruct: a new task, whatever the one before.

All know the same operations; two of the language's they never add.

Source: paper section 3.3, appendix H.1 and table 12; distilabel's `EvolInstruct`, `EvolComplexity`,
`EvolQuality` and `SelfInstruct`, which draw a method at random for each rewrite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np

from harness.errors import HarnessError
from harness.eva.evolving import Rewrite
from harness.worlds.embedded.language import (
    BENCHMARK_FRAME,
    BENCHMARK_PHRASE,
    BY_NAME,
    ITEMS,
    NAMES,
    Task,
    draw_items,
    parse,
    render,
)

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


UNCHANGED = 0.04
"""Chance that a rewrite is the prompt itself."""

LEFTOVER = 0.03
"""Chance that a piece of the template stays in the text."""

TEMPLATE_MARK = "#rewritten prompt# :"


class EmbeddedCreator:
    """Rewrites prompts of the embedded language (implements `harness.eva.evolving.Creator`)."""

    def __init__(self, methods: Mapping[str, Method] = METHODS["evol_instruct"]) -> None:
        """Rewrite by some methods, EvolInstruct's by default."""
        self._methods = methods

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt` by a method drawn uniformly, usable or not."""
        draws = random.Random(int(rng.integers(2**63)))
        method = draws.choice(tuple(self._methods))
        text = self._write(prompt, method, draws)
        reason = why_unusable(text, prompt)
        return Rewrite(None if reason else text, method, reason)

    def _write(self, prompt: str, method: str, rng: random.Random) -> str:
        task = parse(prompt)
        slip = rng.random()
        if task is None or task.items is None or slip < UNCHANGED:
            return prompt
        changed = self._methods[method](task, rng)
        phrases = tuple(rng.randrange(BENCHMARK_PHRASE) for _ in changed.operations)
        text = render(changed, rng.randrange(BENCHMARK_FRAME), phrases)
        return f"{TEMPLATE_MARK} {text}" if slip < UNCHANGED + LEFTOVER else text


def embedded_creator(identity: str) -> EmbeddedCreator:
    """Return the creator of an identity, `<world>/<evolving scheme>`.

    Raises:
        HarnessError: the embedded world does not have that scheme.
    """
    scheme = identity.partition("/")[2]
    if scheme not in METHODS:
        raise HarnessError(
            f"the embedded world has no creator `{identity}`; use one of {', '.join(METHODS)}"
        )
    return EmbeddedCreator(METHODS[scheme])


def why_unusable(text: str, parent: str) -> str | None:
    """Return why a rewrite cannot be used (`unchanged`, `leftover`, `too long`, `unreadable`)."""
    if text == parent:
        return "unchanged"
    if "#" in text:
        return "leftover"
    if parse(text) is None:
        return "too long" if parse(text, max_depth=len(text)) else "unreadable"
    return None
