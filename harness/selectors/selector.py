"""The selector interface: which prompts a step trains on, and what is remembered of the outcome.

In each step, a selector's methods are called in this order:

    propose     which prompts to roll out
    judge       which of them to train on (only if it `screens`; otherwise all)
    observe     what to remember of every group, including dropped ones, exactly once
    spawn       which prompts of the step the creator rewrites, and how many times
    enter       the value of each rewrite entering the pool
    evict       what leaves the pool

All randomness comes from the context's generator, which is seeded by seed, step and method, so the
same state gives the same result. `state_dict` returns the state to carry between steps, as JSON.

A selector sees rewards through a `View`: `raw`, unchanged; `beat`, 1 if a reward is above the
median of recent rewards, or equals a median that is the largest of them, else 0; `rank`, the
fraction of recent rewards below it, counting ties as half. Methods whose papers assume 0/1 rewards
need one of the last two (ours); both compare across all prompts, so an easy prompt has many
successes and a hard one few.

Source: ours; each method cites its own source.
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

Phase = Literal["train", "screen", "insertion"]
"""Purpose of rollouts: training, deciding what to train on, or scoring new pool entries."""

Eviction = Literal["oldest", "least_informative"]

Seen = Literal["raw", "beat", "rank"]
"""How a selector sees rewards."""

RECENT = 2048
"""Number of recent rewards that a view remembers."""


class View:
    """A transformation of rewards, with the recent rewards it depends on."""

    def __init__(self, seen: Seen = "raw") -> None:
        self.seen = seen
        self.recent: deque[float] = deque(maxlen=RECENT)

    def take(self, rewards: ArrayLike) -> None:
        """Record rewards; do so exactly once, before viewing them."""
        if self.seen != "raw":
            self.recent.extend(np.asarray(rewards, dtype=float).ravel().tolist())

    def __call__(self, rewards: ArrayLike) -> Floats:
        """Return transformed rewards of the same shape."""
        array = np.asarray(rewards, dtype=float)
        if self.seen == "raw":
            return array
        recent = np.sort(np.array(self.recent))
        if self.seen == "beat":
            middle = np.median(recent)
            # Where most rewards are the largest, as by rule, only the largest are successes.
            tied = recent[0] < middle == recent[-1]
            return np.asarray(array >= middle if tied else array > middle, dtype=float)
        below = np.searchsorted(recent, array, "left") + np.searchsorted(recent, array, "right")
        return np.asarray(below / (2 * len(recent)))


@dataclass(frozen=True)
class Group:
    """A prompt's rollouts by the step's policy: N rewards, and the answers if available."""

    prompt: Prompt
    rewards: Floats
    value: float = 0.0
    """Set by the selector; the higher, the better to select again or evolve."""
    answers: tuple[Any, ...] = field(default=(), compare=False, repr=False)


RollOut = Callable[[Sequence[Prompt], int, Phase], list[Group]]
"""Rolls out prompts with the current policy, the given number of times each, with rewards."""


@dataclass(frozen=True)
class Proposal:
    """Prompts to roll out.

    `rollouts` is the number per prompt if fewer than trained on; kept prompts then get the rest.
    `predicted` has a number per prompt that should increase with the spread of its rewards.
    """

    prompts: tuple[Prompt, ...]
    phase: str = "pool"
    rollouts: int | None = None
    predicted: tuple[float, ...] | None = None

    @classmethod
    def of_best(cls, prompts: Sequence[Prompt], predicted: Floats, k: int) -> Proposal:
        """Propose the k prompts with the largest predictions."""
        chosen = best(predicted, k)
        numbers = tuple(float(predicted[i]) for i in chosen)
        return cls(tuple(prompts[i] for i in chosen), predicted=numbers)


@dataclass(frozen=True)
class BufferEntry:
    """A prompt in the buffer, with its informativeness and the step it entered."""

    prompt: Prompt
    informativeness: float
    entered: int


@dataclass
class Buffer:
    """At most `capacity` prompts waiting to be drawn, oldest first."""

    capacity: int
    entries: list[BufferEntry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.entries)

    def take(self, count: int, rng: np.random.Generator, metric: str, floor: float) -> list[Prompt]:
        """Draw distinct prompts by weight and remove them; return them in draw order."""
        if count == 0:
            return []
        if len(self) < count:
            raise HarnessError(
                f"{count} prompts are to be drawn from a buffer that holds {len(self)}: the "
                "creator's rewrites did not replace what was trained on, so let it make more "
                "(n_new, n_new_bootstrap) or draw less from the buffer (ratio_evol)."
            )
        chances = weights([entry.informativeness for entry in self.entries], metric, floor)
        drawn = rng.choice(len(self), size=count, replace=False, p=chances)
        prompts = [self.entries[position].prompt for position in drawn]
        self._drop(set(drawn.tolist()))
        return prompts

    def put(self, entries: Iterable[BufferEntry], eviction: Eviction) -> int:
        """Append prompts, evict those above capacity, and return the number evicted."""
        self.entries += entries
        surplus = max(0, len(self) - self.capacity)
        gone = range(surplus)
        if eviction == "least_informative":
            values = [entry.informativeness for entry in self.entries]
            gone = np.argsort(values, kind="stable")[:surplus].tolist()
        self._drop(set(gone))
        return surplus

    def rescore(self, informativeness: Floats) -> None:
        """Set the informativeness of every prompt, in the order of `entries`."""
        pairs = zip(self.entries, informativeness.tolist(), strict=True)
        self.entries = [replace(entry, informativeness=value) for entry, value in pairs]

    def _drop(self, gone: set[int]) -> None:
        self.entries = [entry for i, entry in enumerate(self.entries) if i not in gone]


class Pool:
    """Human prompts in seeded order, of which `used` were taken, and a buffer of others."""

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
        """Draw `count` distinct prompts uniformly, or all if there are fewer."""
        everything = list(self)
        chosen = rng.choice(len(everything), size=min(count, len(everything)), replace=False)
        return [everything[i] for i in chosen]


@dataclass(frozen=True)
class Context:
    """The information and services available to a selector in each call.

    Attributes:
        phase: the last proposal's phase; initially the selector's `opens`.
        k, n: the number of prompts a step trains on, and of rollouts of each.
        n_new: rewrites per evolved prompt; 0 without evolution.
        roll_out: its rollouts count toward the cost like any other.
        embed: embeds prompts with the current policy; returns P x D numbers.
        spawned: ids of this step's prompts that have been evolved already.
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


class Selector:
    """Base class whose defaults are a memoryless uniform draw."""

    screens: ClassVar[bool] = False
    """Whether it selects by rollouts (`judge`), which are then also trained on."""
    view: ClassVar[Seen] = "raw"
    """How it sees rewards."""
    remembers: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that make up its state, each JSON-serializable."""
    opens: str = "pool"

    @classmethod
    def made(cls, options: Mapping[str, Any], minibatch: int, pool: int, n_new: int) -> Selector:
        """Return a selector with a recipe's options; most ignore the sizes.

        They are the prompts per mini-batch and in the human pool, and the rewrites per prompt.
        """
        return cls(**options)

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        """Return prompts from the pool to roll out.

        A selector that does not screen returns k, possibly with repeats. One that does is called
        again for the missing ones until a mini-batch is kept.
        """
        return Proposal(tuple(pool.some(k, ctx.rng)))

    def judge(self, groups: Sequence[Group], k: int, ctx: Context) -> Sequence[bool]:
        """Return whether to train on each group of a proposal; k are still missing."""
        return [True] * len(groups)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        """Update the state from the groups; return a value for each."""
        return np.zeros(len(groups))

    def spawn(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> list[tuple[Prompt, int]]:
        """Return which of the prompts trained on to rewrite, and how many times each."""
        if not ctx.n_new or ctx.spawned:
            return []
        better = best([group.value for group in kept], max(1, ctx.k // 2))
        parents = dict.fromkeys(kept[i].prompt for i in better)
        return [(prompt, ctx.n_new) for prompt in parents]

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        """Return a value for each rewrite entering the pool, given the parents' values."""
        return inherited

    def evict(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> tuple[int, int]:
        """Shrink the pool to its capacity; return the numbers of evicted and of reused prompts."""
        return pool.buffer.put((), "oldest"), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state to carry between steps, as JSON data: by default what it `remembers`."""
        return {name: value for name, value in vars(self).items() if name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Shuffled(Selector):
    """Control that maps a selector's choices to random prompts, newly permuted each time."""

    def __init__(self, inner: Selector) -> None:
        self.inner = inner
        self.screens, self.view, self.opens = inner.screens, inner.view, inner.opens  # type: ignore[misc]

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        proposal = self.inner.propose(pool, k, ctx)
        everything = list(dict.fromkeys([*pool, *proposal.prompts]))
        others = dict(zip(everything, ctx.rng.permutation(len(everything)), strict=True))
        prompts = tuple(everything[others[prompt]] for prompt in proposal.prompts)
        return replace(proposal, prompts=prompts)

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
    """Return the standard deviation of each group's viewed rewards."""
    return np.array([np.std(ctx.view(group.rewards)) for group in groups])


def rates(groups: Sequence[Group], ctx: Context) -> Floats:
    """Return the mean of each group's viewed rewards."""
    return np.array([ctx.view(group.rewards).mean() for group in groups])


def best(values: ArrayLike, count: int) -> list[int]:
    """Return the indices of the largest values, best first, with ties in order."""
    return [int(i) for i in np.argsort(-np.asarray(values, dtype=float), kind="stable")[:count]]
