"""Rewriting instruction prompts by rule, with the paper's operators.

The operators are EvolInstruct's, read for prompts whose parts are known: *constraints* adds an
instruction, *deepening* tightens one (five bullet points for four) or, if none can be tightened,
does as *reasoning*, *concretizing* gives the text another form, *reasoning* puts a neighboring kind
in the place of one, and *breadth* asks for another subject and a neighboring kind. Quality's
*loosening* makes one easier, leaves one out or, if there is one only, changes the subject. Only
subjects and kinds of the training prompts occur.

`by_policy` lets the base policy itself write the rewrite; most of what it writes cannot be checked,
which is counted.

Source: paper appendix H.1 (EvolInstruct, EvolQuality, EvolComplexity, SelfInstruct).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.eva.evolving import Rewrite
from harness.worlds.instructions.kinds import KINDS, SEEN, Instruction, Value, compatible
from harness.worlds.instructions.tasks import (
    FORMS,
    MOST,
    Task,
    draw,
    draw_instruction,
    read,
    subjects_of,
)

if TYPE_CHECKING:
    import numpy as np

Operator = Callable[[Task, random.Random], Task]


def _add(task: Task, rng: random.Random) -> Task:
    fitting = [kind for kind in SEEN if compatible(kind, task.kinds)]
    if len(task.instructions) >= MOST or not fitting:
        return _tighten(task, rng)
    return task.with_instruction(draw_instruction(rng, rng.choice(fitting)))


def _tighten(task: Task, rng: random.Random) -> Task:
    harder = _changed(task, rng, lambda one: KINDS[one.kind].harder(one.value))
    return harder or _neighbor(task, rng)


def _loosen(task: Task, rng: random.Random) -> Task:
    easier = _changed(task, rng, lambda one: KINDS[one.kind].easier(one.value))
    if easier is not None:
        return easier
    if len(task.instructions) == 1:
        return replace(task, subject=_subject(task, rng))
    kept = list(task.instructions)
    del kept[rng.randrange(len(kept))]
    return replace(task, instructions=tuple(kept))


def _vary(task: Task, rng: random.Random) -> Task:
    """Put a nearby value in the place of an instruction's, or change the subject."""
    near = _changed(task, rng, lambda one: KINDS[one.kind].near(one.value))
    return near or replace(task, subject=_subject(task, rng))


def _neighbor(task: Task, rng: random.Random) -> Task:
    at = rng.randrange(len(task.instructions))
    others = [one.kind for i, one in enumerate(task.instructions) if i != at]
    own = task.instructions[at].kind
    family = [k for k in SEEN if KINDS[k].family == KINDS[own].family and k != own]
    fitting = [kind for kind in family if compatible(kind, others)]
    if not fitting:
        return replace(task, subject=_subject(task, rng))
    return task.with_instruction(draw_instruction(rng, rng.choice(fitting)), at)


def _concretize(task: Task, rng: random.Random) -> Task:
    return replace(task, form=rng.choice([form for form in FORMS if form != task.form]))


def _breadth(task: Task, rng: random.Random) -> Task:
    return replace(_neighbor(task, rng), subject=_subject(task, rng))


def _new(task: Task, rng: random.Random) -> Task:
    """Draw a new task that has one of the task's kinds."""
    kept = rng.choice(task.kinds)
    while True:
        made = draw(rng, subjects_of("training"), SEEN)
        others = made.kinds[1:]
        if compatible(kept, others):
            return made.with_instruction(draw_instruction(rng, kept), 0)


def _subject(task: Task, rng: random.Random) -> str:
    return rng.choice([one for one in subjects_of("training") if one != task.subject])


def _changed(
    task: Task, rng: random.Random, values: Callable[[Instruction], tuple[Value, ...]]
) -> Task | None:
    """Return the task with another value in one of its instructions; None if there is none."""
    can = [i for i, one in enumerate(task.instructions) if values(one)]
    if not can:
        return None
    at = rng.choice(can)
    one = task.instructions[at]
    return task.with_instruction(replace(one, value=rng.choice(values(one))), at)


IN_DEPTH: Mapping[str, Operator] = {
    "constraints": _add,
    "deepening": _tighten,
    "concretizing": _concretize,
    "reasoning": _neighbor,
}

METHODS: Mapping[str, Mapping[str, Operator]] = {
    "evol_instruct": {**IN_DEPTH, "breadth": _breadth},
    "evol_complexity": IN_DEPTH,
    "evol_quality": {
        "loosening": _loosen,
        "details": _vary,
        "creativity": _breadth,
        "concretizing": _concretize,
    },
    "self_instruct": {"new": _new},
}
"""Operators of each method, by name; one is drawn at random for each rewrite."""

BY_POLICY = "by_policy"


@dataclass(frozen=True)
class RuleCreator:
    """Rewrites prompts by rule (implements `harness.eva.evolving.Rewriter`)."""

    operators: Mapping[str, Operator]

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        draws = random.Random(int(rng.integers(2**63)))
        task = read(prompt)
        if task is None:
            return Rewrite(None, "none", "unreadable")
        name = draws.choice(list(self.operators))
        text = str(self.operators[name](task, draws))
        return _judged(text, prompt, name)


ASK = """Here are requests, each with a variation that asks for something a little different.

Request: Say what can go wrong with robots. \
Write it as 5 bullet points that begin with an asterisk, one to a line. Write 30 words or more.
Variation: Say what can go wrong with robots. Use 2 paragraphs with *** between them. \
Write 30 words or more.

Request: Write a short scene about a mountain hike. Ask the reader at least 3 questions.
Variation: Write a short scene about a mountain hike. Write it without a single comma.

Request: Write a song for a friend about a forest fire. Use the word "little" at least twice.
Variation: Write a diary entry for a beginner about a forest fire. \
Use the word "little" at least twice.

Request: Write an email for your neighbors about an office printer. \
Put 1 or more phrases between asterisks, such as *this part*.
Variation: Write an email for your neighbors about a friendly dragon. \
Give it a title in double angle brackets, such as <<title>>.

Request: {prompt}
Variation:"""
"""A plain text to continue: asked in a chat, the policy answers a request and never varies it."""

NEW_TOKENS = 64


@dataclass(frozen=True)
class PolicyCreator:
    """Lets a language model write the rewrite (implements `harness.eva.evolving.Rewriter`)."""

    policy: Path

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        from harness.models.policy import complete_line

        text = complete_line(
            self.policy,
            ASK.format(prompt=prompt),
            temperature=0.7,
            max_new_tokens=NEW_TOKENS,
            seed=int(rng.integers(2**31)),
        )
        return _judged(text, prompt, BY_POLICY)


def why_unusable(text: str, parent: str, _told: object = ()) -> str | None:
    """Return why a rewrite is unusable, or None: it must be another prompt that can be checked."""
    if text == parent:
        return "unchanged"
    task = read(text)
    if task is None or task.subject not in subjects_of("training"):
        return "unreadable"
    return None if all(kind in SEEN for kind in task.kinds) else "unreadable"


def _judged(text: str, parent: str, method: str) -> Rewrite:
    reason = why_unusable(text, parent)
    return Rewrite(None, method, reason, text) if reason else Rewrite(text, method)
