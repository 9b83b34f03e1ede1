"""Axes of the gains that the page draws in SVG, in percent of the width, so that they stretch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from harness.registry.claims import Compare, Measurable
from harness.report.model import Estimate
from harness.report.view import signed

MARGIN = 0.06
"""Padding at either end of an axis, as a fraction of its span."""

MOST_TICKS = 5


class Axis(NamedTuple):
    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def at(self, value: float) -> float:
        """Return a value's position, in percent of the width; beyond an end, that of the end."""
        inside = min(max(value, self.low), self.high)
        return round(100.0 * (inside - self.low) / (self.high - self.low), 2)

    def label(self, tick: float) -> str:
        return "0" if tick == 0.0 else signed(tick, self.decimals)


def axis_of(gains: Iterable[Estimate | None]) -> Axis | None:
    """Return an axis that holds zero and every interval, or None if there is none."""
    known = [end for it in gains if it is not None for end in (it.low, it.high)]
    if not known:
        return None
    low, high = min(0.0, *known), max(0.0, *known)
    if low == high:
        low, high = low - 1.0, high + 1.0
    free = MARGIN * (high - low)
    low, high = low - free, high + free
    # The smallest step of 1, 2 or 5 times a power of ten that gives at most MOST_TICKS intervals.
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    step = next(k * power for k in (1, 2, 5, 10) if high - low <= k * power * MOST_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = tuple(round(k * step, 10) + 0.0 for k in range(first, last + 1))
    return Axis(low, high, ticks, max(0, -math.floor(math.log10(step))))


def described(gain: Estimate | None, paper: float | None, decimals: int) -> str:
    """Say what is drawn, for those who do not see it."""
    ours = "no gain of ours"
    if gain is not None:
        mean, low, high = (signed(end, decimals) for end in (gain.mean, gain.low, gain.high))
        ours = f"our gain {mean}, 95% from {low} to {high}"
    sign = None if paper is None else (paper > 0) - (paper < 0)
    side = {None: "not printed", 1: "above zero", 0: "zero", -1: "below zero"}[sign]
    return f"{ours}; the paper's is {side}"


def holding(test: Measurable, margin: float | None) -> tuple[float, float]:
    """Return the ends of where a claim holds; a margin lets rows be that far apart."""
    if isinstance(test, Compare) and test.op == "within":
        return -(margin or 0.0), margin or 0.0
    return (-(margin or 0.0), math.inf) if test.sign > 0 else (-math.inf, 0.0)
