"""What all reward models are to the harness: readers of token sequences, one number for each.

The model. A pointwise reward model turns a conversation that ends with an answer into tokens, and
the tokens into a reward; a pairwise one turns a conversation and two answers to it into tokens,
and these into a logit for "the first is the better one". How the tokens are made and what is read
where is each model's own affair; batching them is not, and is done here.

Rules that hold for every reader:

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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from harness.errors import HarnessError, UserError
from harness.models.loading import Conversation, batches_by_length, pad

BATCH_TOKENS = 16_384
"""Tokens read at a time (ours): enough for a large matrix product; a batch that does not fit into
memory, as eager attention over long texts may not, is halved."""

Tokens = tuple[int, ...]
OnProgress = Callable[[int, int], None]
Average = Literal["logits", "probabilities"]


class Encoded(NamedTuple):
    """What a model reads of a text: its tokens, and whether some were cut off."""

    tokens: Tokens
    cut: bool


class Comparison(NamedTuple):
    """A conversation that ends with a user's turn, and two answers to it."""

    conversation: Conversation
    first: str
    second: str


class Reader(ABC):
    """A reward model in evaluation mode with its tokenizer; shared, so not to be changed."""

    format: ClassVar[str]
    """Name of the kind of model, as a summary gives it."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        """Keep a loaded model and the tokenizer of its folder."""
        self.model = model
        self.tokenizer = tokenizer

    @abstractmethod
    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Read sequences.

        Args:
            ids: B x T token ids, padded on either side.
            mask: B x T, 1 for a token and 0 for padding.

        Returns:
            B numbers in float32: rewards, or logits.
        """


class RewardModel(Reader):
    """A reader of one answer."""

    @abstractmethod
    def encode(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """Return what is read of conversations that end with the answer to be scored."""


class PairModel(Reader):
    """A reader of two answers."""

    averages: ClassVar[Average]
    """What the two orders' mean is taken of."""

    @abstractmethod
    def encode_pairs(self, pairs: Sequence[Comparison]) -> list[Encoded]:
        """Return what is read of pairs of answers, the first in the place of the first."""


@torch.inference_mode()
def read_all(
    reader: Reader,
    sequences: Sequence[Tokens],
    *,
    batch_size: int,
    batch_tokens: int = BATCH_TOKENS,
    on_progress: OnProgress | None = None,
) -> NDArray[np.float64]:
    """Read sequences in batches of similar length.

    Args:
        reader: a loaded reward model.
        sequences: N token sequences.
        batch_size: most sequences read together.
        batch_tokens: most tokens read together, padding counted.
        on_progress: called with sequences done and in all, after each batch.

    Returns:
        N numbers, in the order of `sequences`.

    Raises:
        HarnessError: one sequence alone does not fit into the device's memory.
    """
    numbers = np.empty(len(sequences))
    done = 0
    for batch in batches_by_length(sequences, batch_size, batch_tokens):
        numbers[batch] = _read(reader, [sequences[i] for i in batch]).cpu().numpy()
        done += len(batch)
        if on_progress is not None:
            on_progress(done, len(sequences))
    return numbers


def _read(reader: Reader, rows: Sequence[Tokens]) -> torch.Tensor:
    """Read a batch, in halves where the whole does not fit into memory."""
    device = str(reader.model.device)
    try:
        return reader.read(*pad(reader.tokenizer, rows, "right", device)).float()
    except torch.OutOfMemoryError as error:
        if len(rows) == 1:
            raise HarnessError(
                f"a text of {len(rows[0])} tokens does not fit into the memory of {device} beside "
                "the reward model: free it, use bfloat16, or a larger one."
            ) from error
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
    """Return the ids of words that a tokenizer has to know as one token each.

    Raises:
        UserError: it reads one as several, or as unknown.
    """
    vocabulary = tokenizer.get_vocab()
    for word in words:
        read = tokenizer(word, add_special_tokens=False)["input_ids"]
        if read != [vocabulary.get(word)]:
            raise UserError(
                f"the tokenizer at {path} does not know {word} as one token: take the tokenizer "
                "files that were published with the reward model."
            )
    return [vocabulary[word] for word in words]


def spellings(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of some words, the longest that fits."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def without(words: re.Pattern[str], text: str) -> str:
    """Return a text with a blank in the place of every occurrence of some words.

    A blank, and not nothing, lest what is left and right of it make a new one.
    """
    return words.sub(" ", text)
