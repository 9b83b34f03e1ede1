"""The embedded creator: rewrites prompt text by the methods of an evolving scheme.

It reads a prompt, changes the task, and writes it anew. The names that the prompt has it keeps.
Those that it adds it draws from its own vocabulary, which has 15 of each operation's 20 names, and
as one that has read what people write: common names more often than rare ones, but less markedly
so than people, with weight rank^-0.5 where theirs is 1 / rank. It never uses the benchmarks' frame
and hardly lengthens lists. And it fails now and then, as creators do; such a rewrite is unusable.
All this was fixed before any policy was trained on evolved prompts.

Source: paper section 3.3, appendix H.1 and table 12; distilabel's `EvolInstruct`, `EvolComplexity`,
`EvolQuality` (made for better *answers*, here taken for better questions) and `SelfInstruct`, which
draw a method at random for each rewrite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np

from harness.errors import HarnessError
from harness.eva.evolving import Rewrite
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.language import Items, Operation, Task
from harness.worlds.embedded.texts import RANKED

Method = Callable[[Task, random.Random], Task]

KNOWN_EACH = 15
"""Names of each operation in the creator's vocabulary."""


def _vocabulary() -> tuple[str, ...]:
    rng = random.Random("micro-3/creator")
    known = {name for o in lang.OPERATIONS for name in rng.sample(o.names, KNOWN_EACH)}
    return tuple(name for name in RANKED if name in known)


VOCABULARY = _vocabulary()
"""Names that the creator adds, by rank."""

WEIGHT: Mapping[str, float] = {name: rank**-0.5 for rank, name in enumerate(RANKED, start=1)}
"""How often it adds each."""

CONSTRAINTS = ("first_three", "keep_letters", "keep_digits", "drop_first")
"""Operations that restrict the answer."""

MORE_SPECIFIC = {"sort_up": "sort_down", "reverse": "rotate", "keep_letters": "keep_digits"}
"""What concretising turns an operation into, where it has something narrower to offer."""

LONGEST_LIST = 6
"""Concretising may add an item up to this length."""


def _name(rng: random.Random, among: Callable[[Operation], bool] = lambda _: True) -> str:
    """Draw a name to add, of the operations that are wanted."""
    names = [name for name in VOCABULARY if among(lang.MEANING[name])]
    return rng.choices(names, weights=[WEIGHT[name] for name in names])[0]


def _constraints(task: Task, rng: random.Random) -> Task:
    return Task(task.items, (*task.names, _name(rng, lambda o: o.id in CONSTRAINTS)))


def _deepening(task: Task, rng: random.Random) -> Task:
    category = task.operations[-1].category
    return Task(task.items, (*task.names, _name(rng, lambda o: o.category == category)))


def _concretising(task: Task, rng: random.Random) -> Task:
    names = list(task.names)
    place = rng.randrange(len(names))
    narrower = MORE_SPECIFIC.get(task.operations[place].id)
    if narrower is not None:
        names[place] = _name(rng, lambda o: o.id == narrower)
    return Task(_with_an_item_more(task, rng), tuple(names))


def _with_an_item_more(task: Task, rng: random.Random) -> Items:
    items = task.items or ()
    return (*items, rng.choice(lang.ITEMS)) if len(items) < LONGEST_LIST else items


def _reasoning(task: Task, rng: random.Random) -> Task:
    place = rng.randrange(len(task.names) + 1)
    return Task(task.items, (*task.names[:place], _name(rng), *task.names[place:]))


def _breadth(task: Task, rng: random.Random) -> Task:
    return Task(lang.draw_items(rng, 4, 6), tuple(_name(rng) for _ in task.names))


def _helpful(task: Task, rng: random.Random) -> Task:
    items, kept = task.items or (), []
    for name in task.names:
        changed = lang.MEANING[name].apply(items)
        if changed != items:
            kept.append(name)
        items = changed
    return Task(task.items, tuple(kept) or task.names)


def _relevant(task: Task, rng: random.Random) -> Task:
    done = task.operations
    kept = [n for place, n in enumerate(task.names) if place == 0 or done[place] != done[place - 1]]
    return Task(task.items, tuple(kept))


def _creative(task: Task, rng: random.Random) -> Task:
    names = list(task.names)
    names[rng.randrange(len(names))] = _name(rng)
    return Task(task.items, tuple(names))


def _detailed(task: Task, rng: random.Random) -> Task:
    return Task(_with_an_item_more(task, rng), task.names)


def _new(task: Task, rng: random.Random) -> Task:
    return Task(lang.draw_items(rng, 4, 6), tuple(_name(rng) for _ in range(rng.randint(1, 3))))


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
        task = lang.parse(prompt)
        slip = rng.random()
        if task is None or task.items is None or slip < UNCHANGED:
            return prompt
        changed = self._methods[method](task, rng)
        text = lang.render(changed, rng.randrange(lang.BENCHMARK_FRAME))
        return f"{TEMPLATE_MARK} {text}" if slip < UNCHANGED + LEFTOVER else text


def embedded_creator(identity: str) -> EmbeddedCreator:
    """Return the creator of an identity, `<world>/<evolving scheme>`."""
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
    if lang.parse(text) is None:
        return "too long" if lang.parse(text, max_depth=len(text)) else "unreadable"
    return None
