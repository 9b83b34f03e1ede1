"""Selectors that decide by the step's rollouts, and random and oracle controls.

A learned reward counts as a success if it is above the median (ours).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats
from harness.selectors.eva import Value
from harness.selectors.selector import (
    Context,
    Group,
    Pool,
    Proposal,
    Selector,
    best,
    rates,
    spreads,
)


class Uniform(Selector):
    """Draws distinct prompts uniformly; another `stream` draws others, to measure chance."""

    def __init__(self, stream: int = 0) -> None:
        self._stream = stream

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        rng = ctx.rng
        if self._stream:
            rng = np.random.default_rng([self._stream, int(rng.integers(2**32))])
        return Proposal(tuple(pool.some(k, rng)))


class Ranked(Selector):
    """Takes the prompts with the largest value, ties at random: the oracle's choice, a control."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        shown = pool.some(len(pool), ctx.rng)
        chosen = best(self._value([prompt.prompt for prompt in shown]), k)
        return Proposal(tuple(shown[i] for i in chosen))

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return self._value([group.prompt.prompt for group in groups])

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        return self._value([child.prompt for child in children])


class DAPO(Selector):
    """Dynamic sampling: rolls out prompts and drops those whose rewards all agree.

    Rolls out `factor` times a mini-batch of prompts at a time until enough are kept; the surplus is
    discarded. All rollouts count toward the cost. Learned rewards never agree exactly, so a prompt
    is dropped if the standard deviation of its rewards is at most epsilon, set once to the quantile
    `flat` over the first prompts seen (ours). `flat: 0` drops only exact ties.

    Source: Yu et al. 2025, arXiv 2503.14476; its released code for the factor of 3.
    """

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


class SPEED(DAPO):
    """Decides by a few rollouts whether to make the rest.

    Rolls out `factor` times a mini-batch of prompts, `screen` times each, and drops those whose
    rewards agree. The others get the rest of their rollouts and are trained on all of them.

    Source: Zhang et al. 2025, arXiv 2506.09016; its released code for 4 screening rollouts. Surplus
    prompts are discarded here; the released code trains on them later, slightly off-policy.
    """

    def __init__(self, screen: int = 4, factor: int = 3, flat: float = 0.25) -> None:
        super().__init__(factor, flat)
        self._screen = screen

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        return replace(super().propose(pool, k, ctx), rollouts=min(self._screen, ctx.n))


class Band(Selector):
    """Online difficulty filtering: keeps prompts whose success rate is within a band.

    Source: Bae et al. 2025, arXiv 2504.03380 (0.2 to 0.8).
    """

    screens = True
    view = "beat"

    def __init__(self, low: float = 0.2, high: float = 0.8) -> None:
        self._low, self._high = low, high

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        return [bool(self._low < rate < self._high) for rate in rates(groups, ctx)]

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        found = rates(groups, ctx)
        return found * (1 - found)


EASY, HARD = "easy", "hard"
TARGETS = {EASY: 0.083, HARD: 0.167}


class GRESO(DAPO):
    """Usually skips, before any rollout, prompts whose rewards have agreed repeatedly.

    z is the number of times in a row that a prompt was easy (success rate 0.98 or more) or hard
    (0.11 or less). It is skipped with probability 1 - max(p^z, `least`), where p is tracked
    separately for easy and hard prompts and starts at 0.5. After the first pass over the pool, each
    p moves by 0.01 per step within [0.05, 0.95]: down if the fraction of such prompts among those
    rolled out is above its target (8.3% easy, 16.7% hard), otherwise up. Rolled-out prompts go
    through DAPO's filter.

    Source: Zheng et al. 2025, arXiv 2506.02177; its released code for the numbers.
    """

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


BY: dict[str, Callable[[Floats], float]] = {
    "learnable": lambda rewards: float(np.var(rewards)),
    "dead": lambda rewards: -float(np.var(rewards)),
    "hardest": lambda rewards: -float(np.mean(rewards)),
    "easiest": lambda rewards: float(np.mean(rewards)),
}


class LILO(Selector):
    """Rolls out `factor` times as many prompts as needed and keeps the most learnable.

    Learnability is the variance of a prompt's rewards, p (1 - p) if they are 0 or 1. The screening
    rollouts are also trained on. `by` gives controls at the same cost: the `hardest` and `easiest`
    prompts by mean reward, and the `dead` ones with the least variance.

    Source: Foster et al. 2025, arXiv 2502.12272 (factor 4).
    """

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


class SFL(Selector):
    """Draws half of each mini-batch from a periodically refreshed set of learnable prompts.

    Every `every` steps, a fraction `share` of the pool is rolled out, and the fraction `top` of
    these with the highest learnability (as in LILO) forms the set.

    Source: Rutherford et al. 2024, arXiv 2408.15099; its released code for half a batch, 50 updates
    and the best 1,000 of 5 x 5,000 (MiniGrid). Half of the pool and its best quarter are ours: so
    small a share of a small pool would hardly fill half a mini-batch.
    """

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
