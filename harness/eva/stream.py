"""Online eva's creator: which prompts each mini-batch trains on, and what is evolved from them.

The model. A run sees its human prompts D once, in three phases:

- warm-up: mini-batches from D alone. The informative half of each is evolved into `n_new` rewrites
  a prompt, which enter the buffer, until it is full;
- mix-up: a share `ratio_evol` of each mini-batch is drawn from the buffer by informativeness, the
  rest comes from D; the informative half of the whole is evolved; what was trained on is gone from
  the buffer, and beyond its capacity the oldest leave;
- bootstrap: D is used up. Mini-batches come from the buffer alone, and each evolved prompt has
  `n_new_bootstrap` rewrites, so that as many come in as go out. Unusable rewrites make it fewer;
  when what is left would not fill the next mini-batch, the other prompts of this one are evolved
  as well.

Where even that leaves too few for the next mini-batch (a creator that mostly fails), this one's
most informative prompts go back into the buffer, and `Fed.repeated` counts them.

`draw` starts a step and returns its mini-batch; `feed` takes the rewards of its rollouts and ends
the step. Nothing here knows a model: the caller rolls out and rewards, also the rewrites (`score`).

The buffer is a list of at most `capacity` prompts in the order they came in, each with the
informativeness it was given then. A mini-batch is drawn by weight,

    w_i = max(floor, (v_i - min v) / (max v - min v)),        p_i = w_i / sum(w)

and what is drawn leaves for good. What comes in is added at the end; if there are then too many,
the oldest leave (or the least informative). The floor is there because min-max gives the least
informative prompt weight 0: it would stay until it is evicted and never be trained on.

Randomness. A step's generator is derived from the seed and the step's number, so the state to be
saved is the position in D, the phase and the buffer, and a run that is cut anywhere goes on as if
it had not been.

Source: paper section 3.2 and appendix A; what it leaves open is a setting each
(`harness.registry.recipe.Online`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator

from harness.errors import HarnessError, UserError
from harness.eva.evolving import Over, Prompt, Rewriter, Shape, evolve
from harness.eva.informativeness import Floats, check_rewards, informativeness, weights
from harness.registry.recipe import Online

Eviction = Literal["oldest", "least_informative"]
Phase = Literal["human", "warm-up", "mix-up", "bootstrap"]


@dataclass(frozen=True)
class BufferEntry:
    """A prompt in the buffer, with its informativeness and the step that put it in."""

    prompt: Prompt
    informativeness: float
    entered: int


class Buffer:
    """At most `capacity` prompts waiting to be trained on, oldest first."""

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


class StreamSettings(Online):
    """How mini-batches are made: a recipe's `online` where an iteration has x prompts."""

    x: int
    retries: int = 0
    """Further attempts at an unusable rewrite."""

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
        """Prompts that the buffer holds."""
        return round(self.buffer * self.x)

    @property
    def warm_up_steps(self) -> int | None:
        """Steps of the warm-up; None where it lasts until the buffer is full."""
        return None if self.warm_up is None else round(self.warm_up * self.x / self.minibatch)

    @property
    def shape(self) -> Shape:
        """How the rewrites of a prompt hang together."""
        return "tree" if self.method == "tree_bon" else "independent"

    @property
    def from_buffer(self) -> int:
        """Prompts of a mini-batch that come from the buffer in mix-up."""
        return round(self.ratio_evol * self.minibatch)

    @property
    def evolved(self) -> int:
        """Prompts of a mini-batch that are evolved."""
        return round(self.evolve_share * self.minibatch)


@dataclass(frozen=True)
class MiniBatch:
    """The prompts of one step: its number, from 1, its phase, and how many came from the buffer."""

    step: int
    phase: Phase
    prompts: tuple[Prompt, ...]
    from_buffer: int


@dataclass
class Fed:
    """What a step did to the prompts after its rollouts."""

    informativeness: Floats
    """Of the mini-batch's prompts, in order."""
    children: list[Prompt] = field(default_factory=list)
    """Rewrites that entered the buffer."""
    scored: int = 0
    """Prompts that were rolled out besides the mini-batch."""
    calls: int = 0
    """Calls of the creator."""
    dropped: int = 0
    """Rewrites given up after all retries."""
    unusable: Counter[str] = field(default_factory=Counter)
    """Unusable rewrites by reason."""
    evicted: int = 0
    """Prompts that left the buffer untrained."""
    repeated: int = 0
    """Prompts of the mini-batch that went back into the buffer, to be trained on again."""


Score = Callable[[Sequence[Prompt]], ArrayLike]
"""Rolls prompts out with the policy as it is, and returns their rewards, P x N."""

Value = Callable[[Sequence[str]], Floats]
"""Returns a value for each prompt's text, in place of its informativeness: the more, the better."""


class PromptStream:
    """Draws mini-batches from human prompts and a buffer of their rewrites.

    Attributes:
        step: steps finished or, between `draw` and `feed`, begun.
        used: human prompts drawn so far.
        phase: phase of the last step; before the first, the one it will begin with.
        buffer: the buffer; empty for ever without a creator.
    """

    def __init__(
        self,
        settings: StreamSettings,
        human: Sequence[Prompt],
        creator: Rewriter | None,
        seed: int,
        quality: Callable[[str], float] | None = None,
        over: Over = map,
        value: Value | None = None,
    ) -> None:
        """Begin a run on the shuffled human prompts D; without a creator on these alone.

        `quality` scores a prompt's text, for best-of-n trees. `value` replaces the metric, and
        values the buffer anew at every step.
        """
        self.settings = settings
        self.step = 0
        self.used = 0
        self.phase: Phase = "human" if creator is None else "warm-up"
        self.buffer = Buffer(settings.capacity)
        self._human = list(human)
        self._creator = creator
        self._seed = seed
        self._quality = quality
        self._over = over
        self._value = value
        self._open: MiniBatch | None = None

    def draw(self) -> MiniBatch:
        """Begin the next step and return its mini-batch."""
        if self._open is not None:
            raise HarnessError(f"step {self._open.step} was drawn and never fed: feed it first.")
        self.phase = self._next_phase()
        self.step += 1
        s = self.settings
        rng = np.random.default_rng([self._seed, self.step])
        human = self._take_human(self._next_human(self.phase), rng)
        missing = s.minibatch - len(human)
        if missing and self._creator is None:
            raise HarnessError(
                f"step {self.step} needs {s.minibatch} human prompts and {len(human)} are left: "
                "ask for fewer steps or give more prompts."
            )
        if self._value is not None and len(self.buffer):
            self.buffer.rescore(self._value([e.prompt.prompt for e in self.buffer.entries]))
        drawn = self.buffer.take(missing, rng, s.metric, s.weight_floor, s.replacement)
        self._open = MiniBatch(self.step, self.phase, (*drawn, *human), len(drawn))
        return self._open

    def feed(self, rewards: ArrayLike, score: Score) -> Fed:
        """End the step: evolve the informative prompts of its mini-batch into the buffer.

        `rewards` are those of its rollouts, P x N. `score` rolls out the rewrites, where they are
        not given their parent's informativeness.
        """
        batch, s = self._open, self.settings
        array = check_rewards(rewards)
        if batch is None or len(array) != len(batch.prompts):
            raise HarnessError(
                f"rewards of {len(array)} prompts were fed to step {self.step}, which does not "
                "have as many: draw a mini-batch and feed its own rewards."
            )
        self._open = None
        fed = Fed(self._informativeness(batch.prompts, lambda: array))
        if self._creator is None:
            return fed
        chosen = self._most_informative(batch, fed.informativeness)
        fresh = self._evolve(batch, chosen, fed, score)
        if batch.phase == "bootstrap" and len(self.buffer) + len(fresh) < s.minibatch:
            evolved = {batch.prompts[i] for i in chosen}
            others = [i for i, prompt in enumerate(batch.prompts) if prompt not in evolved]
            fresh += self._evolve(batch, others, fed, score)
        if s.buffer_holds == "evolved_and_human":
            fresh += [
                BufferEntry(prompt, float(fed.informativeness[i]), batch.step)
                for i, prompt in enumerate(batch.prompts)
                if i >= batch.from_buffer
            ]
        fed.evicted = self.buffer.put(fresh, s.eviction)
        again = self._again(batch, fed.informativeness)
        self.buffer.put(again, s.eviction)
        fed.repeated = len(again)
        if s.rescore_every is not None and batch.step % s.rescore_every == 0 and len(self.buffer):
            waiting = [entry.prompt for entry in self.buffer.entries]
            self.buffer.rescore(self._informativeness(waiting, lambda: score(waiting)))
            fed.scored += len(waiting)
        return fed

    def state(self) -> dict[str, Any]:
        """Return what a run must remember between two steps, as JSON data."""
        if self._open is not None:
            raise HarnessError(f"step {self._open.step} is not finished and cannot be saved.")
        entries = [
            {**vars(e.prompt), "informativeness": e.informativeness, "entered": e.entered}
            for e in self.buffer.entries
        ]
        return {"step": self.step, "used": self.used, "phase": self.phase, "buffer": entries}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` returned, with equal settings, prompts and seed."""
        self.step, self.used, self.phase = state["step"], state["used"], state["phase"]
        entries = [
            BufferEntry(
                Prompt(**{k: v for k, v in row.items() if k not in ("informativeness", "entered")}),
                row["informativeness"],
                row["entered"],
            )
            for row in state["buffer"]
        ]
        self.buffer = Buffer(self.settings.capacity, entries)
        self._open = None

    def _next_phase(self) -> Phase:
        phase, s = self.phase, self.settings
        if phase == "warm-up":
            full = len(self.buffer) >= s.capacity
            over = full if s.warm_up_steps is None else self.step >= s.warm_up_steps
            phase = "mix-up" if over else phase
        if phase in ("warm-up", "mix-up") and self.used >= len(self._human):
            phase = "bootstrap"
        return phase

    def _next_human(self, phase: Phase) -> int:
        s = self.settings
        wanted = {"bootstrap": 0, "mix-up": s.minibatch - s.from_buffer}
        return min(wanted.get(phase, s.minibatch), len(self._human) - self.used)

    def _again(self, batch: MiniBatch, values: Floats) -> list[BufferEntry]:
        """Return those of a mini-batch that the buffer lacks for the next one, best first."""
        s = self.settings
        missing = s.minibatch - self._next_human(self._next_phase())
        if self.buffer.can_give(missing, s.replacement):
            return []
        waiting = {entry.prompt for entry in self.buffer.entries}
        again = {
            batch.prompts[i]: BufferEntry(batch.prompts[i], float(values[i]), batch.step)
            for i in _ranked(self._chances(values))
            if batch.prompts[i] not in waiting
        }
        return list(again.values())[: missing - len(waiting)]

    def _take_human(self, count: int, rng: np.random.Generator) -> list[Prompt]:
        first, self.used = self.used, self.used + count
        if self.settings.human_order == "one_pass":
            return self._human[first : self.used]
        return [self._human[i] for i in rng.choice(len(self._human), size=count, replace=False)]

    def _evolve(
        self, batch: MiniBatch, chosen: Sequence[int], fed: Fed, score: Score
    ) -> list[BufferEntry]:
        """Return the usable rewrites of the chosen prompts, scored."""
        assert self._creator is not None
        s = self.settings
        parents = {batch.prompts[i].prompt_id: float(fed.informativeness[i]) for i in chosen}
        evolution = evolve(
            dict.fromkeys(batch.prompts[i] for i in chosen),
            self._creator,
            evolutions=s.n_new_bootstrap if batch.phase == "bootstrap" else s.n_new,
            retries=s.retries,
            # The step as well, because a prompt drawn again (`iid`) is to be evolved anew.
            seed=int(np.random.SeedSequence([self._seed, batch.step]).generate_state(1)[0]),
            iteration=batch.step,
            shape=s.shape,
            depth=s.tree_depth if s.shape == "tree" else 1,
            quality=self._quality,
            over=self._over,
        )
        fed.children += evolution.prompts
        fed.calls += evolution.attempts
        fed.dropped += evolution.dropped
        fed.unusable += evolution.unusable
        if not evolution.prompts:
            return []
        if s.child_score == "rollout":
            made = evolution.prompts
            values = self._informativeness(made, lambda: score(made)).tolist()
            fed.scored += len(made)
        else:
            # A child's id is its ancestor's in the mini-batch, the step and its place.
            suffix = f".{batch.step}."
            values = [parents[c.prompt_id.rpartition(suffix)[0]] for c in evolution.prompts]
        pairs = zip(evolution.prompts, values, strict=True)
        return [BufferEntry(prompt, value, batch.step) for prompt, value in pairs]

    def _informativeness(
        self, prompts: Sequence[Prompt], rewards: Callable[[], ArrayLike]
    ) -> Floats:
        if self._value is not None:
            return self._value([prompt.prompt for prompt in prompts])
        return informativeness(rewards(), self.settings.metric)

    def _most_informative(self, batch: MiniBatch, values: Floats) -> list[int]:
        s = self.settings
        chances = self._chances(values)
        if s.evolve_by == "rank":
            return _ranked(chances)[: s.evolved]
        rng = np.random.default_rng([self._seed, batch.step, 1])
        return [int(i) for i in rng.choice(len(values), size=s.evolved, replace=False, p=chances)]

    def _chances(self, values: Floats) -> Floats:
        return weights(values, self.settings.metric, self.settings.weight_floor)


def _ranked(chances: Floats) -> list[int]:
    """Return positions by weight, so that an inverse metric ranks inversely; ties by position."""
    return [int(i) for i in np.argsort(-chances, kind="stable")]
