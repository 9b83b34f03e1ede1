"""Eva's creator: selects prompts to rewrite by the informativeness of their rewards.

Offline, it is called once per iteration with all prompts and their rewards (`choose`). Online, it
is a selector that evolves the informative half of each mini-batch and keeps a buffer. A run sees
its human prompts D once, in three phases:

- warm-up: mini-batches come from D alone. The informative half of each is evolved into `n_new`
  rewrites per prompt, which enter the buffer, until it is full;
- mix-up: a fraction `ratio_evol` of each mini-batch is drawn from the buffer by informativeness and
  the rest comes from D; the informative half of the whole is evolved. Prompts trained on leave the
  buffer, and beyond its capacity the oldest are evicted;
- bootstrap: D is exhausted. Mini-batches come from the buffer alone, and each evolved prompt gets
  `n_new_bootstrap` rewrites, to replace those drawn. Unusable rewrites shrink the buffer; when it
  can no longer fill the next mini-batch, the other prompts of this one are evolved as well.

If that still leaves too few for the next mini-batch (a creator that mostly fails), this one's most
informative prompts return to the buffer, and `StepResult.repeated` counts them.

The buffer is a list of at most `capacity` prompts in insertion order, each with the informativeness
it had on insertion. Mini-batches are drawn from it by weight,

    w_i = max(floor, (v_i - min v) / (max v - min v)),        p_i = w_i / sum(w)

and drawn prompts are removed. New prompts are appended; above capacity, the oldest are evicted.
Without the floor, min-max would give the least informative prompt weight 0, so it would never be
trained on and would stay until evicted.

Without a creator, human prompts come in order and run out. In a league of selectors without one,
prompts trained on return to the buffer with their new informativeness (`Eva.returns`).

Source: paper sections 3.2, 3.3.2, 4.2.2 and appendix A; authors' code (`src/evolve_prompt.py`).
Each choice that the paper leaves open is a setting of `harness.registry.recipe.Online`, or a
constant beside it (`BUFFER_RULES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator

from harness.errors import HarnessError, UserError
from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats, check_rewards, informativeness, select, weights
from harness.registry.recipe import WEIGHT_FLOOR, Online
from harness.selectors.selector import (
    BufferEntry,
    Context,
    Group,
    Pool,
    Proposal,
    Selector,
    View,
    best,
)

Value = Callable[[Sequence[str]], Floats]
"""Maps prompt texts to values that replace informativeness; higher is better."""


@dataclass(eq=False)
class Parents(Selector):
    """Values prompts by a metric and selects `count` of them to be rewritten.

    `value` replaces the metric's values, but the metric still decides on inversion. `shuffled`
    permutes the values over the prompts, which keeps the weights but removes their signal.
    """

    metric: str
    count: int
    _: KW_ONLY
    sampling: Literal["weighted", "greedy"] = "weighted"
    floor: float | None = None
    too_few: Literal["error", "uniform"] = "error"
    shuffled: bool = False
    value: Value | None = None

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        values = self.values([group.prompt for group in groups], lambda: groups)
        return ctx.rng.permutation(values) if self.shuffled else values

    def spawn(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[tuple[Prompt, int]]:
        chosen = select(self.chances(kept), self.count, self.sampling, ctx.rng, self.too_few)
        return [(kept[i].prompt, ctx.n_new) for i in chosen]

    def values(self, prompts: Sequence[Prompt], rolled: Callable[[], Sequence[Group]]) -> Floats:
        """Return a value for each prompt; `rolled` is called only if rewards are needed."""
        if self.value is not None:
            return self.value([prompt.prompt for prompt in prompts])
        return informativeness([group.rewards for group in rolled()], self.metric)

    def chances(self, groups: Sequence[Group]) -> Floats:
        """Return the groups' selection probabilities, which sum to 1."""
        return weights([group.value for group in groups], self.metric, self.floor)


def choose(
    selector: Selector, prompts: Sequence[Prompt], rewards: ArrayLike, rng: np.random.Generator
) -> tuple[list[Group], list[Prompt]]:
    """Run a selector once on a whole set; return groups with values, and the prompts to rewrite."""

    def nothing(*asked: object) -> NoReturn:
        raise HarnessError("no policy is at hand here, and the selector asks for it")

    array = check_rewards(rewards)
    sizes = (len(prompts), array.shape[1], 1)
    ctx = Context(1, selector.opens, rng, *sizes, View("raw"), nothing, nothing)
    groups = [Group(p, own) for p, own in zip(prompts, array, strict=True)]
    values = np.asarray(selector.observe(groups, ctx), dtype=float).tolist()
    groups = [replace(group, value=value) for group, value in zip(groups, values, strict=True)]
    named = selector.spawn(Pool(prompts, capacity=0), groups, ctx)
    return groups, [prompt for prompt, _ in named]


class StreamSettings(Online):
    """A recipe's `online` settings for iterations of x prompts."""

    x: int

    @model_validator(mode="after")
    def _buffer_fills_a_mini_batch(self) -> StreamSettings:
        if self.capacity < self.minibatch:
            raise UserError(
                f"the buffer holds {self.capacity} prompts and a mini-batch takes "
                f"{self.minibatch}: enlarge the buffer."
            )
        return self

    @property
    def capacity(self) -> int:
        """Maximum number of prompts in the buffer."""
        return round(self.buffer * self.x)

    @property
    def warm_up_steps(self) -> int | None:
        """Number of warm-up steps, or None if it lasts until the buffer is full."""
        return None if self.warm_up is None else round(self.warm_up * self.x / self.minibatch)

    @property
    def from_buffer(self) -> int:
        """Number of prompts per mini-batch drawn from the buffer in mix-up."""
        return round(self.ratio_evol * self.minibatch)

    @property
    def evolved(self) -> int:
        """Number of prompts per mini-batch to evolve."""
        return round(self.evolve_share * self.minibatch)


class Eva(Parents):
    """Eva online: evolves parents from each mini-batch and buffers their rewrites."""

    def __init__(
        self,
        settings: StreamSettings,
        *,
        creates: bool = True,
        value: Value | None = None,
        returns: bool = False,
    ) -> None:
        """Without `creates`, only human prompts are drawn, in order.

        `value` replaces the metric and rescores the buffer at every step. `returns` puts prompts
        that were trained on back into the buffer.
        """
        super().__init__(
            settings.metric,
            settings.evolved,
            sampling="weighted" if settings.evolve_by == "draw" else "greedy",
            floor=WEIGHT_FLOOR,
            value=value,
        )
        self.settings = settings
        self.opens = "warm-up" if creates else "human"
        self.returns = returns

    @classmethod
    def made(cls, options: Mapping[str, Any], minibatch: int, pool: int, n_new: int) -> Eva:
        """Return eva for a league: the pool is D, and the buffer has the same capacity."""
        for name in ("buffer", "minibatch", "n_new", "n_new_bootstrap"):
            if name in options:
                raise ValueError(f"`{name}` is the league's, the same for every selector")
        chosen: dict[str, Any] = {"buffer": 1.0, "minibatch": minibatch, **options}
        if n_new:
            chosen |= {"n_new": n_new, "n_new_bootstrap": max(1, n_new // 2)}
        else:
            chosen.setdefault("warm_up", 0.25)
        return cls(StreamSettings(**chosen, x=pool), returns=not n_new)

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        s = self.settings
        phase = self._next_phase(pool, ctx.phase, ctx.step - 1)
        first = pool.used
        pool.used += self._next_human(pool, phase)
        human = pool.human[first : pool.used]
        missing = k - len(human)
        if missing and phase == "human":
            raise HarnessError(
                f"step {ctx.step} needs {k} human prompts and {len(human)} are left: "
                "ask for fewer steps or give more prompts."
            )
        if self.value is not None and len(pool.buffer):
            pool.buffer.rescore(self.value([e.prompt.prompt for e in pool.buffer.entries]))
        drawn = pool.buffer.take(missing, ctx.rng, s.metric, WEIGHT_FLOOR)
        return Proposal((*drawn, *human), phase)

    def spawn(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[tuple[Prompt, int]]:
        s, ends = self.settings, ctx.phase == "bootstrap"
        n_new = s.n_new_bootstrap if ends else s.n_new
        if not ctx.spawned:
            named = [prompt for prompt, _ in super().spawn(pool, kept, ctx)]
        elif ends and len(pool.buffer) < s.minibatch:
            named = [group.prompt for group in kept if group.prompt.prompt_id not in ctx.spawned]
        else:
            named = []
        return [(prompt, n_new) for prompt in dict.fromkeys(named)]

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        if self.settings.child_score == "parent":
            return inherited
        return self.values(children, lambda: ctx.roll_out(children, ctx.n, "insertion"))

    def evict(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> tuple[int, int]:
        if self.opens == "human":
            return 0, 0
        back = kept if self.returns else ()
        gone = pool.buffer.put(self._entries(back, ctx.step), "oldest")
        again = self._again(pool, kept, ctx)
        pool.buffer.put(again, "oldest")
        return gone, len(again)

    def _next_phase(self, pool: Pool, phase: str, finished: int) -> str:
        s = self.settings
        if phase == "warm-up":
            full = len(pool.buffer) >= s.capacity
            over = full if s.warm_up_steps is None else finished >= s.warm_up_steps
            phase = "mix-up" if over else phase
        if phase in ("warm-up", "mix-up") and pool.used >= len(pool.human):
            phase = "bootstrap"
        return phase

    def _next_human(self, pool: Pool, phase: str) -> int:
        s = self.settings
        wanted = {"bootstrap": 0, "mix-up": s.minibatch - s.from_buffer}
        return min(wanted.get(phase, s.minibatch), len(pool.human) - pool.used)

    def _again(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[BufferEntry]:
        """Return the prompts of this mini-batch needed to fill the next one, best first."""
        s = self.settings
        missing = s.minibatch - self._next_human(pool, self._next_phase(pool, ctx.phase, ctx.step))
        if len(pool.buffer) >= missing:
            return []
        waiting = {entry.prompt for entry in pool.buffer.entries}
        ranked = [kept[i] for i in best(self.chances(kept), len(kept))]
        again = {group.prompt: group for group in ranked if group.prompt not in waiting}
        return self._entries(list(again.values())[: missing - len(waiting)], ctx.step)

    def _entries(self, groups: Sequence[Group], step: int) -> list[BufferEntry]:
        distinct = {group.prompt: group for group in groups}
        return [BufferEntry(prompt, group.value, step) for prompt, group in distinct.items()]
