"""Online difficulty filtering: prompts of a middling success rate are trained on.

Kept are prompts with low < c / N < high, others are dropped and replaced.

Source: Bae et al. 2025, arXiv 2504.03380 (0.2 to 0.8). A learned reward counts as a success where
it beats the median (ours).
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from harness.selectors.selector import Context, Group, Selector, rates


class Band(Selector):
    """A band of success rates."""

    screens = True
    view = "beat"

    def __init__(self, low: float = 0.2, high: float = 0.8) -> None:
        self._low, self._high = low, high

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        return [bool(self._low < rate < self._high) for rate in rates(groups, ctx)]

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        found = rates(groups, ctx)
        return found * (1 - found)
