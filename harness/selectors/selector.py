"""The interface of a selector: which prompts a step trains on, and what is kept of the outcome.

In each step a selector is asked, in this order,

    propose     which prompts to roll out
    judge       which of them to train on (only of one that `screens`; else all are)
    observe     what to remember of every group, those dropped too, exactly once
    spawn       which prompts of the step the creator rewrites, and how often
    enter       what a rewrite is worth on entering the pool
    evict       what leaves the pool

All randomness comes from the generator of the context, which is derived from seed, step and
question, so that the same state gives the same answer. `state_dict` is what must outlast a step, as
JSON data.

A selector sees rewards through a `View`: `raw`, as they are; `beat`, 1 where a reward is above the
median of all rewards seen lately, else 0; `rank`, the share of those that lie below it, half of the
equal ones included. Methods whose papers have rewards of 0 and 1 alone need one of the last two
(ours); both refer to all prompts, so that an easy prompt has many successes and a hard one few.

Source: ours; the methods that it is made for each name theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import HarnessError
from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats, weights
from harness.registry.recipe import Seen

Phase = Literal["train", "screen", "insertion"]
"""What rollouts are for: training, deciding what to train on, scoring what enters the pool."""

Eviction = Literal["oldest", "least_informative"]

LATELY = 2048
"""Rewards that a view remembers."""


class View:
    """A way to see rewards, with the rewards it has seen."""

    def __init__(self, seen: Seen = "raw") -> None:
        self.seen = seen
        self.lately: deque[float] = deque(maxlen=LATELY)

    def take(self, rewards: ArrayLike) -> None:
        """Remember rewards; each once, before it is looked at."""
        if self.seen != "raw":
            self.lately.extend(np.asarray(rewards, dtype=float).ravel().tolist())

    def __call__(self, rewards: ArrayLike) -> Floats:
        """Return rewards as they are seen, in their shape."""
        array = np.asarray(rewards, dtype=float)
        if self.seen == "raw":
            return array
        lately = np.sort(np.array(self.lately))
        if self.seen == "beat":
            return np.asarray(array > np.median(lately), dtype=float)
        below = np.searchsorted(lately, array, "left") + np.searchsorted(lately, array, "right")
        return np.asarray(below / (2 * len(lately)))


@dataclass(frozen=True)
class Group:
    """The rollouts of a prompt by the policy of a step: N rewards, and the answers if at hand."""

    prompt: Prompt
    rewards: Floats
    value: float = 0.0
    """The selector's: the more, the better to choose it again or to evolve it."""
    answers: tuple[Any, ...] = field(default=(), compare=False, repr=False)


RollOut = Callable[[Sequence[Prompt], int, Phase], list[Group]]
"""Rolls prompts out with the policy as it is, so many times each, and rewards the rollouts."""


@dataclass(frozen=True)
class Proposal:
    """Prompts to roll out.

    `rollouts` is how often, where that is not as often as training takes: a prompt that is kept is
    then rolled out again until it has them. `predicted` has a number for each prompt that should
    rise with the spread of its rewards, and `propensity` the chance it had of being drawn.
    """

    prompts: tuple[Prompt, ...]
    phase: str = "pool"
    from_buffer: int = 0
    rollouts: int | None = None
    predicted: tuple[float, ...] | None = None
    propensity: tuple[float, ...] | None = None

    @classmethod
    def of_best(cls, prompts: Sequence[Prompt], predicted: Floats, k: int) -> Proposal:
        """Propose the k prompts whose predicted numbers are the largest."""
        chosen = best(predicted, k)
        numbers = tuple(float(predicted[i]) for i in chosen)
        return cls(tuple(prompts[i] for i in chosen), predicted=numbers)


@dataclass(frozen=True)
class BufferEntry:
    """A prompt in the buffer, with its informativeness and the step that put it in."""

    prompt: Prompt
    informativeness: float
    entered: int


class Buffer:
    """At most `capacity` prompts that are waiting or were made, oldest first."""

    def __init__(self, capacity: int, entries: Iterable[BufferEntry] = ()) -> None:
        self.capacity = capacity
        self.entries = list(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def can_give(self, count: int, replacement: bool) -> bool:
        """Return whether so many prompts can be drawn, with replacement or without."""
        return len(self) >= (min(count, 1) if replacement else count)

    def take(
        self, count: int, rng: np.random.Generator, metric: str, floor: float, replacement: bool
    ) -> list[Prompt]:
        """Draw prompts by weight and remove them; return them in the order drawn.

        With replacement one prompt may be drawn several times; it leaves once.
        """
        if count == 0:
            return []
        if not self.can_give(count, replacement):
            raise HarnessError(
                f"{count} prompts are to be drawn from a buffer that holds {len(self)}: the "
                "creator's rewrites did not replace what was trained on, so let it make more "
                "(n_new, n_new_bootstrap) or draw less from the buffer (ratio_evol)."
            )
        chances = weights([entry.informativeness for entry in self.entries], metric, floor)
        drawn = rng.choice(len(self), size=count, replace=replacement, p=chances)
        prompts = [self.entries[position].prompt for position in drawn]
        self._drop(set(drawn.tolist()))
        return prompts

    def put(self, entries: Iterable[BufferEntry], eviction: Eviction) -> int:
        """Add prompts at the end, and evict what is then too many; returns how many left.

        `least_informative` evicts the lowest informativeness first, of equals the oldest.
        """
        self.entries += entries
        surplus = max(0, len(self) - self.capacity)
        gone = range(surplus)
        if eviction == "least_informative":
            values = [entry.informativeness for entry in self.entries]
            gone = np.argsort(values, kind="stable")[:surplus].tolist()
        self._drop(set(gone))
        return surplus

    def rescore(self, informativeness: Floats) -> None:
        """Give every prompt a new informativeness, in the order of `entries`."""
        pairs = zip(self.entries, informativeness.tolist(), strict=True)
        self.entries = [replace(entry, informativeness=value) for entry, value in pairs]

    def _drop(self, gone: set[int]) -> None:
        self.entries = [entry for i, entry in enumerate(self.entries) if i not in gone]


class Pool:
    """What can be chosen: human prompts in the order of the seed, and a buffer of other ones.

    `used` is how many human prompts were taken in order so far, by a selector that does so.
    """

    def __init__(self, human: Sequence[Prompt], capacity: int) -> None:
        self.human = list(human)
        self.used = 0
        self.buffer = Buffer(capacity)

    def __iter__(self) -> Iterator[Prompt]:
        yield from self.human
        yield from (entry.prompt for entry in self.buffer.entries)

    def __len__(self) -> int:
        return len(self.human) + len(self.buffer)

    def some(self, count: int, rng: np.random.Generator) -> list[Prompt]:
        """Draw distinct prompts evenly, all there are where they are fewer."""
        everything = list(self)
        chosen = rng.choice(len(everything), size=min(count, len(everything)), replace=False)
        return [everything[i] for i in chosen]


@dataclass(frozen=True)
class Sizes:
    """Prompts of a mini-batch and of the human pool, and rewrites of each evolved prompt."""

    minibatch: int
    pool: int
    n_new: int


@dataclass(frozen=True)
class Context:
    """What a selector is told, and may ask for, when it is asked.

    Attributes:
        step: the step, from 1.
        phase: what the last proposal called its phase; at first, what the selector opens with.
        k, n: prompts that a step trains on, and rollouts of each.
        n_new: rewrites of each prompt that is evolved; 0 where nothing is.
        roll_out: its rollouts are paid for like any other.
        embed: reads prompts with the policy as it is; returns P x D numbers.
        spawned: ids of the prompts of this step that were evolved already.
        from_buffer: how many prompts of the step came from the buffer; they are the first.
    """

    step: int
    phase: str
    rng: np.random.Generator
    k: int
    n: int
    n_new: int
    view: View
    roll_out: RollOut
    embed: Callable[[Sequence[Prompt]], Floats]
    spawned: frozenset[str] = frozenset()
    from_buffer: int = 0


class Selector:
    """A selector; what it does not say otherwise is that of a draw by chance without memory."""

    screens: ClassVar[bool] = False
    """Whether it decides by rollouts (`judge`) what to train on; they are then trained on."""
    view: ClassVar[Seen] = "raw"
    """How it sees rewards where a recipe does not say."""
    remembers: ClassVar[tuple[str, ...]] = ()
    """The attributes that are its state, JSON data each."""
    opens: str = "pool"

    @classmethod
    def made(cls, options: Mapping[str, Any], sizes: Sizes) -> Selector:
        """Return a selector with a recipe's options, at some sizes; most need these only later."""
        return cls(**options)

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        """Return prompts of a pool to roll out.

        One that does not screen returns k, some of them several times if it likes. One that does is
        asked again, for those that are missing, until k are kept.
        """
        return Proposal(tuple(pool.some(k, ctx.rng)))

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        """Return which groups of a proposal to train on; k are missing."""
        return [True] * len(groups)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        """Remember what is needed of groups; return a value for each."""
        return np.zeros(len(groups))

    def spawn(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[tuple[Prompt, int]]:
        """Return which prompts of those trained on are rewritten, and how often.

        Asked again until it names none, so by default only the better half is, once.
        """
        if not ctx.n_new or ctx.spawned:
            return []
        better = best([group.value for group in kept], max(1, ctx.k // 2))
        parents = dict.fromkeys(kept[i].prompt for i in better)
        return [(prompt, ctx.n_new) for prompt in parents]

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        """Return a value for each rewrite that enters the pool, given its parents'."""
        return inherited

    def evict(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> tuple[int, int]:
        """Bound the pool, in which the rewrites of this step are already.

        Returns how many prompts left, and how many of the step's went back to be trained on again.
        """
        return pool.buffer.put((), "oldest"), 0

    def state_dict(self) -> dict[str, Any]:
        """Return what must outlast a step, as JSON data: by default what it `remembers`."""
        return {name: value for name, value in vars(self).items() if name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` returned."""
        vars(self).update(state)


class Shuffled(Selector):
    """A selector whose choice is carried over to other prompts, anew each time: a control.

    It costs what the selector costs, and what it chooses says nothing of what is trained on.
    """

    def __init__(self, inner: Selector) -> None:
        self.inner = inner
        self.screens, self.view, self.opens = inner.screens, inner.view, inner.opens  # type: ignore[misc]

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        proposal = self.inner.propose(pool, k, ctx)
        everything = list(dict.fromkeys([*pool, *proposal.prompts]))
        others = dict(zip(everything, ctx.rng.permutation(len(everything)), strict=True))
        prompts = tuple(everything[others[prompt]] for prompt in proposal.prompts)
        return replace(proposal, prompts=prompts, propensity=None)

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        said = list(self.inner.judge(groups, k, ctx))
        return [said[i] for i in ctx.rng.permutation(len(said))]

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return self.inner.observe(groups, ctx)

    def spawn(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[tuple[Prompt, int]]:
        values = ctx.rng.permutation([group.value for group in kept])
        mixed = [replace(group, value=value) for group, value in zip(kept, values, strict=True)]
        return self.inner.spawn(pool, mixed, ctx)

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        return ctx.rng.permutation(np.asarray(self.inner.enter(children, inherited, ctx)))

    def evict(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> tuple[int, int]:
        return self.inner.evict(pool, kept, ctx)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


def spreads(groups: Sequence[Group], ctx: Context) -> Floats:
    """Return the standard deviation of each group's rewards, as the view sees them."""
    return np.array([np.std(ctx.view(group.rewards)) for group in groups])


def rates(groups: Sequence[Group], ctx: Context) -> Floats:
    """Return the mean of each group's rewards, as the view sees them."""
    return np.array([ctx.view(group.rewards).mean() for group in groups])


def best(values: ArrayLike, count: int) -> list[int]:
    """Return the positions of the largest values, ties by position."""
    return [int(i) for i in np.argsort(-np.asarray(values, dtype=float), kind="stable")[:count]]
