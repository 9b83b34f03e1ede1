"""The language of instructions: tasks, how they are put into words, and how words are read back.

A task is a list of items and one to four operations on it. `render` writes it as a sentence in
one of five frames, `parse` reads any such sentence. A follow-up ("now reverse it") has operations
and no list of its own. Parsing is what lets the creator rewrite *text* and lets the oracle mark
answers to prompts that nobody stored a solution for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.worlds.embedded.operations import ITEMS, OPERATIONS, Sequence, compute

MAX_DEPTH = 4
"""Most operations in one task."""

EMPTY = "nothing"
"""How an empty list is written."""

FRAMES: tuple[tuple[str, str], ...] = (
    ("take {items} and {ops}", " , then "),
    ("{ops} : {items}", " , then "),
    ("please {ops} for {items}", " and then "),
    ("here is {items} ; {ops} , thanks", " , next "),
    ("given {items} we want you to {ops}", " ; "),
)
"""Sentence patterns: the template and what joins its operations."""

BENCHMARK_FRAME = 4
"""Index of the frame that only benchmarks (and demonstrations) use: the last."""

FOLLOW_UPS = ("now {ops}", "next {ops} please")
"""Patterns of a second turn."""

REVISE = "improve your answer"
"""What a second turn says to ask for a revision of the first answer (paper, App. H.2.1)."""

_FILLERS = frozenset(
    "take and then please for here is thanks next given we want you to now , ; :".split()
)


@dataclass(frozen=True)
class Task:
    """What a prompt asks for: `operations` (by name, in order) on `items` (None in a follow-up)."""

    items: Sequence | None
    operations: tuple[str, ...]

    def answer(self, previous: Sequence = ()) -> Sequence:
        """Return the correct list; a follow-up works on `previous`, the answer before it."""
        return compute(self.operations, self.items if self.items is not None else previous)


def _phrase_table() -> dict[tuple[str, ...], str]:
    table: dict[tuple[str, ...], str] = {}
    for operation in OPERATIONS:
        for phrase in operation.phrases:
            words = tuple(phrase.split())
            if words in table:
                raise ValueError(f"phrase {phrase!r} names two operations")
            table[words] = operation.name
    return table


_PHRASES = _phrase_table()
_LONGEST = max(map(len, _PHRASES))
_ITEM_SET = frozenset(ITEMS)


def write_list(items: Sequence) -> str:
    """Write a list of items as text (`nothing` when it is empty)."""
    return " ".join(items) if items else EMPTY


def read_list(text: str) -> Sequence | None:
    """Read a list of items, or None when the text is anything else."""
    words = tuple(text.split())
    if words == (EMPTY,):
        return ()
    return words if words and all(word in _ITEM_SET for word in words) else None


def render(task: Task, frame: int, phrases: tuple[int, ...]) -> str:
    """Write a task as a sentence.

    Args:
        task: the task; without items it is written as a follow-up.
        frame: index into `FRAMES` (or, for a follow-up, `FOLLOW_UPS`).
        phrases: for each operation, which of its four phrasings.
    """
    by_name = {operation.name: operation for operation in OPERATIONS}
    worded = [by_name[n].phrases[p] for n, p in zip(task.operations, phrases, strict=True)]
    if task.items is None:
        return FOLLOW_UPS[frame].format(ops=" , then ".join(worded))
    template, joint = FRAMES[frame]
    return template.format(items=write_list(task.items), ops=joint.join(worded))


def parse(prompt: str, max_depth: int = MAX_DEPTH) -> Task | None:
    """Read a prompt back into a task, or None when it is not a sentence of the language."""
    words = prompt.split()
    items: list[str] = []
    operations: list[str] = []
    closed = False
    position = 0
    while position < len(words):
        word = words[position]
        if word in _ITEM_SET:
            if closed:
                return None
            items.append(word)
            position += 1
            continue
        closed = bool(items)
        for length in range(min(_LONGEST, len(words) - position), 0, -1):
            name = _PHRASES.get(tuple(words[position : position + length]))
            if name is not None:
                operations.append(name)
                position += length
                break
        else:
            if word not in _FILLERS:
                return None
            position += 1
    if not 1 <= len(operations) <= max_depth:
        return None
    return Task(tuple(items) if items else None, tuple(operations))


def draw_items(rng: random.Random, shortest: int, longest: int) -> Sequence:
    """Draw a list of `shortest` to `longest` items, each uniform over letters and digits."""
    return tuple(rng.choices(ITEMS, k=rng.randint(shortest, longest)))


def vocabulary() -> list[str]:
    """Return every word of the language, sorted."""
    words = set(ITEMS) | set(_FILLERS) | {EMPTY} | set(REVISE.split())
    for phrase in _PHRASES:
        words.update(phrase)
    return sorted(words)
