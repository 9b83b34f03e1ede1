"""What an estimate is made of, as data with sources: lengths, speeds of GPUs, sizes of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.registry.documents import Sourced, nearest, read_declared, read_document, sources
from harness.registry.profile import Profile
from harness.strict import Strict

ASSUMPTIONS = Path(__file__).with_name("assumptions.yaml")
SPEEDS = Path(__file__).with_name("speeds.yaml")

MOST_GPUS = 100_000
"""More is a slip of the finger."""


class Tokens(Strict):
    """Mean lengths in training."""

    prompt: int
    evolved_prompt: int
    answer: int
    evolved_answer: int
    overhead: int
    rewrite_instruction: int


class Judged(Strict):
    """Mean lengths of a benchmark whose answers a judge reads."""

    question: int
    answer: int
    reference: int
    instructions: int
    reply: int


class Asked(Strict):
    """Mean lengths of one question about a prompt."""

    instructions: int
    reply: int


class Task(Strict):
    """Mean lengths of a task's items in the policy: requests an item, and their tokens."""

    requests: int
    prompt: int
    generated: int


class Benchmarks(Strict):
    """Mean lengths by benchmark."""

    arena_hard: Judged
    alpaca_eval: Judged
    mt_bench: Judged
    downstream: dict[str, Task]
    prompt_judge: Asked
    topics: Asked


class Creator(Strict):
    """What a rewrite takes besides the prompt and itself."""

    instructions: int
    retried: float


class Disk(Strict):
    """Bytes."""

    parameter: int
    moments: int
    checkpoint: int


class Uncertainty(Strict):
    """By which factor an estimate may be off, either way."""

    gpu: float
    money: float


class Assumptions(Sourced):
    """Everything that is assumed of every plan."""

    tokens: Tokens
    benchmarks: Benchmarks
    creator: Creator
    start_s: float
    server_start_s: float
    disk: Disk
    uncertainty: Uncertainty


@cache
def assumptions() -> Assumptions:
    """Return what is assumed of every plan."""
    return read_declared(ASSUMPTIONS, Assumptions, "the assumptions")[0]


@cache
def listed() -> Mapping[str, tuple[Any, str]]:
    """Return each assumption by its dotted name: its value, and the source beside it."""
    return {n: (value, source) for n, value, source in sources(read_document(ASSUMPTIONS).data)}


class Gpu(Strict):
    """A GPU: bytes of memory, and parameters times tokens a second; null is not known."""

    memory: float
    generating: float | None
    reading: float | None
    training: float | None
    source: str


class _Speeds(Strict):
    gpus: dict[str, Gpu]
    models: dict[str, int]


@dataclass(frozen=True)
class Hardware:
    """So many GPUs of a kind: those a plan is priced for, or those a stage holds."""

    name: str
    gpu: Gpu
    count: int


@cache
def speeds() -> _Speeds:
    """Return the GPUs whose speed is known, and the parameters of models, by name."""
    return read_declared(SPEEDS, _Speeds, "`gpus` and `models`")[0]


def parameters_of(identity: str) -> int | None:
    """Return the parameters of a model by its identity, `owner/name@revision`, where known."""
    return speeds().models.get(identity.partition("@")[0])


def hardware_of(
    profile: Profile, gpu: str | None = None, count: int | None = None
) -> Hardware | None:
    """Return the hardware that a profile is priced for; None where it names no GPU.

    Another kind of GPU, and another number of them, may be asked for.
    """
    named = profile.priced_for
    name = gpu or (named.gpu if named else None)
    if name is None:
        return None
    known = speeds().gpus
    if name not in known:
        raise UserError(
            f"nothing is known of a GPU `{name}`{nearest(name, known)}; known are "
            f"{', '.join(known)}"
        )
    number = count if count is not None else (named.gpus if named else 1)
    if not 1 <= number <= MOST_GPUS:
        shown = number if abs(number) < 10**20 else "(too large)"
        raise UserError(f"`--gpus {shown}` is no number of GPUs; give one from 1 to {MOST_GPUS}")
    return Hardware(name, known[name], number)
