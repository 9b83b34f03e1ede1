"""MoPPS: a success rate a prompt, believed by a Beta distribution and sampled from it.

Of some candidates those are taken whose sampled success rate lies nearest to a half. Afterwards,
with c successes of N, for the prompts trained on alone,

    alpha <- decay alpha + (1 - decay) + c,      beta <- decay beta + (1 - decay) + N - c

from a prior of (1, 1). No rollout is spent on choosing.

Source: Qu et al. 2025, arXiv 2507.04632; its released code for 16 candidates a prompt and a decay
of 1. A learned reward counts as a success where it beats the median (ours).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.selectors.selector import Context, Group, Pool, Proposal, Selector


class MoPPS(Selector):
    """Model-predictive prompt selection.

    `released` repeats a slip of the released code: with one rollout a prompt the prior is (8, 8).
    """

    view = "beat"
    remembers = ("beliefs",)

    def __init__(
        self,
        candidates: int = 16,
        decay: float = 1.0,
        target: float = 0.5,
        released: bool = False,
    ) -> None:
        self.beliefs: dict[str, list[float]] = {}
        self._candidates, self._decay, self._target = candidates, decay, target
        self._released = released

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        some = pool.some(self._candidates * k, ctx.rng)
        beliefs = np.array([self._of(prompt.prompt_id, ctx.n) for prompt in some])
        near = -((ctx.rng.beta(*beliefs.T) - self._target) ** 2)
        return Proposal.of_best(some, near, k)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        values = []
        for group in groups:
            seen, keep = ctx.view(group.rewards), self._decay
            alpha, beta = self._of(group.prompt.prompt_id, len(seen))
            alpha = keep * alpha + (1 - keep) + float(seen.sum())
            beta = keep * beta + (1 - keep) + float(len(seen) - seen.sum())
            self.beliefs[group.prompt.prompt_id] = [alpha, beta]
            values.append(-((alpha / (alpha + beta) - self._target) ** 2))
        return values

    def _of(self, prompt_id: str, n: int) -> list[float]:
        prior = 8.0 if self._released and n == 1 else 1.0
        return self.beliefs.get(prompt_id, [prior, prior])
