"""AdaRFT: prompts as hard as the policy can manage, by a target that follows its reward.

Every prompt has a difficulty d from 0 to 100. A step takes the prompts nearest to the target T, and
by the mean reward r of the step, from 0 to 1,

    T <- clip(T + 50 tanh(2 (r - 0.5)), 0, 100),      T = 0 at first

Here d is 100 less the percentile of a prompt's mean reward under the policy at the start, whose
rollouts are paid for, and rewards are seen as ranks; rewrites take their parent's d. A prompt
is not trained on again before the others were (`released`: the nearest ones again and again, as the
released sampler does until T moves).

Source: Shi et al. 2025, arXiv 2504.05520; its released code for the numbers. The labels are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, rates


class AdaRFT(Selector):
    """An adaptive target of difficulty."""

    view = "rank"
    remembers = ("target", "difficulty", "trained")

    def __init__(self, released: bool = False) -> None:
        self.target = 0.0
        self.difficulty: dict[str, float] = {}
        self.trained: dict[str, int] = {}
        self._released = released

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        if not self.difficulty:
            self._label(ctx.roll_out(list(pool), ctx.n, "screen"))
        # What is as near comes in a shuffled order.
        near = sorted(pool.some(len(pool), ctx.rng), key=self._distance)
        return Proposal(
            tuple(near[:k]), predicted=tuple(-self._distance(prompt)[1] for prompt in near[:k])
        )

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        mean = float(np.mean(rates(groups, ctx)))
        self.target = float(np.clip(self.target + 50 * np.tanh(2 * (mean - 0.5)), 0, 100))
        for group in groups:
            name = group.prompt.prompt_id
            self.trained[name] = self.trained.get(name, 0) + 1
        return [-self._distance(group.prompt)[1] for group in groups]

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        for child in children:
            parent = str(child.parent_id)
            self.difficulty[child.prompt_id] = self.difficulty.get(parent, 50.0)
        return inherited

    def _label(self, groups: Sequence[Group]) -> None:
        means = np.array([group.rewards.mean() for group in groups])
        for group, mean in zip(groups, means, strict=True):
            below = (np.mean(means < mean) + np.mean(means <= mean)) / 2
            self.difficulty[group.prompt.prompt_id] = 100.0 * (1.0 - float(below))

    def _distance(self, prompt: Prompt) -> tuple[int, float]:
        far = abs(self.difficulty[prompt.prompt_id] - self.target)
        return (0 if self._released else self.trained.get(prompt.prompt_id, 0)), far
