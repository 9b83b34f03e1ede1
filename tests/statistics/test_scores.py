"""A score matrix is complete: every seed has every prompt, and comparisons align by id."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.statistics import NestedScores, ScoreMatrix, paired_difference


def test_rows_are_seeds_in_order_and_columns_are_prompts() -> None:
    matrix = ScoreMatrix.from_seeds({2: {"p": 3.0, "q": 4.0}, 0: {"q": 2.0, "p": 1.0}})
    assert matrix.seeds == (0, 2)
    assert matrix.prompts == ("q", "p")
    assert matrix.values.tolist() == [[2.0, 1.0], [4.0, 3.0]]


def test_a_seed_without_a_prompt_is_an_error() -> None:
    with pytest.raises(HarnessError, match="prompts of seed 0 and seed 1 differ in 1 ids"):
        ScoreMatrix.from_seeds({0: {"p": 1.0, "q": 2.0}, 1: {"p": 1.0}})
    with pytest.raises(HarnessError, match="at least one seed"):
        ScoreMatrix.from_seeds({})


def test_pairing_goes_by_id_and_not_by_position() -> None:
    a = ScoreMatrix.from_seeds({0: {"p": 1.0, "q": 2.0}, 1: {"p": 3.0, "q": 5.0}})
    b = ScoreMatrix(np.array([[5.0, 3.0], [2.0, 1.0]]), seeds=(1, 0), prompts=("q", "p"))
    assert a.minus(b).values.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_other_seeds_or_other_prompts_cannot_be_paired() -> None:
    a = ScoreMatrix(np.ones((2, 2)), (0, 1), ("p", "q"))
    with pytest.raises(HarnessError, match="same seeds only"):
        paired_difference(a, ScoreMatrix(np.ones((2, 2)), (0, 2), ("p", "q")))
    with pytest.raises(HarnessError, match="same prompts only"):
        paired_difference(a, ScoreMatrix(np.ones((2, 2)), (0, 1), ("p", "r")))


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0], [[1.0], [2.0]], [[1.0, float("nan")], [2.0, 3.0]], np.zeros((0, 3))],
    ids=["one-dimensional", "one prompt", "not finite", "no seed"],
)
def test_incomplete_data_is_an_error(values: object) -> None:
    with pytest.raises(HarnessError):
        ScoreMatrix.of(values)  # type: ignore[arg-type]


def test_a_repeated_id_is_an_error() -> None:
    with pytest.raises(HarnessError, match="prompt appears twice"):
        ScoreMatrix(np.ones((1, 2)), (0,), ("p", "p"))


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (3, 2)])
def test_values_have_a_row_for_each_seed_and_a_column_for_each_prompt(
    shape: tuple[int, int],
) -> None:
    assert ScoreMatrix(np.zeros((2, 3)), (0, 1), ("p", "q", "r")).mean == 0.0
    with pytest.raises(HarnessError, match="one row per seed"):
        ScoreMatrix(np.zeros(shape), (0, 1), ("p", "q", "r"))


@pytest.mark.parametrize(("apart", "level"), [(0.0, 2.0), (5e-10, 2.0), (2e-9, None)])
def test_values_that_are_one_number_are_a_level(apart: float, level: float | None) -> None:
    assert ScoreMatrix.of([[2.0, 2.0], [2.0, 2.0 + apart]]).level == level


def test_a_number_in_the_place_of_scores_has_their_seeds_and_prompts() -> None:
    matrix = ScoreMatrix(np.array([[1.0, 2.0], [3.0, 4.0]]), (5, 7), ("p", "q"))
    same = matrix.constant(2.5)
    assert (same.level, same.seeds, same.prompts) == (2.5, (5, 7), ("p", "q"))
    assert matrix.minus(same).values.tolist() == [[-1.5, -0.5], [0.5, 1.5]]


def test_scores_of_answers_and_of_prompts_are_of_two_kinds() -> None:
    matrix = ScoreMatrix.of([[1.0, 2.0], [3.0, 4.0]])
    own = NestedScores.from_seeds({0: {"p": 1.0, "q": 2.0}, 1: {"r": 1.0, "s": 2.0}})
    for one, other in ((matrix, own), (own, matrix)):
        with pytest.raises(HarnessError, match="two columns of one kind"):
            one.plus(other)
