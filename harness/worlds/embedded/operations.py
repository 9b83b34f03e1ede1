"""The twelve skills of the embedded world: operations on a list of letters and digits.

Each operation is a total function on tuples of items, belongs to one of MT-Bench's eight
categories (which it stands for), and has four phrasings. The first two are everyday wordings, the
third is one the creator adds to them, and the fourth occurs in benchmarks only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LETTERS = tuple("abcdefghij")
DIGITS = tuple("0123456789")
ITEMS = DIGITS + LETTERS
"""All items, in the order that sorting uses: digits before letters."""

CATEGORIES = (
    "writing",
    "roleplay",
    "extraction",
    "reasoning",
    "math",
    "coding",
    "stem",
    "humanities",
)
"""The eight categories of MT-Bench, in its order."""

BENCHMARK_PHRASE = 3
"""Index of the phrasing that only benchmarks (and demonstrations) use: the last."""

_RANK = {item: rank for rank, item in enumerate(ITEMS)}
_NEXT = {
    **dict(zip(DIGITS, DIGITS[1:] + DIGITS[:1], strict=True)),
    **dict(zip(LETTERS, LETTERS[1:] + LETTERS[:1], strict=True)),
}

Sequence = tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """One skill: what it does to a list and how it is asked for."""

    name: str
    category: str
    apply: Callable[[Sequence], Sequence]
    phrases: tuple[str, str, str, str]


def _swap_ends(items: Sequence) -> Sequence:
    return items if len(items) < 2 else (items[-1], *items[1:-1], items[0])


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "double_last",
        "writing",
        lambda s: s + s[-1:],
        ("repeat the last item", "double the ending", "echo the tail", "say the end twice"),
    ),
    Operation(
        "swap",
        "roleplay",
        _swap_ends,
        ("swap the ends", "exchange both ends", "switch the outer items", "trade first and last"),
    ),
    Operation(
        "keep_letters",
        "extraction",
        lambda s: tuple(i for i in s if i in LETTERS),
        ("keep the letters", "drop the digits", "retain only letters", "let letters remain"),
    ),
    Operation(
        "keep_digits",
        "extraction",
        lambda s: tuple(i for i in s if i in DIGITS),
        ("keep the digits", "drop the letters", "retain only digits", "let digits remain"),
    ),
    Operation(
        "sort_up",
        "reasoning",
        lambda s: tuple(sorted(s, key=_RANK.__getitem__)),
        ("sort it", "put it in order", "arrange it ascending", "rank it upwards"),
    ),
    Operation(
        "sort_down",
        "reasoning",
        lambda s: tuple(sorted(s, key=_RANK.__getitem__, reverse=True)),
        ("sort it backwards", "put it in falling order", "arrange it descending", "rank it down"),
    ),
    Operation(
        "successor",
        "math",
        lambda s: tuple(_NEXT[i] for i in s),
        ("advance each item", "add one to each", "replace each by its successor", "bump it all"),
    ),
    Operation(
        "reverse",
        "coding",
        lambda s: s[::-1],
        ("reverse it", "flip it", "turn it around", "mirror the order"),
    ),
    Operation(
        "rotate",
        "coding",
        lambda s: s[1:] + s[:1],
        ("rotate it", "move the first item last", "cycle it once", "shift it left"),
    ),
    Operation(
        "every_other",
        "stem",
        lambda s: s[::2],
        ("take every other item", "keep odd places", "skip alternate items", "thin it out"),
    ),
    Operation(
        "drop_first",
        "humanities",
        lambda s: s[1:],
        ("drop the first item", "remove the head", "cut the front", "lose the start"),
    ),
    Operation(
        "first_three",
        "humanities",
        lambda s: s[:3],
        ("keep the first three", "take three items", "shorten it to three", "cap it at three"),
    ),
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}
NAMES = tuple(BY_NAME)


def compute(names: tuple[str, ...], items: Sequence) -> Sequence:
    """Apply the named operations to `items`, first to last.

    Raises:
        KeyError: if a name is not an operation.
    """
    for name in names:
        items = BY_NAME[name].apply(items)
    return items
