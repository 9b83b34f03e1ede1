"""How tests of the embedded world read its sentences, and compare a share with its expectation."""

from __future__ import annotations

import math
from collections.abc import Callable

from harness.worlds.embedded.language import ITEMS, Task, parse

DOWNSTREAM_ANSWERS: dict[str, Callable[[list[str]], str]] = {
    "musr_ta": lambda x: "yes" if x[-1] in x[:-1] else "no",
    "tqa_gen": lambda x: str(len(x)),
    "wmdp": lambda x: x[2],
    "gsm8k": lambda x: str(int(x[0]) + int(x[1])),
    "gsm_plus": max,
    "mmlu_pro": lambda x: min(x, key=ITEMS.index),
}
"""The answer to a question of each type, worked out from the items in it."""


def read(text: str | None) -> Task:
    """Return the task of a sentence that has one."""
    task = parse(text or "")
    assert task is not None, text
    return task


def assert_share(hits: int, draws: int, expected: float) -> None:
    """Check a share within 4.5 standard errors; draws are seeded, so it always comes out alike."""
    error = math.sqrt(expected * (1 - expected) / draws)
    assert abs(hits / draws - expected) <= 4.5 * error
