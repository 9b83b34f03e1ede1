"""The prompt stream of an online run, which drives a selector step by step.

A step's random generators are seeded by the seed, the step's number and the selector method, so
only the pool and the selector have state to save, and a run can resume after any step unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import HarnessError
from harness.eva.evolving import Evolution, Prompt
from harness.eva.informativeness import Floats, check_rewards
from harness.selectors.selector import (
    BufferEntry,
    Context,
    Group,
    Phase,
    Pool,
    Proposal,
    RollOut,
    Selector,
    View,
)

MOST_PROPOSALS = 10
"""Maximum proposals per step (DAPO's released code); then the first dropped prompts fill it."""

PROPOSE, SPAWN, AGAIN, JUDGE, OBSERVE, ENTER, EVICT = (), (1,), (4,), (5,), (6,), (7,), (8,)
"""Seeds of the generators of a step's calls. Rollouts draw their seeds from 2 and 4 (with a number,
as AGAIN has, but of the call), so that numbers published stay as they are."""

Embed = Callable[[Sequence[Prompt]], Floats]
"""Embeds prompts with the current policy; returns P x D numbers."""


Evolve = Callable[..., Evolution]
"""`evolve` with the creator and the other step-independent arguments bound."""


@dataclass(frozen=True)
class MiniBatch(Proposal):
    """The prompts that a step, counted from 1, trains on; `kept` has rollouts made already."""

    step: int = 0
    kept: tuple[Group, ...] = ()
    dropped: tuple[Group, ...] = ()


@dataclass
class StepResult:
    """The outcome of `PromptStream.finish_step`."""

    informativeness: Floats
    """The selector's values of the mini-batch's prompts, in order."""
    evolved: Evolution = field(default_factory=Evolution)
    """The creator's rewrites, which entered the pool."""
    evicted: int = 0
    """Number of prompts evicted from the buffer."""
    repeated: int = 0
    """Number of prompts of the mini-batch returned to the buffer to be trained on again."""


def _no_embedding(prompts: Sequence[Prompt]) -> Floats:
    raise HarnessError("no policy reads prompts here, and the selector asks for it")


class PromptStream:
    """Draws the mini-batches a selector proposes, and evolves the prompts it picks."""

    def __init__(
        self,
        selector: Selector,
        pool: Pool,
        seed: int,
        *,
        minibatch: int,
        rollouts: int = 0,
        evolve: Evolve | None = None,
        n_new: int = 0,
        embed: Embed = _no_embedding,
    ) -> None:
        """Begin a run that trains on `rollouts` per prompt; with `evolve`, picked ones evolve."""
        self.step = 0
        self.phase = selector.opens
        self.pool = pool
        self.selector = selector
        self.view = View(selector.view)
        self._seed = seed
        self._minibatch = minibatch
        self._rollouts = rollouts
        self._evolve, self._n_new = evolve, 0 if evolve is None else n_new
        self._embed = embed
        self._open: MiniBatch | None = None

    def draw(self, roll_out: RollOut | None = None) -> MiniBatch:
        """Begin the next step and return its mini-batch; some selectors need `roll_out`."""
        if self._open is not None:
            raise HarnessError(f"step {self._open.step} was never finished: finish it first.")
        self.step += 1
        if self.selector.screens:
            self._open = self._screened(roll_out)
        else:
            said = self.selector.propose(self.pool, self._minibatch, self._asked(PROPOSE, roll_out))
            self._open = MiniBatch(**vars(said), step=self.step)
        self.phase = self._open.phase
        if len(self._open.prompts) != self._minibatch:
            raise HarnessError(
                f"step {self.step} needs {self._minibatch} prompts and the selector gives "
                f"{len(self._open.prompts)}: ask for fewer steps or give more prompts."
            )
        return self._open

    def finish_step(self, rewards: ArrayLike, roll_out: RollOut) -> StepResult:
        """End the step: update the selector, evolve the prompts it picks, and bound the pool."""
        batch = self._open
        array = check_rewards(rewards)
        if batch is None or len(array) != len(batch.prompts):
            raise HarnessError(
                f"rewards of {len(array)} prompts were given to step {self.step}, which does not "
                "have as many: draw a mini-batch and finish it with its own rewards."
            )
        self._open = None
        kept: Sequence[Group] = batch.kept
        if not kept:
            self.view.take(array)
            pairs = zip(batch.prompts, array, strict=True)
            kept = [Group(prompt, own) for prompt, own in pairs]
        groups = [*kept, *batch.dropped]
        values = np.asarray(self.selector.observe(groups, self._asked(OBSERVE)), dtype=float)
        kept = [replace(own, value=float(v)) for own, v in zip(kept, values, strict=False)]
        result = StepResult(values[: len(kept)])

        if self._evolve is not None:
            self._add_evolved(self._evolve, kept, result, roll_out)
        asked = self._asked(EVICT, roll_out)
        result.evicted, result.repeated = self.selector.evict(self.pool, kept, asked)
        return result

    def state(self) -> dict[str, Any]:
        """Return the run's state between two steps, as JSON data."""
        if self._open is not None:
            raise HarnessError(f"step {self._open.step} is not finished and cannot be saved.")
        entries = [
            {**vars(e.prompt), "informativeness": e.informativeness, "entered": e.entered}
            for e in self.pool.buffer.entries
        ]
        state = {"step": self.step, "used": self.pool.used, "phase": self.phase, "buffer": entries}
        # Only if not empty: eva's stream keeps all its state in the pool.
        own = {"selector": self.selector.state_dict(), "seen": list(self.view.recent)}
        return state | {name: value for name, value in own.items() if value}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `state`; settings, prompts and seed must be the same."""
        self.step, self.pool.used, self.phase = state["step"], state["used"], state["phase"]
        self.pool.buffer.entries = [
            BufferEntry(
                Prompt(**{k: v for k, v in row.items() if k not in ("informativeness", "entered")}),
                row["informativeness"],
                row["entered"],
            )
            for row in state["buffer"]
        ]
        self.selector.load_state_dict(state.get("selector", {}))
        self.view.recent.extend(state.get("seen", ()))
        self._open = None

    def _asked(
        self,
        question: tuple[int, ...],
        roll_out: RollOut | None = None,
        spawned: Iterable[str] = (),
    ) -> Context:
        def seen(prompts: Sequence[Prompt], n: int, phase: Phase) -> list[Group]:
            assert roll_out is not None
            groups = roll_out(prompts, n, phase)
            self.view.take([group.rewards for group in groups])
            return groups

        return Context(
            step=self.step,
            phase=self.phase,
            rng=np.random.default_rng([self._seed, self.step, *question]),
            k=self._minibatch,
            n=self._rollouts,
            n_new=self._n_new,
            view=self.view,
            roll_out=seen,
            embed=self._embed,
            spawned=frozenset(spawned),
        )

    def _screened(self, roll_out: RollOut | None) -> MiniBatch:
        """Propose, roll out and judge until the mini-batch is full or proposals run out.

        Each proposal is of the whole pool, so a prompt can be screened, and kept, twice.
        """
        kept: list[Group] = []
        dropped: list[Group] = []
        for number in range(MOST_PROPOSALS):
            missing = self._minibatch - len(kept)
            question = (*AGAIN, number) if number else PROPOSE
            said = self.selector.propose(self.pool, missing, self._asked(question, roll_out))
            ctx = self._asked((*JUDGE, number), roll_out)
            groups = ctx.roll_out(said.prompts, said.rollouts or self._rollouts, "screen")
            for group, keep in zip(groups, self.selector.judge(groups, missing, ctx), strict=True):
                wanted = keep and len(kept) < self._minibatch
                (kept if wanted else dropped).append(group)
            if len(kept) == self._minibatch:
                break
        missing = self._minibatch - len(kept)
        kept, dropped = kept + dropped[:missing], dropped[missing:]
        kept = self._extended(kept, self._asked((*JUDGE, MOST_PROPOSALS), roll_out))
        prompts = tuple(group.prompt for group in kept)
        return MiniBatch(
            prompts, said.phase, step=self.step, kept=tuple(kept), dropped=tuple(dropped)
        )

    def _extended(self, kept: Sequence[Group], ctx: Context) -> list[Group]:
        """Extend each group to the number of rollouts trained on."""
        short = [group for group in kept if len(group.rewards) < self._rollouts]
        if not short:
            return list(kept)
        more = self._rollouts - min(len(group.rewards) for group in short)
        rest = ctx.roll_out([group.prompt for group in short], more, "screen")
        longer = {
            id(group): replace(
                group,
                rewards=np.concatenate([group.rewards, new.rewards]),
                answers=(*group.answers, *new.answers),
            )
            for group, new in zip(short, rest, strict=True)
        }
        return [longer.get(id(group), group) for group in kept]

    def _add_evolved(
        self,
        evolve: Evolve,
        kept: Sequence[Group],
        result: StepResult,
        roll_out: RollOut,
    ) -> None:
        """Have the creator rewrite the prompts the selector picks, until it picks none."""
        values = {group.prompt.prompt_id: group.value for group in kept}
        spawned: set[str] = set()
        # Includes the step, so that a prompt drawn again gets new rewrites.
        seed = int(np.random.SeedSequence([self._seed, self.step]).generate_state(1)[0])
        while True:
            asked = self._asked(SPAWN, roll_out, spawned)
            named = dict(self.selector.spawn(self.pool, kept, asked))
            if not named:
                return
            spawned |= {prompt.prompt_id for prompt in named}
            made: list[Prompt] = []
            for count in dict.fromkeys(named.values()):
                parents = [prompt for prompt, own in named.items() if own == count]
                evolution = evolve(parents, evolutions=count, seed=seed, iteration=self.step)
                made += evolution.prompts
                result.evolved.add(evolution)
            if made:
                # A child's id is its mini-batch ancestor's id, the step, and its index.
                suffix = f".{self.step}."
                inherited = [values[child.prompt_id.rpartition(suffix)[0]] for child in made]
                asked = self._asked(ENTER, roll_out)
                entering = self.selector.enter(made, np.array(inherited), asked)
                pairs = zip(made, np.asarray(entering, dtype=float).tolist(), strict=True)
                self.pool.buffer.entries += [
                    BufferEntry(prompt, value, self.step) for prompt, value in pairs
                ]
