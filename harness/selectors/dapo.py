"""DAPO's filter: prompts are rolled out, and those whose rewards all agree are dropped.

Three times as many prompts as are needed are rolled out at a time, until enough are kept; what is
too many is discarded. All of it is paid for. With a learned reward no two answers agree exactly, so
a prompt is flat where the standard deviation of its rewards is at most epsilon, which is set once:
the quantile `flat` of those of the first prompts seen (ours). `flat: 0` drops exact ties alone.

Source: Yu et al. 2025, arXiv 2503.14476; its released code for the factor of 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, spreads


class DAPO(Selector):
    """Dynamic sampling."""

    screens = True
    remembers: ClassVar[tuple[str, ...]] = ("epsilon",)

    def __init__(self, factor: int = 3, flat: float = 0.25) -> None:
        self.epsilon: float | None = None
        self._factor, self._flat = factor, flat

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        return Proposal(tuple(pool.some(self._factor * ctx.k, ctx.rng)))

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        found = spreads(groups, ctx)
        if self.epsilon is None:
            self.epsilon = float(np.quantile(found, self._flat)) if self._flat else 0.0
        return [bool(spread > self.epsilon) for spread in found]

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return spreads(groups, ctx)
