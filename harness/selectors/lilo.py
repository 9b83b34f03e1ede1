"""LILO: the most learnable of several times as many prompts, all of them rolled out.

Learnability is the variance of a prompt's rewards, which is p (1 - p) where they are 0 and 1. The
rollouts that a prompt was chosen by are those that it is trained on.

`by` makes controls of it, at the same cost: the `hardest` and the `easiest` prompts, by the mean
reward, and the `dead` ones, of the least variance.

Source: Foster et al. 2025, arXiv 2502.12272 (four times as many).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.informativeness import Floats
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, best

BY: dict[str, Callable[[Floats], float]] = {
    "learnable": lambda rewards: float(np.var(rewards)),
    "dead": lambda rewards: -float(np.var(rewards)),
    "hardest": lambda rewards: -float(np.mean(rewards)),
    "easiest": lambda rewards: float(np.mean(rewards)),
}


class LILO(Selector):
    """Learnability on rollouts that are paid for."""

    screens = True

    def __init__(self, factor: int = 4, by: str = "learnable") -> None:
        self._factor, self._by = factor, BY[by]

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        return Proposal(tuple(pool.some(self._factor * k, ctx.rng)))

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        chosen = set(best(self.observe(groups, ctx), k))
        return [i in chosen for i in range(len(groups))]

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return [self._by(ctx.view(group.rewards)) for group in groups]
