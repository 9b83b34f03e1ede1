"""What is asked of an engine and what it gives back: token ids, with a seed for each answer.

Engines are sent token ids and never text: a server that renders or tokenises by itself would put a
second BOS before the one of the template (as the authors' code does), or use another template than
the training.
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


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; from all tokens, since no engine's own top-k is left in force.

    Attributes:
        temperature: divides the logits; 0 for greedy decoding.
        top_p: nucleus mass, in (0, 1].
        stops: token ids that end an answer.
    """

    temperature: float
    top_p: float
    stops: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """A prompt and the answers wanted of it."""

    position: int
    """The prompt's place in what the stage asks."""
    tokens: tuple[int, ...]
    """The rendered prompt."""
    seeds: tuple[int, ...]
    """One for each answer, 31 bits."""
    room: int
    """Longest answer, in tokens."""


@dataclass(frozen=True)
class Sample:
    """One answer.

    Attributes:
        text: it, without special tokens and surrounding blanks.
        n_tokens: tokens before the end of the turn (that token not counted).
        tokens: those tokens, where the engine tells them.
    """

    text: str
    n_tokens: int
    tokens: tuple[int, ...] = ()


Answered = dict[int, list[Sample]]
"""Answers by the position of their prompt."""


class SolverEngine(Protocol):
    """Answers prompts."""

    def answer(
        self,
        asked: Sequence[Request],
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


GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of the names of architectures that write text."""


def seed_of(root: int, position: int, sample: int) -> int:
    """Return the seed of an answer, 31 bits, from its stage's seed, its prompt and its number."""
    digest = hashlib.sha256(f"{root} {position} {sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


class Renderer:
    """A policy's tokenizer with what is known of its model.

    Attributes:
        tokenizer: the policy's.
        context: longest sequence its model reads, or is to read, in tokens.
        stops: token ids that end an answer.
    """

    def __init__(self, folder: Path, max_length: int | None = None) -> None:
        names = [str(name) for name in read_config(folder).get("architectures") or []]
        if not any(name.endswith(GENERATES) for name in names):
            raise UserError(
                f"the checkpoint at {folder} has the architecture {', '.join(names) or 'none'}, "
                "which writes no text: a policy is a causal language model."
            )
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(folder)
        if not self.tokenizer.chat_template:
            raise UserError(
                f"the tokenizer at {folder} has no chat template, so how the policy is asked is "
                "not known: take the tokenizer files of the instruction-tuned model."
            )
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token  # masked, so any token would do
        config: Any = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        reads = int(config.get_text_config().max_position_embeddings)
        self.context = reads if max_length is None else min(reads, max_length)
        self.stops = tuple(stop_token_ids(self.tokenizer))

    def requests(
        self, conversations: Sequence[Conversation], *, n: int, seed: int, max_new_tokens: int
    ) -> list[Request]:
        """Return what an engine is asked for n answers to each conversation.

        An answer is cut where the context ends if that comes before `max_new_tokens`. A prompt that
        leaves no room for one is not asked.
        """
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

    def text(self, tokens: Sequence[int]) -> str:
        """Return an answer's text without special tokens and surrounding blanks."""
        text = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text).strip()

    def count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
