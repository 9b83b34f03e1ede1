"""MT-Bench: reading ratings, means over turns and categories, missing ratings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.evaluation.benchmarks.mt_bench import Rating, parse_rating, score_ratings


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Rating: [[7]]", 7.0),
        ("Rating: [[8.5]]", 8.5),
        ("[[3]] and later [[9]]", 3.0),
        ("cites [1] but rates [[6]]", 6.0),
        ("Rating: [4]", 4.0),
        ("Rating: 5", None),
        ("[[seven]]", None),
        ("", None),
    ],
)
def test_ratings_are_read_as_the_benchmark_reads_them(text: str, rating: float | None) -> None:
    assert parse_rating(text) == rating


RATINGS = [
    Rating("a", 1, 10.0),
    Rating("a", 2, 6.0),
    Rating("b", 1, 5.0),
    Rating("b", 2, None),
]


def test_a_missing_rating_is_left_out_and_counted() -> None:
    """Derivation: average (10 + 6 + 5) / 3 = 7, turn 1 (10 + 5) / 2 = 7.5, turn 2 6 / 1 = 6.

    Per-prompt averages, mean count 1.5: a: 7 + (16 - 14) / 1.5 = 8 1/3; b: 7 + (5 - 7) / 1.5 =
    5 2/3, mean 7. Turn 2 of b moves nothing: it has the mean, 6.
    """
    score = score_ratings(RATINGS, "m")
    assert score.scores == pytest.approx({"average": 7.0, "turn_1": 7.5, "turn_2": 6.0})
    assert score.by_prompt("average") == pytest.approx({"a": 25 / 3, "b": 17 / 3})
    assert score.by_prompt("turn_2") == pytest.approx({"a": 6.0, "b": 6.0})
    assert (score.n, score.n_missing) == (2, 1)


def test_category_means_are_over_both_turns_and_unjudged_ones_have_none() -> None:
    categories = {"a": "math", "b": "coding", "c": "stem"}
    score = score_ratings(RATINGS, "m", prompts=["a", "b", "c"], categories=categories)
    assert score.per_category == {"math": 8.0, "coding": 5.0, "stem": None}
    assert (score.n, score.n_missing) == (2, 3)


def test_a_turn_without_any_rating_has_no_score_and_says_why() -> None:
    score = score_ratings([Rating("a", 1, 9.0)], "m")
    assert score.scores == {"average": 9.0, "turn_1": 9.0, "turn_2": None}
    assert "turn_2" not in score.values
    assert score.notes == {"turn_2": "no valid rating of this turn"}


@given(
    st.lists(st.tuples(st.none() | st.integers(1, 10), st.integers(1, 10)), min_size=1, max_size=20)
)
def test_per_prompt_values_average_to_the_scores(pairs: list[tuple[int | None, int]]) -> None:
    ratings = []
    for i, (first, second) in enumerate(pairs):
        ratings += [Rating(str(i), 1, first), Rating(str(i), 2, second)]
    score = score_ratings(ratings, "m")
    valid = [r.rating for r in ratings if r.rating is not None]
    assert score.scores["average"] == pytest.approx(sum(valid) / len(valid))
    for column, values in score.values.items():
        assert values.mean() == pytest.approx(score.scores[column])


def test_no_valid_rating_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(HarnessError):
        score_ratings([Rating("a", 1, None)], "m")
