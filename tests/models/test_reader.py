"""Laws of reading many sequences: batches, order, memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_gemma import tiny_tokenizer

from harness.errors import HarnessError
from harness.models.loading import batches_by_length
from harness.models.reader import Reader, last_tokens, read_all

TOKENIZER = tiny_tokenizer()
sequences = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12).map(tuple), max_size=20)


class Weigher(Reader):
    """Reads the sum of a sequence's tokens, each times its place; remembers its batches."""

    format = "stub"

    def __init__(self, most: int = 10**9) -> None:
        super().__init__(SimpleNamespace(device="cpu"), TOKENIZER)
        self.most = most
        self.shapes: list[tuple[int, ...]] = []

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


def test_batches_are_as_full_as_the_budget_lets_them() -> None:
    """Lengths 1 1 2 3 3 9 and 6 tokens: 1+1+2 padded is 6; 3+3 is 6; 9 goes alone."""
    rows = [[0] * n for n in (3, 1, 9, 1, 3, 2)]
    assert list(batches_by_length(rows, 99, 6)) == [[1, 3, 5], [0, 4], [2]]
    assert list(batches_by_length(rows, 2, 6)) == [[1, 3], [5, 0], [4], [2]]
    assert list(batches_by_length(rows, 4)) == [[1, 3, 5, 0], [4, 2]]


@given(sequences, st.integers(1, 6), st.integers(1, 40))
def test_numbers_come_back_in_the_given_order(
    given_: list[tuple[int, ...]], size: int, tokens: int
) -> None:
    numbers = read_all(Weigher(), given_, batch_size=size, batch_tokens=tokens)
    np.testing.assert_array_equal(numbers, [weigh(sequence) for sequence in given_])


def test_a_batch_that_does_not_fit_into_memory_is_halved() -> None:
    """Five rows of 2 are 10 tokens and 4 fit: 2 rows, then 3 as 1 and 2."""
    rows = [(i, i) for i in range(1, 6)]
    reader = Weigher(most=4)
    numbers = read_all(reader, rows, batch_size=9)
    assert numbers.tolist() == [3.0, 6.0, 9.0, 12.0, 15.0]
    assert reader.shapes == [(2, 2), (1, 2), (2, 2)]


def test_a_text_that_does_not_fit_into_memory_is_one_clear_error() -> None:
    with pytest.raises(HarnessError, match=r"a text of 5 tokens does not fit .* of cpu"):
        read_all(Weigher(most=4), [(1,), (1, 2, 3, 4, 5)], batch_size=9)


def test_the_last_token_is_found_on_either_side() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]])
    assert last_tokens(mask).tolist() == [1, 3, 3, 0]
