"""PCL: a value model says how hard a prompt is, for one forward pass and no rollout.

Of several times as many candidates those are taken whose predicted value lies nearest to tau. The
prediction is a linear function w of what the policy makes of the prompt, phi, and after the step it
is moved towards the mean reward y of the group (normalised least mean squares):

    w <- w + rate (y - w phi) phi / (1 + |phi|^2)

so that it lags one step behind the policy.

Source: Gao et al. 2025, arXiv 2510.01135 (four times as many candidates, tau a half). Its value
model is a whole network; a linear head is ours, and so is that rewards are seen as ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.informativeness import Floats
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, rates


class PCL(Selector):
    """Prompt curriculum learning."""

    view = "rank"
    remembers = ("weights",)

    def __init__(self, factor: int = 4, tau: float = 0.5, rate: float = 0.5) -> None:
        self.weights: list[float] = []
        self._factor, self._tau, self._rate = factor, tau, rate

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        some = pool.some(self._factor * k, ctx.rng)
        near = -np.abs(self._predicted(ctx.embed(some)) - self._tau)
        return Proposal.of_best(some, near, k)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        read = ctx.embed([group.prompt for group in groups])
        weights = np.array(self.weights or np.zeros(read.shape[1]))
        targets = rates(groups, ctx)
        for phi, target in zip(read, targets, strict=True):
            weights = weights + self._rate * (target - weights @ phi) * phi / (1 + phi @ phi)
        self.weights = weights.tolist()
        return -np.abs(targets - self._tau)

    def _predicted(self, read: Floats) -> Floats:
        return np.asarray(read @ np.array(self.weights or np.zeros(read.shape[1])))
