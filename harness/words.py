"""Numbers and times in words."""

from __future__ import annotations


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
