"""GRESO: a prompt whose rewards agreed time after time is skipped, mostly, before its rollouts.

z is how often in a row a prompt was all right (a success rate of 0.98 or more) or all wrong (0.11
or less). It is skipped with probability 1 - max(p^z, 0.01), p being one of two chances, for easy
and for hard prompts, that start at a half. After the first pass over the pool, each moves by 0.01 a
step within 0.05 and 0.95: down where the share of such prompts among those rolled out is above its
target (8.3% easy, 16.7% hard), else up. What is rolled out goes through DAPO's filter.

Source: Zheng et al. 2025, arXiv 2506.02177; its released code for the numbers. A learned reward
counts as a success where it beats the median (ours).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.selectors.dapo import DAPO
from harness.selectors.selector import Context, Group, Pool, Proposal, rates, spreads

EASY, HARD = "easy", "hard"
TARGETS = {EASY: 0.083, HARD: 0.167}


class GRESO(DAPO):
    """Skipping before rollouts."""

    view = "beat"
    remembers = ("streaks", "chances", "rolled", "epsilon")

    def __init__(self, least: float = 0.01) -> None:
        super().__init__(factor=1, flat=0.0)
        self.streaks: dict[str, list[int]] = {}
        self.chances = {EASY: 0.5, HARD: 0.5}
        self.rolled = 0
        self._least = least
        self._pool = 0

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        self._pool = len(pool)
        shown = pool.some(len(pool), ctx.rng)
        taken = [p for p in shown if ctx.rng.random() >= self.skipped(p.prompt_id)]
        rolled = set(taken)
        rest = [prompt for prompt in shown if prompt not in rolled]
        return Proposal(tuple([*taken, *rest][:k]))

    def skipped(self, prompt_id: str) -> float:
        """Return the probability that a prompt is skipped."""
        easy, hard = self.streaks.get(prompt_id, [0, 0])
        if not easy and not hard:
            return 0.0
        chance = self.chances[EASY if easy else HARD]
        return 1.0 - max(chance ** max(easy, hard), self._least)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        right = rates(groups, ctx)
        found = {EASY: right >= 0.98, HARD: right <= 0.11}
        for i, group in enumerate(groups):
            easy, hard = self.streaks.get(group.prompt.prompt_id, [0, 0])
            again = [easy + 1 if found[EASY][i] else 0, hard + 1 if found[HARD][i] else 0]
            self.streaks[group.prompt.prompt_id] = again
        self.rolled += len(groups)
        if self.rolled > self._pool:
            for kind, target in TARGETS.items():
                step = -0.01 if np.mean(found[kind]) > target else 0.01
                self.chances[kind] = float(np.clip(self.chances[kind] + step, 0.05, 0.95))
        return spreads(groups, ctx)
