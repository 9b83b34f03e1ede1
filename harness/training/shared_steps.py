"""The steps of a training in several processes: one stream of prompts, rolled out by all.

Only the first process has a `PromptSource`. It draws the prompts of a step and tells the others;
every process rolls out and learns from its share of the batch, which is cut by rows in the order of
the batch. The rollouts of all are gathered in that order, and the first process rewards them and
ends the step, with rollouts of rewrites by all processes if the source asks for some. So the
stream, the buffer and the creator move on once a step, and see what they would of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.training import ranks
from harness.training.shared_policy import Draw, SharedPolicy
from harness.training.steps import PromptSource, Row, Segment, Steps

_ROLLOUTS = 3
"""Tells a step's own rollouts from the stream's draws, which have other numbers in this place."""


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
        texts = ranks.of_first(list(self._source.draw()) if ranks.is_first() else None)
        self._prompts = len(texts)
        return [[{"role": "user", "content": text}] for text in texts]

    def mine(self, rows: list[Row]) -> list[Row]:
        """Return this process's share of a step's rows."""
        return ranks.mine(rows)

    def sample(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Roll out this process's rows of the step, in the trainer's order.

        Args:
            prompts: token ids of each row's prompt.
        """
        assert self._shared is not None
        rows = len(prompts) * ranks.count()
        places = {int(row): place for place, row in np.ndenumerate(self._order(rows))}
        state = np.random.SeedSequence([self._seed, self._step, _ROLLOUTS]).generate_state(1)
        root = int(state[0])
        draws: list[Draw] = [(root, *places[row]) for row in ranks.mine(range(rows))]
        return self._shared.sample(prompts, draws)

    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        """Reward all rollouts of the step in the first process; return those of this one's rows."""
        assert self._shared is not None
        rows = ranks.of_all(list(zip(completions, completion_ids, strict=True)))
        if ranks.is_first():
            texts, ids = zip(*rows, strict=True)
            rewards = super().reward(prompts, texts, ids)
            self._shared.dismiss(rewards)
        else:
            rewards = self._shared.follow()
        return ranks.mine(rewards)

    def _order(self, rows: int) -> NDArray[np.int64]:
        """Return the P x N rows of the batch; each process has its prompts in blocks of its own."""
        if not self._blocks:
            return super()._order(rows)
        here = self._prompts // ranks.count()
        cut = np.arange(rows).reshape(ranks.count(), -1, here)
        return cut.transpose(0, 2, 1).reshape(self._prompts, -1)
