"""Engine requests and answers: token ids, with a seed per answer.

Engines are sent token ids, never text: a server that renders or tokenizes by itself would prepend a
second BOS to the template's (as in the authors' code), or use a different template than training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transformers import AutoConfig, PreTrainedTokenizerBase

from harness.errors import UserError
from harness.models.loading import (
    Conversation,
    load_tokenizer,
    read_config,
    stop_token_ids,
    tokenize,
)
from harness.models.policy import Completion


@dataclass(frozen=True)
class Sampling:
    """Sampling settings: 0 is greedy, `stops` are token ids, and top-k is always off."""

    temperature: float
    top_p: float
    stops: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """A prompt and the seeds of its answers."""

    position: int
    """Index of the prompt among the stage's prompts."""
    tokens: tuple[int, ...]
    """The rendered prompt."""
    seeds: tuple[int, ...]
    """One per answer, 31 bits."""
    room: int
    """Maximum answer length, in tokens."""


AnswersOf = dict[int, list[Completion]]
"""Answers by prompt position."""


class SolverEngine(Protocol):
    """Generates answers to prompts."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        deliver: Callable[[AnswersOf], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts, delivering all answers of some prompts at a time, in any order.

        Those `done` are skipped, without a change in how an engine composes its batches.
        """
        ...


GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Name suffixes of architectures that generate text."""


def seed_of(root: int, position: int, sample: int) -> int:
    """Derive an answer's 31-bit seed from the stage's seed, prompt position and sample index."""
    digest = hashlib.sha256(f"{root} {position} {sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


class Renderer:
    """A policy's tokenizer, context length in tokens, and stop tokens."""

    def __init__(self, folder: Path, max_length: int | None = None) -> None:
        names = [str(name) for name in read_config(folder).get("architectures") or []]
        if not any(name.endswith(GENERATES) for name in names):
            raise UserError(
                f"the checkpoint at {folder} has the architecture {', '.join(names) or 'none'}, "
                "which writes no text: a policy is a causal language model."
            )
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(folder)
        config: Any = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        reads = int(config.get_text_config().max_position_embeddings)
        self.context = reads if max_length is None else min(reads, max_length)
        self.stops = tuple(stop_token_ids(self.tokenizer))

    def requests(
        self, conversations: Sequence[Conversation], *, n: int, seed: int, max_new_tokens: int
    ) -> list[Request]:
        """Return requests for n answers to each conversation that leaves room in the context."""
        rendered = tokenize(self.tokenizer, conversations, add_generation_prompt=True)
        return [
            Request(
                position,
                tuple(tokens),
                tuple(seed_of(seed, position, sample) for sample in range(n)),
                min(max_new_tokens, self.context - len(tokens)),
            )
            for position, tokens in enumerate(rendered)
            if len(tokens) < self.context
        ]

    def count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
