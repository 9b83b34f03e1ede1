"""Shapes of models, and what a token costs in them.

A matrix of m x n takes 2mn operations for each token. Embedding a token is a look-up and takes
none, so a scorer's table of embeddings is not counted, and a language model's only as its head.
Attention reads what came before: on average half of a sequence of s tokens, 2 x 2 x s/2 operations
for each head's dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from harness.registry.documents import read_declared
from harness.strict import Strict

FILE = Path(__file__).with_name("model_shapes.yaml")


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
    return read_declared(FILE, _Shapes, "`models`")[0].models


def shape_of(identity: str) -> Shape | None:
    """Return the shape of a model by its identity, `owner/name@revision`; None if not known."""
    return known_shapes().get(identity.partition("@")[0])
