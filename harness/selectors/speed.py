"""SPEED: a few rollouts decide whether the rest are made.

Each of three times as many prompts as are missing is rolled out `screen` times; one whose rewards
agree is dropped, and the others get the rest of their rollouts, all of which are trained on.

Source: Zhang et al. 2025, arXiv 2506.09016; its released code for 4 rollouts to screen. What is
left over is discarded here, where the released code trains on it later, slightly off policy.
"""

from __future__ import annotations

from dataclasses import replace

from harness.selectors.dapo import DAPO
from harness.selectors.selector import Context, Pool, Proposal


class SPEED(DAPO):
    """Screening with few rollouts."""

    def __init__(self, screen: int = 4, factor: int = 3, flat: float = 0.25) -> None:
        super().__init__(factor, flat)
        self._screen = screen

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        return replace(super().propose(pool, k, ctx), rollouts=min(self._screen, ctx.n))
