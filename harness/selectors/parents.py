"""Eva's creator: which prompts of a set are rewritten, by the informativeness of their rewards.

Offline it is asked once an iteration, about all prompts and their rewards (`choose`); online it is
asked about every mini-batch, and `harness.selectors.eva` adds the buffer.

Source: paper sections 3.2 and 4.2.2; authors' code (`src/evolve_prompt.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import HarnessError
from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats, check_rewards, informativeness, select, weights
from harness.selectors.selector import Context, Group, Pool, Selector
from harness.selectors.views import View

Value = Callable[[Sequence[str]], Floats]
"""Returns a value for each prompt's text, in place of its informativeness: the more, the better."""


class Parents(Selector):
    """Values prompts by a metric, and has `count` of them rewritten.

    `floor` and `too_few` are those of `weights` and `select`. `value` replaces the metric's number,
    not what it says of inversion. Where `shuffled`, the values are permuted over the prompts: the
    same weights without their signal.
    """

    def __init__(
        self,
        metric: str,
        count: int,
        *,
        sampling: Literal["weighted", "greedy"] = "weighted",
        floor: float | None = None,
        too_few: Literal["error", "uniform"] = "error",
        shuffled: bool = False,
        value: Value | None = None,
    ) -> None:
        self.metric, self.count, self.sampling = metric, count, sampling
        self.floor, self.too_few, self.shuffled = floor, too_few, shuffled
        self.value = value

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        values = self.values([group.prompt for group in groups], lambda: groups)
        return ctx.rng.permutation(values) if self.shuffled else values

    def spawn(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[tuple[Prompt, int]]:
        how = (self.count, self.sampling, ctx.rng, self.too_few)
        chosen = select(self.chances(kept), *how)
        return [(kept[i].prompt, ctx.n_new) for i in chosen]

    def values(self, prompts: Sequence[Prompt], rolled: Callable[[], Sequence[Group]]) -> Floats:
        """Return a value for each prompt; it is rolled out where the value needs rewards."""
        if self.value is not None:
            return self.value([prompt.prompt for prompt in prompts])
        return informativeness([group.rewards for group in rolled()], self.metric)

    def chances(self, groups: Sequence[Group]) -> Floats:
        """Return the weight of each group's prompt among them, with sum 1."""
        return weights([group.value for group in groups], self.metric, self.floor)


def choose(
    selector: Selector, prompts: Sequence[Prompt], rewards: ArrayLike, rng: np.random.Generator
) -> tuple[list[Group], list[Prompt]]:
    """Ask a selector once about a whole set: its groups with their values, and whom it names.

    `rewards` are P x N. There is no policy to roll out with or to read prompts with.
    """

    def nothing(*asked: object) -> NoReturn:
        raise HarnessError("no policy is at hand here, and the selector asks for it")

    array = check_rewards(rewards)
    ctx = Context(
        step=1,
        phase=selector.opens,
        rng=rng,
        k=len(prompts),
        n=array.shape[1],
        n_new=1,
        view=View("raw"),
        ledger={},
        roll_out=nothing,
        embed=nothing,
    )
    groups = [Group(p, own, "train", 1) for p, own in zip(prompts, array, strict=True)]
    values = np.asarray(selector.observe(groups, ctx), dtype=float).tolist()
    groups = [replace(group, value=value) for group, value in zip(groups, values, strict=True)]
    named = selector.spawn(Pool(prompts, capacity=0), groups, ctx)
    return groups, [prompt for prompt, _ in named]
