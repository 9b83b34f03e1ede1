"""Laws of the embedded judge: labels, preferences, ratings, and their scores by the scorers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evaluation.benchmarks.arena_hard import label_in
from harness.evaluation.benchmarks.mt_bench import parse_rating
from harness.evaluation.files import Answer
from harness.worlds import Item
from harness.worlds.embedded.judge import (
    judge_alpaca_eval,
    judge_arena_hard,
    judge_mt_bench,
    preference,
    rating,
    verdict,
)

MARKS = st.floats(0, 1)
MIRRORED = {"A=B": "A=B", "A>B": "B>A", "B>A": "A>B", "A>>B": "B>>A", "B>>A": "A>>B"}


def label(first: float, second: float) -> str:
    found = label_in(verdict(first, second))
    assert found is not None
    return found


def answer(*turns: str) -> Answer:
    return Answer(turns, len(turns[0].split()))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1.0, 1.0, "A=B"),
        (0.0, 0.1, "A=B"),
        (0.5, 0.25, "A>B"),
        (0.25, 0.5, "B>A"),
        (0.5, 0.0, "A>B"),
        (0.75, 0.0, "A>>B"),
        (0.0, 1.0, "B>>A"),
    ],
)
def test_verdicts_are_those_of_the_thresholds(first: float, second: float, expected: str) -> None:
    """A tie up to a difference of 0.1, a strong verdict beyond 0.5; both bounds belong inside."""
    assert label(first, second) == expected


@given(MARKS, MARKS)
def test_showing_the_answers_in_the_other_order_mirrors_the_verdict(a: float, b: float) -> None:
    assert label(b, a) == MIRRORED[label(a, b)]


def test_preferences_are_those_worked_out_by_hand() -> None:
    """1 + 1 / (1 + exp(-6 d - 0.4 tanh(l / 2))), with d in oracle score and l in items.

    At d = 1 and l = 0 it is 1 + 1 / (1 + exp(-6)) = 1.99753; at d = 0 and l = 2 the taste is
    0.4 tanh(1) = 0.304638 and the preference 1.575576.
    """
    assert preference(0.3, 0.3, 0) == 1.5
    assert preference(1.0, 0.0, 0) == pytest.approx(1.99753, abs=1e-5)
    assert preference(0.5, 0.5, 2) == pytest.approx(1.575576, abs=1e-6)


@given(MARKS, MARKS, st.integers(-14, 14))
def test_swapping_the_answers_mirrors_the_preference(a: float, b: float, n: int) -> None:
    assert preference(a, b, n) + preference(b, a, -n) == pytest.approx(3.0)


def test_ratings_are_those_worked_out_by_hand() -> None:
    """1 + 9 x mark, rounded: 1/3 gives 4, 2/3 gives 7, 0.9 gives 9.1 and so 9."""
    marks = (0.0, 1 / 3, 2 / 3, 0.9, 1.0)
    assert [parse_rating(rating(mark)) for mark in marks] == [1, 4, 7, 9, 10]


PROMPT = "take 1 2 3 4 and reverse-4"
RIGHT, HALF, WRONG = "4 3 2 1", "4 3", "a b c d"


def test_the_hard_benchmark_is_scored_through_verdicts_in_both_orders() -> None:
    """Three items win 7 of 10.

    Item 1: 1 against 0, strong in both games, 6 of 6. Item 2: both right, two ties, 1 of 2.
    Item 3: 0.5 against 1, a difference of 0.5 and so not strong, 0 of 2.
    """
    items = [
        Item("1", "coding", PROMPT, reference=WRONG),
        Item("2", "coding", PROMPT, reference=RIGHT),
        Item("3", "coding", PROMPT, reference=RIGHT),
    ]
    answers = {"1": answer(RIGHT), "2": answer(RIGHT), "3": answer(HALF)}
    judgments, result = judge_arena_hard(items, answers)
    assert result.scores["win_rate"] == pytest.approx(70.0)
    assert result.values["win_rate"].mean() == pytest.approx(70.0)
    assert result.scores["answer_tokens"] == pytest.approx((4 + 4 + 2) / 3)
    labels = [label_in(judgment["reply"]) for judgment in judgments]
    assert labels == ["B>>A", "A>>B", "A=B", "A=B", "A>B", "B>A"]
    assert [judgment["oracle"] for judgment in judgments] == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5]
    assert result.n_missing == 0


def test_the_general_benchmark_is_scored_through_preferences() -> None:
    """Two items win 0.516461 on average.

    Item 1: 1 against 0 at equal lengths, 0.997527. Item 2: 0.5 against 1 and two items shorter,
    log-odds -3 - 0.304638, 0.035395.
    """
    items = [
        Item("1", "coding", PROMPT, reference=WRONG),
        Item("2", "coding", PROMPT, reference=RIGHT),
    ]
    _, result = judge_alpaca_eval(items, {"1": answer(RIGHT), "2": answer(HALF)})
    expected = (1 / (1 + math.exp(-6)) + 1 / (1 + math.exp(3.304638))) / 2
    assert result.scores["win_rate"] == pytest.approx(100 * expected, abs=1e-4)


def test_length_control_takes_away_what_length_alone_brings() -> None:
    """Answers as wrong as their references of three items, and 2 shorter to 4 longer, evenly.

    The judge's taste is 0.4 tanh(d / 2), and sd(d) = sqrt(4 x 42 / 41) = 2.02, so that the
    control's tanh(d / sd) is nearly the taste and leaves 50.
    """
    answers = {str(i): answer(" ".join("abcdefg"[: 1 + i % 7])) for i in range(42)}
    items = [Item(str(i), "coding", PROMPT, reference="a b c") for i in range(42)]
    _, result = judge_alpaca_eval(items, answers)
    taste = [0.4 * math.tanh(d / 2) for d in range(-2, 5)]
    expected = sum(100 / (1 + math.exp(-t)) for t in taste) / 7
    assert expected > 52
    assert result.scores["win_rate"] == pytest.approx(expected)
    assert result.scores["length_controlled_win_rate"] == pytest.approx(50, abs=0.1)


def test_the_two_turn_benchmark_marks_the_second_turn_against_the_first_answer() -> None:
    """The first answer is wrong (`a b c d`, rating 1), the follow-up to it right: average 5.5."""
    item = Item("1", "coding", PROMPT, turn_2="now drop_first-9")
    judgments, result = judge_mt_bench([item], {"1": answer(WRONG, "b c d")})
    assert [judgment["reply"] for judgment in judgments] == ["Rating: [[1]]", "Rating: [[10]]"]
    assert dict(result.scores) == {"average": 5.5, "turn_1": 1.0, "turn_2": 10.0}
