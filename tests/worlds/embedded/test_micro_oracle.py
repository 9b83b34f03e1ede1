"""Laws of the gold oracle: edit distance, partial credit, follow-ups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.worlds.embedded.language import ITEMS, edit_distance, partial_credit, score, write_list

# Few different items, so that near misses and repeats are common.
LISTS = st.lists(st.sampled_from(ITEMS[8:12]), max_size=7).map(tuple)


def items(text: str) -> tuple[str, ...]:
    return tuple(text.split())


BY_HAND = [
    ("", "", 0),
    ("", "a b", 2),
    ("1 2 3", "1 2 3", 0),
    ("1 2 3", "1 3", 1),
    ("1 2 3", "1 9 3", 1),
    ("1 2 3", "0 1 2 3", 1),
    ("1 2 3", "3 2 1", 2),
    ("1 2 3 4", "2 3 4 5", 2),
    ("1 2 3 4", "5 6 7 8", 4),
    ("a b c d e f", "b c d e f a", 2),
]
"""Least insertions, deletions and replacements; a shift is one deletion and one insertion."""


@pytest.mark.parametrize(("a", "b", "distance"), BY_HAND)
def test_edit_distances_are_those_counted_by_hand(a: str, b: str, distance: int) -> None:
    assert edit_distance(items(a), items(b)) == distance


@given(LISTS, LISTS, LISTS)
def test_the_edit_distance_is_a_metric(
    a: tuple[str, ...], b: tuple[str, ...], c: tuple[str, ...]
) -> None:
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


CREDIT_BY_HAND = [
    ("1 2 3 4", "1 2 3 4", 1.0),
    ("1 2", "1 2 3 4", 0.5),
    ("1 2 3 4", "1 2", 0.5),
    ("1 2 4", "1 2 3", 2 / 3),
    ("nothing", "", 1.0),
    ("nothing", "1", 0.0),
    ("1", "", 0.0),
    ("", "", 0.0),
    ("the answer is 1", "1", 0.0),
]
"""1 - distance / longer length; what is no list scores 0, silence included."""


@pytest.mark.parametrize(("answer", "correct", "credit"), CREDIT_BY_HAND)
def test_partial_credit_is_that_worked_out_by_hand(
    answer: str, correct: str, credit: float
) -> None:
    assert partial_credit(answer, items(correct)) == pytest.approx(credit, abs=1e-12)


@given(LISTS, LISTS)
def test_partial_credit_is_1_for_the_right_answer_only(
    given_list: tuple[str, ...], correct: tuple[str, ...]
) -> None:
    credit = partial_credit(write_list(given_list), correct)
    assert 0.0 <= credit <= 1.0
    assert (credit == 1.0) == (given_list == correct)


@given(st.text(max_size=30), LISTS)
def test_partial_credit_of_any_text_lies_between_0_and_1(
    text: str, correct: tuple[str, ...]
) -> None:
    assert 0.0 <= partial_credit(text, correct) <= 1.0


def test_a_prompt_is_marked_from_its_text_alone() -> None:
    """Dropping the head of `1 2 3 4` and reversing gives `4 3 2`; `4 3` misses one of three."""
    prompt = "take 1 2 3 4 and drop_first-2 , then reverse-20"
    assert score(prompt, "4 3 2") == 1.0
    assert score(prompt, "4 3") == pytest.approx(2 / 3)
    assert score(prompt, "4 3 2", previous="9 9 9") == 1.0


def test_a_follow_up_is_marked_against_the_answer_that_was_given() -> None:
    """Whether or not that answer was right."""
    assert score("now reverse-3", "3 2 1", previous="1 2 3") == 1.0
    assert score("now reverse-3", "1 2 3", previous="1 2 3") == pytest.approx(1 / 3)
    assert score("now reverse-3", "nothing", previous="nothing") == 1.0


GARBAGE = [("1 then 2", "2 1"), ("hello", "nothing"), ("", "nothing"), ("1 nothing 2", "2 1")]


@pytest.mark.parametrize(("previous", "right"), GARBAGE)
def test_a_follow_up_to_garbage_works_on_the_items_in_it(previous: str, right: str) -> None:
    assert score("now reverse-3", right, previous=previous) == 1.0


def test_a_prompt_that_cannot_be_read_is_an_error_that_quotes_it() -> None:
    with pytest.raises(HarnessError, match="cannot read the prompt 'tell me a joke'"):
        score("tell me a joke", "1 2 3")
