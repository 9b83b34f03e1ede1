"""A score matrix is complete: every seed has every prompt, and comparisons align by id."""

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.statistics import ScoreMatrix, paired_difference


def test_rows_are_seeds_in_order_and_columns_are_prompts() -> None:
    matrix = ScoreMatrix.from_seeds({2: {"p": 3.0, "q": 4.0}, 0: {"q": 2.0, "p": 1.0}})
    assert matrix.seeds == (0, 2)
    assert matrix.prompts == ("q", "p")
    assert matrix.values.tolist() == [[2.0, 1.0], [4.0, 3.0]]


def test_a_seed_without_a_prompt_is_an_error() -> None:
    with pytest.raises(HarnessError, match="prompts of seed 0 and seed 1 differ in 1 ids"):
        ScoreMatrix.from_seeds({0: {"p": 1.0, "q": 2.0}, 1: {"p": 1.0}})


def test_pairing_goes_by_id_and_not_by_position() -> None:
    a = ScoreMatrix.from_seeds({0: {"p": 1.0, "q": 2.0}, 1: {"p": 3.0, "q": 5.0}})
    b = ScoreMatrix(np.array([[5.0, 3.0], [2.0, 1.0]]), seeds=(1, 0), prompts=("q", "p"))
    assert a.minus(b).values.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_other_prompts_cannot_be_paired() -> None:
    a = ScoreMatrix(np.ones((2, 2)), (0, 1), ("p", "q"))
    with pytest.raises(HarnessError, match="same prompts only"):
        paired_difference(a, ScoreMatrix(np.ones((2, 2)), (0, 1), ("p", "r")))


@pytest.mark.parametrize(
    "values",
    [[[1.0], [2.0]], [[1.0, float("nan")], [2.0, 3.0]]],
    ids=["one prompt", "not finite"],
)
def test_incomplete_data_is_an_error(values: object) -> None:
    with pytest.raises(HarnessError):
        ScoreMatrix.of(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("apart", "level"), [(0.0, 2.0), (5e-10, 2.0), (2e-9, None)])
def test_values_that_are_one_number_are_a_level(apart: float, level: float | None) -> None:
    assert ScoreMatrix.of([[2.0, 2.0], [2.0, 2.0 + apart]]).level == level


def test_a_number_in_the_place_of_scores_has_their_seeds_and_prompts() -> None:
    matrix = ScoreMatrix(np.array([[1.0, 2.0], [3.0, 4.0]]), (5, 7), ("p", "q"))
    same = matrix.constant(2.5)
    assert (same.level, same.seeds, same.prompts) == (2.5, (5, 7), ("p", "q"))
    assert matrix.minus(same).values.tolist() == [[-1.5, -0.5], [0.5, 1.5]]
