"""What all reward models are to the harness: readers of token sequences, one number for each.

- A sequence has one outcome, whatever it is batched with (beyond rounding): padding is on the
  right and masked.
- The head on top of the network is computed in float32 whatever the network runs in. In bfloat16 a
  reward of 9 has steps of 1/16, and the answers to a prompt would tie.
- Texts are untrusted: what spells a control token in them is taken out before they are rendered.
- What is longer than a model's limit is cut by the model's rule, and counted.
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
"""Tokens read at a time (ours): enough for a large matrix product; a batch that does not fit into
memory, as eager attention over long texts may not, is halved."""

Tokens = tuple[int, ...]
Average = Literal["logits", "probabilities"]


class Encoded(NamedTuple):
    """What a model reads of a text: its tokens, and whether some were cut off.

    There are none where the prompt alone leaves no room for an answer; that text has no reward.
    """

    tokens: Tokens
    cut: bool


class Answered(NamedTuple):
    """A conversation that ends with a user's turn, and the one or two answers that are read."""

    conversation: Conversation
    answers: tuple[str, ...]

    @property
    def turns(self) -> list[Message]:
        said = ({"role": "assistant", "content": answer} for answer in self.answers)
        return [*self.conversation, *said]


class Reader(ABC):
    """A reward model in evaluation mode with its tokenizer; shared, so not to be changed."""

    format: str
    """Name of the kind of model, as a summary gives it."""
    averages: Average | None = None
    """What the mean over both orders of two answers is taken of; None if one answer is read."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model
        self.tokenizer = tokenizer

    @abstractmethod
    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        """Return what is read of answers; of two, the first stands in the first place."""

    @abstractmethod
    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return B numbers in float32, rewards or logits, of B x T token ids and their mask.

        They may be padded on either side.
        """


@torch.inference_mode()
def read_all(
    reader: Reader,
    sequences: Sequence[Tokens],
    *,
    batch_size: int,
    batch_tokens: int = BATCH_TOKENS,
) -> NDArray[np.float64]:
    """Read N sequences in batches of similar length; return N numbers, NaN for one of no tokens."""
    numbers = np.full(len(sequences), np.nan)
    read = [i for i, sequence in enumerate(sequences) if sequence]
    for batch in batches_by_length([sequences[i] for i in read], batch_size, batch_tokens):
        places = [read[i] for i in batch]
        numbers[places] = _read(reader, [sequences[i] for i in places]).cpu().numpy()
    return numbers


def _read(reader: Reader, rows: Sequence[Tokens]) -> torch.Tensor:
    """Read a batch, in halves where the whole does not fit into memory."""
    try:
        ids, mask = pad(reader.tokenizer, rows, "right", str(reader.model.device))
        return reader.read(ids, mask).float()
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    # Out here the failed attempt's tensors are free again.
    middle = len(rows) // 2
    return torch.cat([_read(reader, rows[:middle]), _read(reader, rows[middle:])])


def last_tokens(mask: torch.Tensor) -> torch.Tensor:
    """Return the position of each row's last token, shape (B,), padded on either side."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return (places * mask.bool()).argmax(dim=1)


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return what spells a token that no text should contain: a tokenizer's special tokens."""
    added = tokenizer.added_tokens_decoder.values()
    return sorted({*tokenizer.all_special_tokens, *(str(t) for t in added if t.special)})


def single_tokens(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], path: Path
) -> list[int]:
    """Return the ids of words that a tokenizer has to know as one token each."""
    read = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    for word, ids in zip(words, read, strict=True):
        if ids != [tokenizer.get_vocab().get(word)]:
            raise UserError(
                f"the tokenizer at {path} does not know {word} as one token: take the tokenizer "
                "files that were published with the reward model."
            )
    return [ids[0] for ids in read]


def spellings(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of some words, the longest that fits."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def without(words: re.Pattern[str], text: str) -> str:
    """Return a text with blanks in place of some words, lest what is around them make a new one."""
    return words.sub(" ", text)


class Chat:
    """Renders conversations with the chat template of a model's folder, and encodes them.

    There is exactly one BOS where the tokenizer puts one or the template writes one, and none for a
    model that was trained without. Of the published templates some write it and some leave it to
    the tokenizer, and doing both doubles it.

    A conversation over the limit (in tokens) loses tokens from the end of its answer, and keeps
    those that close it; the prompt is never cut, and one that fills the limit leaves nothing to
    read. This rule is ours: the authors' code cuts from the end, with the tokens that close the
    answer.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, path: Path, limit: int, *, bos: bool = True
    ) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"the tokenizer at {path} has no chat template, so what the reward model should "
                "read is not known: take the tokenizer files that were published with it."
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token  # masked, so any token would do
        self.tokenizer = tokenizer
        self.limit = limit
        self._control = spellings(control_tokens(tokenizer))
        self._with_bos = bos
        self._puts_bos = self._begins_with_bos(tokenizer("")["input_ids"])

    def encode(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """Return the tokens of conversations that end with an answer, cut to the limit."""
        return [
            Encoded(tuple(ids), False)
            if len(ids) <= self.limit
            else Encoded(tuple(self._cut(conversation, ids)), True)
            for conversation, ids in zip(conversations, self.render(conversations), strict=True)
        ]

    def render(
        self, conversations: Sequence[Conversation], *, add_generation_prompt: bool = False
    ) -> list[list[int]]:
        """Return the tokens of whole conversations, however long they are."""
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
        """Return the first tokens of a conversation and those that close its answer, if any fit."""
        [empty] = self.render([[*conversation[:-1], {**conversation[-1], "content": ""}]])
        before = shared_prefix(ids, empty)
        closing = shared_prefix(ids[before:][::-1], empty[before:][::-1])
        if before + closing >= self.limit:
            return []
        return [*ids[: self.limit - closing], *ids[len(ids) - closing :]]


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
