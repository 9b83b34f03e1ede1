"""Numbers and times as text, and terminal colors for words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from harness.foreign import printable

if TYPE_CHECKING:
    from rich.text import Text

Say = Callable[[str], None]
"""Callback for a message to the user."""


def ignore(*_: object) -> None:
    """Ignore messages or progress."""


def duration(seconds: float) -> str:
    """Format a duration for people: `20 s`, `6 min`, `3.5 h`."""
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def time_left(seconds: float | None, least: float) -> str:
    """Format what is left of a run: `about 6 min left`, or the least where the rest is unknown."""
    if seconds is not None:
        return f"about {duration(seconds)} left"
    return f"at least {duration(least)} left" if least >= 1.0 else "time left unknown"


def counted(number: int, noun: str) -> str:
    """Format a count: `1 stage`, `2 stages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted_range(numbers: Collection[int], noun: str) -> str:
    """Format the least and the largest of some counts: `3 to 5 seeds`, or `3 seeds` if equal."""
    few, most = min(numbers), max(numbers)
    return counted(most, noun) if few == most else f"{few} to {most} {noun}s"


def seeds_text(seeds: Sequence[int]) -> str:
    """Format distinct ascending seeds as typed: `0-2` for a range, `0,2` otherwise."""
    if len(seeds) > 1 and seeds[-1] - seeds[0] + 1 == len(seeds):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(str(seed) for seed in seeds)


def setting_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(setting_text, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


VERDICT_STYLES = {
    "supported": "bold green",
    "contradicted": "bold red",
    "inconclusive": "yellow",
    "inadmissible": "magenta",
}
"""Colors of verdicts on a color terminal."""


def colored(text: str, style: str = "") -> Text:
    """Return text with its verdicts colored."""
    from rich.text import Text

    shown = Text(printable(text), style=style)
    for word, colour in VERDICT_STYLES.items():
        shown.highlight_words([word, word.capitalize()], colour)
    return shown
