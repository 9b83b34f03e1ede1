"""Numbers and times in words, and the colours of words on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def duration(seconds: float) -> str:
    """Return a time a person can plan with: `20 s`, `6 min`, `3.5 h`."""
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 stage`, `2 stages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seeds_text(seeds: Sequence[int]) -> str:
    """Return distinct ascending seeds as they are typed: `0-2` for a range, `0,2` otherwise."""
    if len(seeds) > 1 and seeds[-1] - seeds[0] + 1 == len(seeds):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(str(seed) for seed in seeds)


VERDICT_STYLES = {
    "supported": "bold green",
    "contradicted": "bold red",
    "inconclusive": "yellow",
    "underpowered": "yellow",
    "inadmissible": "magenta",
}
"""The colour of a verdict where there is a terminal with colours."""


def coloured(text: str, style: str = "") -> Text:
    """Return a text whose verdicts have their colours."""
    from rich.text import Text

    shown = Text(text, style=style)
    for word, colour in VERDICT_STYLES.items():
        shown.highlight_words([word, word.capitalize()], colour)
    return shown
