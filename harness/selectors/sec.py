"""SEC: categories of prompts are arms of a bandit, paid by the size of the advantages.

    category ~ softmax(Q / tau),      Q <- (1 - eta) Q + eta mean |A|

A the leave-one-out advantage of RLOO. A prompt's category is how long it is: the number of its
words, by powers of two, which every world's prompts have (ours).

Source: Chen et al. 2025, arXiv 2505.14970; its released code for eta and tau. `released` lets the
categories that were not drawn decay to 0 as well, as that code does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.evolving import Prompt
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector


def category(prompt: Prompt) -> str:
    """Return the category of a prompt by its length."""
    return str(len(prompt.prompt.split()).bit_length())


class SEC(Selector):
    """A self-evolving curriculum."""

    remembers = ("worth",)

    def __init__(self, eta: float = 0.5, tau: float = 1.0, released: bool = False) -> None:
        self.worth: dict[str, float] = {}
        self._eta, self._tau, self._released = eta, tau, released

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        left: dict[str, list[Prompt]] = {}
        for prompt in pool.some(len(pool), ctx.rng):
            left.setdefault(category(prompt), []).append(prompt)
        drawn: list[Prompt] = []
        while len(drawn) < k:
            arms = sorted(arm for arm, prompts in left.items() if prompts)
            worth = np.array([self.worth.get(arm, 0.0) for arm in arms]) / self._tau
            chances = np.exp(worth - worth.max())
            arm = arms[int(ctx.rng.choice(len(arms), p=chances / chances.sum()))]
            drawn.append(left[arm].pop())
        return Proposal(
            tuple(drawn), predicted=tuple(self.worth.get(category(p), 0.0) for p in drawn)
        )

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        sizes = []
        for group in groups:
            seen = ctx.view(group.rewards)
            advantages = (seen - seen.mean()) * len(seen) / (len(seen) - 1)
            sizes.append(float(np.abs(advantages).mean()))
        paid: dict[str, list[float]] = {}
        for group, size in zip(groups, sizes, strict=True):
            paid.setdefault(category(group.prompt), []).append(size)
        for arm in {**self.worth, **paid} if self._released else paid:
            gain = float(np.mean(paid[arm])) if arm in paid else 0.0
            self.worth[arm] = (1 - self._eta) * self.worth.get(arm, 0.0) + self._eta * gain
        return sizes
