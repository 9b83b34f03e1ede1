"""What happens in every step of online training, whatever the loss.

A step draws prompts from a `PromptSource`, and the trainer rolls them out. Then the source rewards
the rollouts, and ends the step with the policy that made them, before the optimiser moves it.

In several processes (`SharedSteps`) only the first has a `PromptSource`. It draws the prompts of a
step and tells the others; every process rolls out and learns from its share of the batch, which is
cut by rows in the order of the batch. The rollouts of all are gathered in that order, and the first
process rewards them and ends the step, with rollouts of rewrites by all processes if the source
asks for some. So the stream, the buffer and the creator move on once a step, and see what they
would of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from harness.models.loading import Checkpoint, stop_token_ids
from harness.training import distributed
from harness.training.distributed import Draw, SharedPolicy
from harness.training.offline import Metrics, TrainingError

Row = TypeVar("Row")

_ROLLOUTS = 3
"""Tells a step's own rollouts from the stream's draws, which have other numbers in this place."""


class PromptSource(Protocol):
    """Chooses the prompts of each step and takes what came of them."""

    def draw(self) -> Sequence[str]:
        """Begin a step and return the texts of its prompts."""
        ...

    def reward(
        self, completions: Sequence[Sequence[str]], ended: NDArray[np.bool_], tokens: int
    ) -> NDArray[np.float64]:
        """Return the P x N rewards of the step's rollouts.

        Args:
            completions: P x N texts.
            ended: P x N, whether the policy ended the turn itself.
            tokens: tokens generated for them, ends of turns included.
        """
        ...

    def finish(self, policy: Checkpoint | SharedPolicy) -> Metrics:
        """End the step, with the policy that rolled out, and return what to log of it."""
        ...


@dataclass(frozen=True)
class Segment:
    """A stretch of a run: the steps `first` to `last`, counted from 1 over the whole run."""

    first: int
    last: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last - self.first + 1


class Steps:
    """What happens in every step, whatever the loss: called by the trainers, once each a step.

    Attributes:
        metrics: what the source says of the last step.
        length: mean tokens of its rollouts, ends of turns included.
    """

    def __init__(self, source: PromptSource, segment: Segment, seed: int, *, blocks: bool) -> None:
        """Begin a segment.

        Args:
            source: chooses prompts and takes rewards.
            segment: which steps.
            seed: root of the random numbers of all steps.
            blocks: whether the trainer lays rollouts out as all first ones, then all second ones,
                rather than all of one prompt together.
        """
        self.metrics: Metrics = {}
        self.length = 0.0
        self._source = source
        self._seed = seed
        self._blocks = blocks
        self._step = segment.first - 1
        self._prompts = 0

    def attach(self, policy: Checkpoint | SharedPolicy) -> None:
        """Say which policy rolls out; it is the one that is being trained."""
        self._policy = policy
        self._stops = frozenset(stop_token_ids(policy.tokenizer))

    def begin(self) -> list[list[dict[str, str]]]:
        """Return the conversations of the next step, after seeding its random numbers."""
        self._step += 1
        state = np.random.SeedSequence([self._seed, self._step]).generate_state(1)
        torch.manual_seed(int(state[0]))
        texts = self._source.draw()
        self._prompts = len(texts)
        return [[{"role": "user", "content": text}] for text in texts]

    def local_shard(self, rows: list[Row]) -> list[Row]:
        """Return those rows of a step that this process computes: all of them."""
        return rows

    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        """Reward the step's rollouts and end the step: a reward function as TRL calls it."""
        stops = [[token in self._stops for token in ids] for ids in completion_ids]
        ended = np.array([any(row) for row in stops])
        tokens = sum(row.index(True) + 1 if any(row) else len(row) for row in stops)
        self.length = tokens / len(stops)
        texts = [completion[0]["content"].strip() for completion in completions]
        order = self._order(len(texts))
        grouped = [[texts[i] for i in row] for row in order]
        rewards = np.empty(len(texts))
        rewards[order] = self._source.reward(grouped, ended[order], tokens)
        if not np.isfinite(rewards).all():  # TRL would take them for missing and go on
            raise TrainingError(
                f"a reward at step {self._step} is not finite: check the reward model."
            )
        model, training = self._policy.model, self._policy.model.training
        model.eval()
        self.metrics = self._source.finish(self._policy)
        model.train(training)
        return [float(reward) for reward in rewards]

    def _order(self, rows: int) -> NDArray[np.int64]:
        """Return where each prompt's rollouts lie among the rows, P x N."""
        shape = (-1, self._prompts) if self._blocks else (self._prompts, -1)
        order: NDArray[np.int64] = np.arange(rows).reshape(shape)
        return order.T if self._blocks else order


class SharedSteps(Steps):
    """`Steps` of several processes; each calls every method, with its own rows."""

    def __init__(
        self, source: PromptSource | None, segment: Segment, seed: int, *, blocks: bool
    ) -> None:
        """Begin a segment.

        Args:
            source: chooses prompts and takes rewards; None in all processes but the first.
            segment: which steps.
            seed: root of the random numbers of all steps.
            blocks: whether the trainer lays a process's rollouts out as all first ones, then all
                second ones, rather than all of one prompt together.
        """
        super().__init__(source, segment, seed, blocks=blocks)  # type: ignore[arg-type]
        self._shared: SharedPolicy | None = None

    def attach(self, policy: Any) -> None:
        """Say which policy rolls out; it is the one that is being trained."""
        super().attach(policy)
        self._shared = policy

    def begin(self) -> list[list[dict[str, str]]]:
        """Return the conversations of the whole next step, after seeding its random numbers."""
        self._step += 1
        state = np.random.SeedSequence([self._seed, self._step]).generate_state(1)
        torch.manual_seed(int(state[0]))
        texts = distributed.broadcast(list(self._source.draw()) if distributed.is_first() else None)
        self._prompts = len(texts)
        return [[{"role": "user", "content": text}] for text in texts]

    def local_shard(self, rows: list[Row]) -> list[Row]:
        """Return this process's share of a step's rows."""
        return distributed.local_shard(rows)

    def sample(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Roll out this process's rows of the step, in the trainer's order.

        Args:
            prompts: token ids of each row's prompt.
        """
        assert self._shared is not None
        rows = len(prompts) * distributed.count()
        places = {int(row): place for place, row in np.ndenumerate(self._order(rows))}
        state = np.random.SeedSequence([self._seed, self._step, _ROLLOUTS]).generate_state(1)
        root = int(state[0])
        draws: list[Draw] = [(root, *places[row]) for row in distributed.local_shard(range(rows))]
        return self._shared.sample(prompts, draws)

    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        """Reward all rollouts of the step in the first process; return those of this one's rows."""
        assert self._shared is not None
        rows = distributed.all_gather(list(zip(completions, completion_ids, strict=True)))
        if distributed.is_first():
            texts, ids = zip(*rows, strict=True)
            rewards = super().reward(prompts, texts, ids)
            self._shared.dismiss(rewards)
        else:
            rewards = self._shared.follow()
        return distributed.local_shard(rewards)

    def _order(self, rows: int) -> NDArray[np.int64]:
        """Return the P x N rows of the batch; each process has its prompts in blocks of its own."""
        if not self._blocks:
            return super()._order(rows)
        here = self._prompts // distributed.count()
        cut = np.arange(rows).reshape(distributed.count(), -1, here)
        return cut.transpose(0, 2, 1).reshape(self._prompts, -1)
