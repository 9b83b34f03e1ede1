"""What the cost model assumes, as data: numbers with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.registry.documents import read_declared, read_document
from harness.registry.profile import sources
from harness.strict import Strict

FILE = Path(__file__).with_name("assumptions.yaml")


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


class GpuUse(Strict):
    """How well a GPU is used."""

    training: float
    scoring: float
    decoding_flops: float
    decoding_bandwidth: float
    memory: float
    sequences: int
    checkpointing: bool
    start_s: float


class Disk(Strict):
    """Bytes."""

    parameter: int
    moments: int
    checkpoint: int
    token: int
    row: int


class Uncertainty(Strict):
    """By which factor an estimate may be off, either way."""

    gpu: float
    money: float


class Assumptions(Strict):
    """Everything the cost model assumes."""

    tokens: Tokens
    benchmarks: Benchmarks
    creator: Creator
    gpu: GpuUse
    disk: Disk
    uncertainty: Uncertainty


@cache
def assumptions() -> Assumptions:
    """Return what the cost model assumes."""
    return read_declared(FILE, Assumptions, "the assumptions")[0]


@cache
def listed() -> Mapping[str, tuple[Any, str]]:
    """Return each assumption by its dotted name: its value, and the source beside it."""
    return sources(read_document(FILE))
