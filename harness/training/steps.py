"""What happens in every step of online training, whatever the loss.

A step draws prompts from a `PromptSource`, and the trainer rolls them out. Then the source rewards
the rollouts, and ends the step with the policy that made them, before the optimiser moves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from harness.models.loading import Checkpoint, stop_token_ids
from harness.training.loop import Metrics, TrainingError
from harness.training.shared_policy import SharedPolicy

Row = TypeVar("Row")


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

    def mine(self, rows: list[Row]) -> list[Row]:
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
