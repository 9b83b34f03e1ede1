"""SFL: half of a mini-batch from a buffer of the most learnable prompts, refreshed now and then.

Every `every` steps, `share` of the pool is rolled out, and of these the most learnable `top` are
the buffer; learnability is the variance of the rewards, p (1 - p) where they are 0 and 1.

Source: Rutherford et al. 2024, arXiv 2408.15099; its released code for half of a batch, 50 updates
and the best 1,000 of 5 x 5,000 (MiniGrid).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, best


class SFL(Selector):
    """Sampling for learnability."""

    remembers = ("learnable",)

    def __init__(self, every: int = 50, share: float = 0.5, top: float = 0.25) -> None:
        self.learnable: list[str] = []
        self._every, self._share, self._top = every, share, top

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        if (ctx.step - 1) % self._every == 0:
            some = pool.some(max(k, round(self._share * len(pool))), ctx.rng)
            found = self.observe(ctx.roll_out(some, ctx.n, "screen"), ctx)
            chosen = best(found, max(k // 2, round(self._top * len(some))))
            self.learnable = [some[i].prompt_id for i in chosen]
        held = set(self.learnable)
        waiting = [prompt for prompt in pool if prompt.prompt_id in held]
        drawn = ctx.rng.choice(len(waiting), size=min(k // 2, len(waiting)), replace=False)
        half = [waiting[i] for i in drawn]
        rest = [prompt for prompt in pool.some(len(pool), ctx.rng) if prompt not in half]
        return Proposal((*half, *rest[: k - len(half)]))

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return [float(np.var(ctx.view(group.rewards))) for group in groups]
