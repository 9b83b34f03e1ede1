"""CurES: which prompts are drawn, and how many rollouts each gets, both by a success rate.

Every `period` steps a few rollouts of each of the next prompts say what its success rate p is, a
Beta belief from (1, 1) that training goes on with. Prompts are drawn with

    rho(x) ~ exp(sqrt(p (1 - p)) / tau)

and the rollouts of a step are shared out in proportion to sqrt(p (1 - p)), which is what the
paper's sigma is where the gradients of right and wrong answers are as long. Here a share is a whole
number of groups of N rollouts, at least one (ours: a step trains on groups of one size).

Source: Zeng et al. 2025, arXiv 2510.01037 (4 rollouts, 10 steps); tau is ours, the paper's was not
found. `released` draws as the released code does: tau is 100 (a + 1), a the prompts accepted, which
is as good as even.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.informativeness import Floats
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector


class CurES(Selector):
    """Draws and quotas by the success rate."""

    view = "beat"
    remembers = ("beliefs", "subset")

    def __init__(
        self,
        probes: int = 4,
        period: int = 10,
        tau: float = 0.1,
        distinct: float = 0.5,
        released: bool = False,
    ) -> None:
        self.beliefs: dict[str, list[float]] = {}
        self.subset: list[str] = []
        self._probes, self._period, self._tau = probes, period, tau
        self._distinct, self._released = distinct, released

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        if (ctx.step - 1) % self._period == 0:
            some = pool.some(self._period * k, ctx.rng)
            self.beliefs = {}
            self.observe(ctx.roll_out(some, self._probes, "screen"), ctx)
            self.subset = [prompt.prompt_id for prompt in some]
        held = set(self.subset)
        waiting = [prompt for prompt in pool if prompt.prompt_id in held]
        sigma = self._sigma([prompt.prompt_id for prompt in waiting])
        accepted = ((ctx.step - 1) % self._period) * k
        tau = 100.0 * (accepted + 1) if self._released else self._tau
        rho = np.exp(sigma / tau)
        size = min(max(1, round(self._distinct * k)), len(waiting))
        drawn = ctx.rng.choice(len(waiting), size=size, replace=False, p=rho / rho.sum())
        quotas = shared_out(k, sigma[drawn])
        prompts = [waiting[i] for i, times in zip(drawn, quotas, strict=True) for _ in range(times)]
        return Proposal(tuple(prompts))

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        for group in groups:
            seen = ctx.view(group.rewards)
            alpha, beta = self.beliefs.get(group.prompt.prompt_id, [1.0, 1.0])
            right = float(seen.sum())
            self.beliefs[group.prompt.prompt_id] = [alpha + right, beta + len(seen) - right]
        return self._sigma([group.prompt.prompt_id for group in groups])

    def _sigma(self, names: Sequence[str]) -> Floats:
        beliefs = np.array([self.beliefs.get(name, [1.0, 1.0]) for name in names])
        rates = beliefs[:, 0] / beliefs.sum(axis=1)
        return np.asarray(np.sqrt(rates * (1 - rates)))


def shared_out(count: int, weights: Floats) -> list[int]:
    """Share a count out by weights, at least one each: the largest remainders get what is left."""
    shares = (count - len(weights)) * weights / weights.sum()
    whole = np.floor(shares).astype(int)
    left = count - len(weights) - int(whole.sum())
    whole[np.argsort(-(shares - whole), kind="stable")[:left]] += 1
    return [1 + int(times) for times in whole]
