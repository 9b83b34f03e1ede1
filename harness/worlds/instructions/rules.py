"""The reward: the share of a prompt's instructions that an answer follows, and its guards.

Checks alone are hacked within twenty steps of training, by answers such as "Section 1 Section 2"
or "* **". So an answer has no reward at all unless it is a text about its subject:

- it has at least four words,
- one of them begins like a word of the subject,
- from twelve words on, four of five runs of three words are distinct, and so are two of five words,
- it is finished: it ends with a mark other than `,;:-_(`. Without this rule a training teaches, by
  chance, to end within the limit of tokens or never to end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from harness.errors import UserError
from harness.worlds.instructions.kinds import words
from harness.worlds.instructions.tasks import VERSION, Task, read

FEWEST_WORDS = 4
LONG = 12
"""Words from which on repetition is counted."""
DISTINCT_TRIPLES = 0.8
DISTINCT_WORDS = 0.4

STEM = 5
"""Letters of a subject's word with which a word of the answer must begin."""

_UNFINISHED = re.compile(r"[\w,;:(-]\s*\Z")

_EMPTY = frozenset("a an the of in on at to and without about first last new old good".split())
"""Words that are about no subject."""


@cache
def stems(subject: str) -> tuple[str, ...]:
    """Return the beginnings of a subject's own words."""
    own = [word for word in words(subject) if word not in _EMPTY and len(word) > 2]
    return tuple((word.removesuffix("s") if len(word) > 3 else word)[:STEM] for word in own)


def _begins(word: str, stem: str) -> bool:
    """Return whether a word begins with a stem; one of three letters is the word or its plural."""
    return word.startswith(stem) if len(stem) > 3 else word in (stem, f"{stem}s", f"{stem}es")


def distinct(found: Sequence[object]) -> float:
    """Return the share of the words or runs found that are distinct; 1 without any."""
    return len(set(found)) / len(found) if found else 1.0


def is_text(task: Task, answer: str) -> bool:
    """Return whether an answer is a text about its subject (see the module docstring)."""
    found = words(answer)
    if len(found) < FEWEST_WORDS or _UNFINISHED.search(answer):
        return False
    if not any(_begins(word, stem) for word in found for stem in stems(task.subject)):
        return False
    if len(found) < LONG:
        return True
    triples = list(zip(found, found[1:], found[2:], strict=False))
    return distinct(triples) >= DISTINCT_TRIPLES and distinct(found) >= DISTINCT_WORDS


def share_followed(task: Task, answer: str) -> float:
    """Return the share of a task's instructions that an answer follows, 0 if it is not a text."""
    if not is_text(task, answer):
        return 0.0
    return float(np.mean([one.followed(answer) for one in task.instructions]))


def task_of(prompt: str) -> Task:
    """Return the task of a prompt, which must be one whose instructions can be read back."""
    task = read(prompt)
    if task is None:
        shown = re.sub(r"\s+", " ", prompt)[:200]
        raise UserError(
            "a prompt has no instructions that can be checked; give prompts of the world "
            f"`instructions`, not {shown!r}"
        )
    return task


class Rules:
    """The reward `instructions`: the share of instructions followed, from 0 to 1."""

    VERSION = VERSION.rpartition("-")[2]

    def score(self, prompt: str, answers: list[str]) -> list[float]:
        task = task_of(prompt)
        return [share_followed(task, answer) for answer in answers]


RULES = Rules()
