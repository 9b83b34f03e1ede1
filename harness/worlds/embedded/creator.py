"""The embedded creator: rewrites prompts by the operators of an evolving method.

It parses a prompt, changes the task, and renders it again. An in-depth rewrite keeps every name in
the prompt and stays in its topic; a breadth rewrite moves to an adjacent topic in popularity, as
the creator in the paper's table 17 does. A rewrite adds a name only while the prompt has fewer than
two, and an item otherwise: a prompt that is never answered correctly teaches nothing.

Added names come from the prompt, or from the creator's own vocabulary of 15 of each operation's 20
names: how far it reaches is a factor (`Reach`). It never uses the benchmarks' frame, hardly
lengthens lists, and occasionally fails; such a rewrite is unusable. All this was fixed before any
metric of eva was computed.

Source: paper section 3.3, appendix H.1, tables 12 and 17; distilabel's `EvolInstruct`,
`EvolComplexity` and `EvolQuality` (designed for better *answers*, applied here to questions), which
draw an operator at random for each rewrite, and `SelfInstruct`, which has none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.errors import HarnessError
from harness.eva.evolving import Rewrite
from harness.registry.recipe import Reach
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.language import Operation, Task
from harness.worlds.embedded.texts import POPULARITY, RANKED, TOPIC_OF, TOPICS, topic_of

KNOWN_EACH = 15  # names of each operation in the creator's vocabulary


_known = random.Random("micro-3/creator")
VOCABULARY = frozenset(name for o in lang.OPERATIONS for name in _known.sample(o.names, KNOWN_EACH))
"""Names the creator can add."""

GROWN = 2  # with this many names, a prompt gets an item instead of another name
LONGEST_LIST = 6  # items are added only up to this length
CONSTRAINTS = ("first_three", "keep_letters", "keep_digits", "drop_first")
"""Operations that restrict the answer."""


def draw_name(
    task: Task,
    reach: Reach,
    topic: int,
    rng: random.Random,
    among: Callable[[Operation], bool] = lambda _: True,
) -> str:
    """Draw a name that may be added to a task: one of `among` if any is within reach."""
    names: Sequence[str] = task.names
    if reach != "parent":
        reached = TOPICS[topic] if reach == "topic" else RANKED
        names = [name for name in reached if name in VOCABULARY]
    as_asked = reach == "people"
    weights = [POPULARITY[TOPIC_OF[name]] if as_asked else 1.0 for name in names]
    pairs = zip(names, weights, strict=True)
    wanted = [weight * among(lang.MEANING[name]) for name, weight in pairs]
    return rng.choices(names, weights=wanted if any(wanted) else weights)[0]


Operator = Callable[[Task, Reach, random.Random], Task]


def _one_more(
    task: Task,
    reach: Reach,
    rng: random.Random,
    among: Callable[[Operation], bool] = lambda _: True,
    place: int | None = None,
) -> Task:
    """Add a name to a task, at `place` or the end, or an item if it already has `GROWN` names."""
    if len(task.names) >= GROWN:
        return _concretizing(task, reach, rng)
    at = len(task.names) if place is None else place
    name = draw_name(task, reach, topic_of(task), rng, among)
    return Task(task.items, (*task.names[:at], name, *task.names[at:]))


def _constraints(task: Task, reach: Reach, rng: random.Random) -> Task:
    return _one_more(task, reach, rng, lambda o: o.id in CONSTRAINTS)


def _deepening(task: Task, reach: Reach, rng: random.Random) -> Task:
    category = task.operations[-1].category
    return _one_more(task, reach, rng, lambda o: o.category == category)


def _concretizing(task: Task, reach: Reach, rng: random.Random) -> Task:
    items = task.items or ()
    longer = (*items, rng.choice(lang.ITEMS)) if len(items) < LONGEST_LIST else items
    return Task(longer, task.names)


def _reasoning(task: Task, reach: Reach, rng: random.Random) -> Task:
    return _one_more(task, reach, rng, place=rng.randrange(len(task.names) + 1))


def _breadth(task: Task, reach: Reach, rng: random.Random) -> Task:
    topic = topic_of(task)
    near = rng.choice([at for at in (topic - 1, topic + 1) if 0 <= at < len(TOPICS)])
    items = lang.draw_items(rng, 4, 6)
    return Task(items, tuple(draw_name(task, reach, near, rng) for _ in task.names))


def _helpful(task: Task, reach: Reach, rng: random.Random) -> Task:
    items, kept = task.items or (), []
    for name in task.names:
        changed = lang.MEANING[name].apply(items)
        if changed != items:
            kept.append(name)
        items = changed
    return Task(task.items, tuple(kept) or task.names)


def _relevant(task: Task, reach: Reach, rng: random.Random) -> Task:
    done = task.operations
    kept = [n for place, n in enumerate(task.names) if place == 0 or done[place] != done[place - 1]]
    return Task(task.items, tuple(kept))


def _creative(task: Task, reach: Reach, rng: random.Random) -> Task:
    names = list(task.names)
    names[rng.randrange(len(names))] = draw_name(task, reach, topic_of(task), rng)
    return Task(task.items, tuple(names))


def _new(task: Task, reach: Reach, rng: random.Random) -> Task:
    items, topic = lang.draw_items(rng, 4, 6), topic_of(task)
    names = (draw_name(task, reach, topic, rng) for _ in range(rng.randint(1, GROWN)))
    return Task(items, tuple(names))


IN_DEPTH: Mapping[str, Operator] = {
    "constraints": _constraints,
    "deepening": _deepening,
    "concretizing": _concretizing,
    "reasoning": _reasoning,
}

METHODS: Mapping[str, Mapping[str, Operator]] = {
    "evol_instruct": {**IN_DEPTH, "breadth": _breadth},
    "evol_complexity": IN_DEPTH,
    "evol_quality": {
        "helpfulness": _helpful,
        "relevance": _relevant,
        "deepening": _deepening,
        "creativity": _creative,
        "details": _concretizing,
    },
    "self_instruct": {"new": _new},
}
"""Operators of each method, by name; one is drawn at random for each rewrite."""


UNCHANGED = 0.04  # probability that a rewrite is the prompt itself
LEFTOVER = 0.03  # probability that a piece of the template stays in the text
TEMPLATE_MARK = "#rewritten prompt# :"


@dataclass(frozen=True)
class EmbeddedCreator:
    """Rewrites prompts of the embedded language (implements `harness.eva.evolving.Rewriter`)."""

    operators: Mapping[str, Operator] = field(default_factory=lambda: METHODS["evol_instruct"])
    reach: Reach = "topic"

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt` by an operator drawn uniformly, usable or not."""
        draws = random.Random(int(rng.integers(2**63)))
        operator = draws.choice(tuple(self.operators))
        text, task, slip = prompt, lang.parse(prompt), draws.random()
        if task is not None and task.items is not None and slip >= UNCHANGED:
            changed = self.operators[operator](task, self.reach, draws)
            text = lang.render(changed, draws.randrange(lang.BENCHMARK_FRAME))
            if slip < UNCHANGED + LEFTOVER:
                text = f"{TEMPLATE_MARK} {text}"
        reason = why_unusable(text, prompt)
        return Rewrite(None if reason else text, operator, reason)


def embedded_creator(identity: str, reach: Reach) -> EmbeddedCreator:
    """Return the creator for an identity (`<world>/<evolving method>`) and a reach."""
    method = identity.partition("/")[2]
    if method not in METHODS:
        raise HarnessError(
            f"the embedded world has no creator `{identity}`; use one of {', '.join(METHODS)}"
        )
    return EmbeddedCreator(METHODS[method], reach)


def why_unusable(text: str, parent: str) -> str | None:
    """Return `unchanged`, `leftover`, `too long`, `unreadable`, or None for a usable rewrite."""
    if text == parent:
        return "unchanged"
    if "#" in text:
        return "leftover"
    if lang.parse(text) is None:
        return "too long" if lang.parse(text, max_depth=len(text)) else "unreadable"
    return None
