"""The solver of a stage: an engine on its policy, opened when the first answer is missing.

A stage that was killed after its last answer, or between two turns of a benchmark, finds what it
had and starts an engine only for what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeAlias

from harness.errors import HarnessError, UserError
from harness.models.loading import Conversation
from harness.solver.kept import KeptAnswers
from harness.solver.rendering import Renderer
from harness.solver.request import Answered, Engine, Sample, Sampling

Opened: TypeAlias = Callable[[Renderer], AbstractContextManager[Engine]]
"""Starts an engine on the policy of a renderer; the engine ends with the context."""


class Solver:
    """Has a policy answer conversations, and keeps the answers as they come.

    A context manager: what it started ends with its block.

    Args:
        folder: the policy's.
        opened: starts the engine.
        keep: existing folder for answers, one file for each `part`.

    Attributes:
        asked: prompts asked so far.
        shortened: those of them whose answers had less room than allowed, because the context ends.

    Raises:
        HarnessError: the folder holds no policy that can be asked.
    """

    def __init__(self, folder: Path, opened: Opened, keep: Path) -> None:
        self.asked = 0
        self.shortened = 0
        self._renderer = Renderer(folder)
        self._opened = opened
        self._keep = keep
        self._engine: Engine | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine = None
        self._stack.close()

    def answer(
        self,
        conversations: Sequence[Conversation],
        *,
        n: int,
        seed: int,
        temperature: float,
        top_p: float,
        max_new_tokens: int,
        part: str = "answers",
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[list[Sample]]:
        """Return n answers to each conversation, in their order.

        Args:
            conversations: each ends with a user message.
            n: answers to each.
            seed: root of all draws.
            temperature: divides the logits; 0 for greedy decoding.
            top_p: nucleus mass, in (0, 1].
            max_new_tokens: longest answer, in tokens.
            part: name of the file that the answers are kept in.
            on_progress: called with the conversations answered, whenever there are more.

        Raises:
            HarnessError: a prompt is too long, or the engine cannot start or go on; answers so far
                are kept.
        """
        asked = self._renderer.asked(conversations, n=n, seed=seed, max_new_tokens=max_new_tokens)
        self.asked += len(asked)
        self.shortened += sum(one.room < max_new_tokens for one in asked)
        sampling = Sampling(temperature, top_p, self._renderer.stops)
        kept = KeptAnswers(self._keep / f"{part}.jsonl", asked, sampling)

        def deliver(answered: Answered) -> None:
            kept.add(answered)
            on_progress(len(kept.answers))

        on_progress(len(kept.answers))
        if len(kept.answers) < len(asked):
            try:
                self._running().answer(asked, sampling, deliver, frozenset(kept.answers))
            except HarnessError as error:
                kind = UserError if isinstance(error, UserError) else HarnessError
                raise kind(_with_kept(str(error), len(kept.answers), len(asked))) from error
        return [kept.answers[one.position] for one in asked]

    def _running(self) -> Engine:
        if self._engine is None:
            self._engine = self._stack.enter_context(self._opened(self._renderer))
        return self._engine


def _with_kept(message: str, kept: int, asked: int) -> str:
    """Return an error's sentence with how much work is kept."""
    if not kept:
        return message
    return (
        f"{message.rstrip('.')}; {kept} of {asked} prompts are answered and kept for the next run"
    )
