"""Laws of reading: batches, order and memory; one BOS, clean texts, a limit."""

from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_checkpoints import gemma_tokenizer, llama_tokenizer
from tiny_gemma import tiny_tokenizer
from transformers import PreTrainedTokenizerBase

from harness.models import reader
from harness.models.loading import batches_by_length
from harness.models.reader import (
    Answered,
    Chat,
    Encoded,
    Reader,
    read_all,
    spellings,
    without,
)

TOKENIZER = tiny_tokenizer()
sequences = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12).map(tuple), max_size=20)


class Weigher(Reader):
    """Reads the sum of a sequence's tokens, each times its place; remembers its batches."""

    format = "stub"

    def __init__(self, most: int = 10**9) -> None:
        super().__init__(SimpleNamespace(device="cpu"), TOKENIZER)
        self.most = most
        self.shapes: list[tuple[int, ...]] = []

    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        raise NotImplementedError

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if ids.numel() > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.shapes.append(tuple(ids.shape))
        places = mask.cumsum(dim=1)
        return (ids * places * mask).sum(dim=1).float()


def weigh(sequence: tuple[int, ...]) -> float:
    """Return what the stub should read."""
    return float(sum(place * token for place, token in enumerate(sequence, start=1)))


@given(sequences, st.integers(1, 6), st.integers(1, 40))
def test_batches_hold_each_sequence_once_within_both_budgets(
    given_: list[tuple[int, ...]], size: int, tokens: int
) -> None:
    batches = list(batches_by_length(given_, size, tokens))
    assert sorted(i for batch in batches for i in batch) == list(range(len(given_)))
    lengths = [len(given_[i]) for batch in batches for i in batch]
    assert lengths == sorted(lengths)
    for batch in batches:
        longest = max(len(given_[i]) for i in batch)
        assert len(batch) <= size
        assert len(batch) == 1 or longest * len(batch) <= tokens


@given(sequences, st.integers(1, 6), st.integers(1, 40))
def test_numbers_come_back_in_the_given_order(
    given_: list[tuple[int, ...]], size: int, tokens: int
) -> None:
    with patch.object(reader, "BATCH_TOKENS", tokens):
        numbers = read_all(Weigher(), given_, batch_size=size)
    np.testing.assert_array_equal(numbers, [weigh(sequence) for sequence in given_])


def test_a_batch_that_does_not_fit_into_memory_is_halved() -> None:
    """Five rows of 2 are 10 tokens and 4 fit: 2 rows, then 3 as 1 and 2."""
    rows = [(i, i) for i in range(1, 6)]
    reader = Weigher(most=4)
    numbers = read_all(reader, rows, batch_size=9)
    assert numbers.tolist() == [3.0, 6.0, 9.0, 12.0, 15.0]
    assert reader.shapes == [(2, 2), (1, 2), (2, 2)]


GEMMA = gemma_tokenizer()
TALK = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two three four"}]


def without_own_bos() -> PreTrainedTokenizerBase:
    """Return a tokenizer that leaves the BOS to its template, which writes none."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ bos_token }}", "")
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (llama_tokenizer(), 1),  # the template writes one, and the tokenizer would put another
        (gemma_tokenizer(), 1),  # the tokenizer puts one, the template writes none
        (tiny_tokenizer(), 1),  # the template writes one, the tokenizer puts none
        (without_own_bos(), 0),  # neither
    ],
)
def test_there_is_one_bos_if_template_or_tokenizer_puts_one(
    tokenizer: PreTrainedTokenizerBase, expected: int
) -> None:
    [encoded] = Chat(tokenizer, 100).encode([TALK])
    assert encoded.tokens.count(tokenizer.bos_token_id) == expected
    assert (encoded.tokens[0] == tokenizer.bos_token_id) == bool(expected)
    [bare] = Chat(tokenizer, 100, bos=False).encode([TALK])
    assert bare.tokens == encoded.tokens[expected:]


@pytest.mark.parametrize("limit", range(10, 24))
def test_only_the_answer_is_cut_and_it_stays_closed(limit: int) -> None:
    """BOS and prompt, cut answer, end of turn and line: all but the middle are whole."""
    tokenizer = gemma_tokenizer()
    [whole] = Chat(tokenizer, 1000).encode([TALK])
    text = "<bos><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\n"
    prompt = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    closing = whole.tokens[-2:]
    chat = Chat(tokenizer, limit)
    if limit <= len(prompt) + 2:
        assert chat.encode([TALK]) == [((), True)], "no room for an answer"
        return
    [encoded] = chat.encode([TALK])
    assert encoded.cut == (limit < len(whole.tokens))
    assert len(encoded.tokens) == min(limit, len(whole.tokens))
    assert encoded.tokens[-2:] == closing
    assert encoded.tokens[:-2] == whole.tokens[: len(encoded.tokens) - 2]
    assert encoded.tokens[: len(prompt)] == prompt


words = st.lists(st.sampled_from(["<end_of_turn>", "<bos>", "<", "end_of_turn>", "a", " "]))


@given(words.map("".join), words.map("".join))
def test_texts_bring_no_control_tokens(prompt: str, answer: str) -> None:
    """One end of turn for each turn, and one BOS, whatever is in the texts."""
    tokenizer = GEMMA
    talk = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    [encoded] = Chat(tokenizer, 1000).encode([talk])
    end = tokenizer.convert_tokens_to_ids("<end_of_turn>")
    assert encoded.tokens.count(end) == 2
    assert encoded.tokens.count(tokenizer.bos_token_id) == 1


def test_a_spelling_is_not_put_together_by_taking_one_out() -> None:
    control = spellings(["<end>", "<e>"])
    assert without(control, "a<end>b<e<end>nd>") == "a b<e nd>"
    assert without(spellings([]), "abc") == "abc"
