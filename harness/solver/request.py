"""What is asked of an engine and what it gives back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; from all tokens, since no engine's own top-k is left in force.

    Attributes:
        temperature: divides the logits; 0 for greedy decoding.
        top_p: nucleus mass, in (0, 1].
        stops: token ids that end an answer.
        log_probabilities: whether the log-probability of each token is wanted too.
    """

    temperature: float
    top_p: float
    stops: tuple[int, ...]
    log_probabilities: bool = False


@dataclass(frozen=True)
class Asked:
    """A prompt and the answers wanted of it.

    Attributes:
        position: the prompt's place in what the stage asks.
        tokens: the rendered prompt.
        seeds: one for each answer, 31 bits.
        room: longest answer, in tokens.
    """

    position: int
    tokens: tuple[int, ...]
    seeds: tuple[int, ...]
    room: int


@dataclass(frozen=True)
class Sample:
    """One answer.

    Attributes:
        text: it, without special tokens and surrounding blanks.
        n_tokens: tokens before the end of the turn (that token not counted).
        tokens: those tokens, where the engine tells them.
        log_probabilities: of each of them under the model as it is, before temperature and nucleus;
            only where asked for.
    """

    text: str
    n_tokens: int
    tokens: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()


Answered = dict[int, list[Sample]]
"""Answers by the position of their prompt."""


class Engine(Protocol):
    """Answers prompts."""

    def answer(
        self,
        asked: Sequence[Asked],
        sampling: Sampling,
        deliver: Callable[[Answered], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts, and deliver the answers as they are finished, in any order.

        Args:
            asked: all prompts.
            sampling: how answers are drawn.
            deliver: receives all answers of a prompt at once, of one or more prompts.
            done: positions of the prompts that are answered already. They are passed by, but an
                engine that batches by length makes the batches that it would make without them.

        Raises:
            HarnessError: the engine cannot go on; what was delivered stays good.
        """
        ...


def seed_of(root: int, position: int, sample: int) -> int:
    """Return the seed of an answer, 31 bits, from its stage's seed, its prompt and its number."""
    digest = hashlib.sha256(f"{root} {position} {sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
