"""Laws of pieces: disjoint, whole, in the order of the library's shuffle."""

from __future__ import annotations

from itertools import pairwise

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.worlds.real.prompts import SHORTEST, piece_bounds, positions


def test_ultrafeedback_makes_six_nearly_equal_pieces() -> None:
    """59,720 / 6 = 9,953 1/3: four pieces of 9,953 and two of 9,954."""
    bounds = piece_bounds(59_720, 10_000, 6)
    sizes = sorted(after - before for before, after in pairwise(bounds))
    assert sizes == [9953] * 4 + [9954] * 2
    assert (bounds[0], bounds[-1]) == (0, 59_720)


def test_a_pool_that_is_large_enough_makes_pieces_of_x() -> None:
    assert piece_bounds(59_720, 2_000, 6) == [0, 2000, 4000, 6000, 8000, 10_000, 12_000]


def test_a_pool_that_is_much_too_small_is_refused() -> None:
    """95% of 6 x 100 are 570."""
    assert piece_bounds(570, 100, 6)[-1] == 570
    with pytest.raises(UserError, match="569 prompts are too few for 6 pieces of 100"):
        piece_bounds(569, 100, 6)


@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 6), st.integers(0, 10))
def test_pieces_of_a_seed_share_no_prompt(seed: int, x: int, pieces: int, missing: int) -> None:
    size = max(int(SHORTEST * x * pieces) + 1, x * pieces - missing)
    cut = [positions(size, seed, x, pieces, x * i, x) for i in range(pieces)]
    joined = [position for piece in cut for position in piece]
    assert joined == positions(size, seed, x, pieces, 0, x * pieces)
    assert len(set(joined)) == len(joined) == min(size, x * pieces)
    assert set(joined) <= set(range(size))
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_the_order_is_that_of_the_librarys_shuffle() -> None:
    """With the seed of the authors' script, their order."""
    shuffled = Dataset.from_dict({"i": list(range(500))}).shuffle(seed=8964)
    assert positions(500, 8964, 100, 5, 0, 500) == shuffled["i"][:]


def test_another_seed_cuts_in_another_order() -> None:
    assert positions(600, 0, 100, 6, 0, 100) != positions(600, 1, 100, 6, 0, 100)
    assert positions(600, 0, 100, 6, 0, 100) == positions(600, 0, 100, 6, 0, 100)


@pytest.mark.parametrize(("first", "count"), [(50, 100), (0, 150), (500, 200)])
def test_only_whole_pieces_that_there_are_can_be_cut(first: int, count: int) -> None:
    with pytest.raises(UserError, match="not whole pieces of 100 among 6"):
        positions(600, 0, 100, 6, first, count)
