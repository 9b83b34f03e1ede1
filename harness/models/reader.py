"""The interface of all reward models: readers that map token sequences to one number each.

- Up to rounding, a sequence's output does not depend on its batch: padding is on the right and
  masked.
- The head is computed in float32, whatever the dtype of the network. In bfloat16, rewards near 9
  have steps of 1/16, and answers to a prompt would tie.
- Texts are untrusted: spellings of control tokens are removed before rendering.
- Texts over a model's limit are truncated by the model's rule, and counted.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from harness.errors import UserError
from harness.models.loading import Conversation, Message, batches_by_length, pad, tokenize

BATCH_TOKENS = 16_384
"""Tokens per batch (ours): enough for a large matrix product. A batch that does not fit in memory,
as may happen with eager attention over long texts, is halved."""

Tokens = tuple[int, ...]
Average = Literal["logits", "probabilities"]


class Encoded(NamedTuple):
    """A text's tokens as read by a model (none if no answer fits), and whether it was truncated."""

    tokens: Tokens
    cut: bool


class Answered(NamedTuple):
    """A conversation that ends with a user turn, and the one or two answers to read."""

    conversation: Conversation
    answers: tuple[str, ...]

    @property
    def turns(self) -> list[Message]:
        said = ({"role": "assistant", "content": answer} for answer in self.answers)
        return [*self.conversation, *said]


class Reader(ABC):
    """A reward model in evaluation mode with its tokenizer; shared, so do not modify it."""

    format: str
    """Name of the kind of model, shown in summaries."""
    averages: Average | None = None
    """What is averaged over both orders of two answers; None if it reads a single answer."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model
        self.tokenizer = tokenizer

    @abstractmethod
    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        """Return the token sequences to read; two answers keep their order."""

    @abstractmethod
    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return B float32 rewards or logits from B x T ids and mask, padded on either side."""


@torch.inference_mode()
def read_all(
    reader: Reader, sequences: Sequence[Tokens], *, batch_size: int
) -> NDArray[np.float64]:
    """Read N sequences in batches of similar length; return N numbers, NaN for empty sequences."""
    numbers = np.full(len(sequences), np.nan)
    read = [i for i, sequence in enumerate(sequences) if sequence]
    for batch in batches_by_length([sequences[i] for i in read], batch_size, BATCH_TOKENS):
        places = [read[i] for i in batch]
        numbers[places] = _read(reader, [sequences[i] for i in places]).cpu().numpy()
    return numbers


def _read(reader: Reader, rows: Sequence[Tokens]) -> torch.Tensor:
    """Read a batch, halving it if it does not fit in memory."""
    try:
        ids, mask = pad(reader.tokenizer, rows, "right", str(reader.model.device))
        return reader.read(ids, mask).float()
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    # Outside the handler, so that the failed attempt's tensors are freed.
    middle = len(rows) // 2
    return torch.cat([_read(reader, rows[:middle]), _read(reader, rows[middle:])])


def last_tokens(mask: torch.Tensor) -> torch.Tensor:
    """Return the position of each row's last token, shape (B,), padded on either side."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return (places * mask.bool()).argmax(dim=1)


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the spellings of the tokenizer's special tokens, which no text should contain."""
    added = tokenizer.added_tokens_decoder.values()
    return sorted({*tokenizer.all_special_tokens, *(str(t) for t in added if t.special)})


def single_tokens(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], path: Path
) -> list[int]:
    """Return the ids of words that the tokenizer must encode as one token each."""
    read = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    for word, ids in zip(words, read, strict=True):
        if ids != [tokenizer.get_vocab().get(word)]:
            raise UserError(
                f"the tokenizer at {path} does not know {word} as one token: use the tokenizer "
                "files published with the reward model."
            )
    return [ids[0] for ids in read]


def spellings(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the words, preferring the longest."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def without(words: re.Pattern[str], text: str) -> str:
    """Replace the words by spaces, so that the text around them cannot join into a new one."""
    return words.sub(" ", text)


class Chat:
    """Renders and encodes conversations with the chat template in a model's folder, with one BOS.

    A conversation over the limit (in tokens) loses tokens from the end of its answer but keeps
    the closing ones. This rule is ours: the authors' code truncates those too.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, limit: int, *, bos: bool = True) -> None:
        self.tokenizer = tokenizer
        self.limit = limit
        self._control = spellings(control_tokens(tokenizer))
        self._with_bos = bos
        self._puts_bos = self._begins_with_bos(tokenizer("")["input_ids"])

    def encode(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """Return the tokens of conversations that end with an answer, truncated to the limit."""
        return [
            Encoded(tuple(ids), False)
            if len(ids) <= self.limit
            else Encoded(tuple(self._cut(conversation, ids)), True)
            for conversation, ids in zip(conversations, self.render(conversations), strict=True)
        ]

    def render(
        self, conversations: Sequence[Conversation], *, add_generation_prompt: bool = False
    ) -> list[list[int]]:
        """Return the tokens of whole conversations, without a length limit."""
        cleaned = [
            [{**m, "content": without(self._control, m["content"])} for m in conversation]
            for conversation in conversations
        ]
        ids = tokenize(self.tokenizer, cleaned, add_generation_prompt=add_generation_prompt)
        return [self._with_one_bos(row) for row in ids]

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        if self._begins_with_bos(ids):
            return ids if self._with_bos else ids[1:]
        put = self._with_bos and self._puts_bos
        return [self.tokenizer.bos_token_id, *ids] if put else ids

    def _begins_with_bos(self, ids: list[int]) -> bool:
        return bool(ids) and ids[0] == self.tokenizer.bos_token_id

    def _cut(self, conversation: Conversation, ids: list[int]) -> list[int]:
        """Truncate the answer but keep its closing tokens; empty if none of the answer fits."""
        [empty] = self.render([[*conversation[:-1], {**conversation[-1], "content": ""}]])
        before = shared_prefix(ids, empty)
        closing = shared_prefix(ids[before:][::-1], empty[before:][::-1])
        if before + closing >= self.limit:
            return []
        return [*ids[: self.limit - closing], *ids[len(ids) - closing :]]


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
