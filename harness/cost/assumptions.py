"""What the cost model is given, as data with sources: assumptions, GPUs, and shapes of models.

A matrix of m x n takes 2mn operations for each token. Embedding a token is a look-up and takes
none, so a scorer's table of embeddings is not counted, and a language model's only as its head.
Attention reads what came before: on average half of a sequence of s tokens, 2 x 2 x s/2 operations
for each head's dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.registry.documents import nearest, read_declared, read_document
from harness.registry.profile import Profile, sources
from harness.strict import Strict

ASSUMPTIONS = Path(__file__).with_name("assumptions.yaml")
GPUS = Path(__file__).with_name("gpus.yaml")
SHAPES = Path(__file__).with_name("model_shapes.yaml")

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
    return read_declared(ASSUMPTIONS, Assumptions, "the assumptions")[0]


@cache
def listed() -> Mapping[str, tuple[Any, str]]:
    """Return each assumption by its dotted name: its value, and the source beside it."""
    return sources(read_document(ASSUMPTIONS))


class Gpu(Strict):
    """A GPU's data sheet."""

    flops: float
    """Dense bf16 operations in a second, at most."""
    bandwidth: float
    """Bytes of its memory read in a second, at most."""
    memory: float
    """Bytes of memory."""


class _Gpus(Strict):
    gpus: dict[str, Gpu]


@dataclass(frozen=True)
class Hardware:
    """So many GPUs of a kind: those a plan is priced for, or those a stage holds."""

    name: str
    gpu: Gpu
    count: int


@cache
def known_gpus() -> Mapping[str, Gpu]:
    """Return the GPUs that are known, by name."""
    return read_declared(GPUS, _Gpus, "`gpus`")[0].gpus


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
    if name not in known_gpus():
        raise UserError(
            f"no data sheet of a GPU `{name}` is known{nearest(name, known_gpus())}; known are "
            f"{', '.join(known_gpus())}"
        )
    number = count if count is not None else (named.gpus if named else 1)
    if not 1 <= number <= MOST_GPUS:
        shown = number if abs(number) < 10**20 else "(too large)"
        raise UserError(f"`--gpus {shown}` is no number of GPUs; give one from 1 to {MOST_GPUS}")
    return Hardware(name, known_gpus()[name], number)


class Shape(Strict):
    """A transformer's sizes."""

    parameters: int
    """Numbers in the published weights."""
    layers: int
    """Layers."""
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward layer."""
    heads: int
    """Attention heads."""
    kv_heads: int
    """Heads of keys and values."""
    head_dim: int
    """Width of a head."""
    vocabulary: int
    """Tokens in the vocabulary."""
    tied: bool
    """Whether the language head is the table of embeddings."""
    head: Literal["language", "scalar"]
    """What is read off the last layer."""
    gated: bool = True
    """Whether the feed-forward layer has a gate, a third matrix."""
    biases: bool = False
    """Whether linear maps have biases."""

    @property
    def layer_matrices(self) -> int:
        """Numbers in the matrices of one layer."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        feed_forward = self.hidden * self.intermediate * (3 if self.gated else 2)
        return attention + feed_forward

    @property
    def matrices(self) -> int:
        """Numbers in the matrices that each token is multiplied with, the head's included."""
        head = self.vocabulary * self.hidden if self.head == "language" else 0
        return self.layers * self.layer_matrices + head

    def forward_flops(self, length: float) -> float:
        """Return the operations for one token of a sequence of a length, in the mean."""
        attention = 2 * self.layers * self.heads * self.head_dim * length
        return 2.0 * self.matrices + attention

    def cache_bytes(self, width: int = 2) -> int:
        """Return the bytes of keys and values that a token leaves, at a number's width."""
        return 2 * self.layers * self.kv_heads * self.head_dim * width


class _Shapes(Strict):
    models: dict[str, Shape]


@cache
def known_shapes() -> Mapping[str, Shape]:
    """Return the shapes of the models that are known, by name."""
    return read_declared(SHAPES, _Shapes, "`models`")[0].models


def shape_of(identity: str) -> Shape | None:
    """Return the shape of a model by its identity, `owner/name@revision`; None if not known."""
    return known_shapes().get(identity.partition("@")[0])
