"""The prompts that somebody values most: how the oracle chooses, as a control and no method."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats
from harness.selectors.parents import Value
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, best


class Ranked(Selector):
    """Takes the prompts of the largest value, of equals the first of a shuffled pool."""

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
