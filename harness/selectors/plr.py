"""PLR, and ACCEL: prompts seen before are replayed by the rank of their score and their staleness.

    P = (1 - rho) P_S + rho P_C,    P_S ~ rank^(-1 / beta),    P_C ~ steps since last trained on

The score is the positive value loss, the mean of max(r - b, 0) with the group's mean as b, or
MaxMC: the best reward that a prompt ever had less that mean, which is eva's A*_avg with a memory.
Nothing is replayed until everything in the pool was seen. `robust` trains on nothing that has no
score: what is new is rolled out for its score first.

ACCEL replays, with probability `replay`, what has the best scores; edits of it are scored, and
displace the prompts of the lowest score.

Source: Jiang et al. 2020, arXiv 2010.03934, and 2021, arXiv 2110.02439 (robust); Parker-Holder et
al. 2022, arXiv 2203.01302; the released code of both for the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector


class PLR(Selector):
    """Prioritised level replay."""

    remembers = ("scores", "last", "most")

    def __init__(
        self,
        beta: float = 0.1,
        rho: float = 0.1,
        score: str = "value_loss",
        replay: float = 1.0,
        robust: bool = False,
    ) -> None:
        self.scores: dict[str, float] = {}
        self.last: dict[str, int] = {}
        self.most: dict[str, float] = {}
        self._beta, self._rho, self._score = beta, rho, score
        self._replay, self._robust = replay, robust

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        new = [prompt for prompt in pool if prompt.prompt_id not in self.scores]
        new = [new[i] for i in ctx.rng.permutation(len(new))[:k]]
        if self._robust and new:
            self.observe(ctx.roll_out(new, ctx.n, "screen"), ctx)
            new = []
        seen = [prompt for prompt in pool if prompt.prompt_id in self.scores]
        if self._replay < 1.0 and len(seen) >= k and ctx.rng.random() < self._replay:
            new = []
        count = min(k - len(new), len(seen))
        chances = self.chances(seen, ctx.step) if count else None
        drawn = ctx.rng.choice(len(seen), size=count, replace=False, p=chances) if count else ()
        replayed = [seen[i] for i in drawn]
        predicted = [self.scores.get(prompt.prompt_id, 0.0) for prompt in [*replayed, *new]]
        return Proposal((*replayed, *new), predicted=tuple(predicted))

    def chances(self, seen: Sequence[Prompt], step: int) -> Floats:
        """Return the chance of each prompt to be replayed first."""
        scores = np.array([self.scores[prompt.prompt_id] for prompt in seen])
        ranks = np.empty(len(seen))
        ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(seen) + 1)
        by_score = (1.0 / ranks) ** (1.0 / self._beta)
        stale = np.array([step - self.last[prompt.prompt_id] for prompt in seen], dtype=float)
        by_age = stale / stale.sum() if stale.sum() else np.full(len(seen), 1.0 / len(seen))
        # A floor, because rank^-10 is nothing to draw several distinct prompts by.
        mixed = (1 - self._rho) * by_score / by_score.sum() + self._rho * by_age
        mixed = np.maximum(mixed, 1e-12)
        return np.asarray(mixed / mixed.sum())

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        for group in groups:
            name, seen = group.prompt.prompt_id, ctx.view(group.rewards)
            over = seen - seen.mean()
            self.most[name] = max(self.most.get(name, -np.inf), float(seen.max()))
            maxmc = self.most[name] - float(seen.mean())
            self.scores[name] = (
                maxmc if self._score == "maxmc" else float(np.maximum(over, 0.0).mean())
            )
            self.last[name] = ctx.step
        return [self.scores[group.prompt.prompt_id] for group in groups]


class ACCEL(PLR):
    """Replay and edits of what is replayed."""

    def __init__(self, replay: float = 0.8, beta: float = 0.3, score: str = "value_loss") -> None:
        super().__init__(beta=beta, score=score, replay=replay)

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        return self.observe(ctx.roll_out(children, ctx.n, "insertion"), ctx)

    def evict(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> tuple[int, int]:
        entries = pool.buffer.entries
        pool.buffer.rescore(np.array([self.scores[e.prompt.prompt_id] for e in entries]))
        return pool.buffer.put((), "least_informative"), 0
