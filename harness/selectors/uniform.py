"""Prompts drawn evenly: what every other selector is compared with."""

from __future__ import annotations

import numpy as np

from harness.selectors.selector import Context, Pool, Proposal, Selector


class Uniform(Selector):
    """Draws distinct prompts evenly; another `stream` draws others, to see what chance does."""

    def __init__(self, stream: int = 0) -> None:
        self._stream = stream

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        rng = ctx.rng
        if self._stream:
            rng = np.random.default_rng([self._stream, int(rng.integers(2**32))])
        drawn = pool.some(k, rng)
        return Proposal(tuple(drawn), propensity=(len(drawn) / len(pool),) * len(drawn))
