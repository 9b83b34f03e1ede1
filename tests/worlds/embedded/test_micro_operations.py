"""Laws of the twelve operations, with values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.embedded.language import (
    BY_NAME,
    CATEGORIES,
    DIGITS,
    ITEMS,
    LETTERS,
    NAMES,
    OPERATIONS,
    compute,
)

LISTS = st.lists(st.sampled_from(ITEMS), max_size=9).map(tuple)


def items(text: str) -> tuple[str, ...]:
    return tuple(text.split())


BY_HAND = {
    "double_last": "b 3 a 9 j j",
    "swap": "j 3 a 9 b",
    "keep_letters": "b a j",
    "keep_digits": "3 9",
    "sort_up": "3 9 a b j",
    "sort_down": "j b a 9 3",
    "successor": "c 4 b 0 a",
    "reverse": "j 9 a 3 b",
    "rotate": "3 a 9 j b",
    "every_other": "b a j",
    "drop_first": "3 a 9 j",
    "first_three": "b 3 a",
}
"""Each operation on `b 3 a 9 j`: digits sort before letters, 9 is followed by 0 and j by a."""


def test_there_are_twelve_operations_in_eight_categories() -> None:
    assert set(NAMES) == set(BY_HAND)
    assert len(NAMES) == 12
    assert {operation.category for operation in OPERATIONS} == set(CATEGORIES)
    assert len(CATEGORIES) == 8


@pytest.mark.parametrize("name", NAMES)
def test_each_operation_has_the_value_worked_out_by_hand(name: str) -> None:
    assert BY_NAME[name].apply(items("b 3 a 9 j")) == items(BY_HAND[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_empty_list_stays_empty(name: str) -> None:
    assert BY_NAME[name].apply(()) == ()


ON_ONE_ITEM = {
    "double_last": ("7 7", "e e"),
    "keep_letters": ("", "e"),
    "keep_digits": ("7", ""),
    "successor": ("8", "f"),
    "drop_first": ("", ""),
}
"""Results for the one-item lists `7` and `e`; the other operations leave one item as it is."""


@pytest.mark.parametrize("name", NAMES)
def test_one_item_has_the_value_worked_out_by_hand(name: str) -> None:
    digit, letter = ON_ONE_ITEM.get(name, ("7", "e"))
    assert BY_NAME[name].apply(("7",)) == items(digit)
    assert BY_NAME[name].apply(("e",)) == items(letter)


@given(st.sampled_from(NAMES), LISTS)
def test_every_operation_is_total_and_stays_within_the_items(
    name: str, sequence: tuple[str, ...]
) -> None:
    result = BY_NAME[name].apply(sequence)
    assert isinstance(result, tuple)
    assert set(result) <= set(ITEMS)
    assert len(result) <= len(sequence) + 1


@given(LISTS)
def test_operations_keep_the_algebra_their_names_promise(sequence: tuple[str, ...]) -> None:
    """Two reversals or swaps cancel; ten successors come round, as do a rotation for each item.

    Sorting twice is sorting once, letters and digits are all items, a doubled ending can be cut.
    """
    assert compute(("reverse", "reverse"), sequence) == sequence
    assert compute(("swap", "swap"), sequence) == sequence
    assert compute(("successor",) * 10, sequence) == sequence
    assert compute(("rotate",) * len(sequence), sequence) == sequence
    assert compute(("sort_up", "sort_up"), sequence) == compute(("sort_up",), sequence)
    assert compute(("sort_up", "reverse"), sequence) == compute(("sort_down",), sequence)
    letters, digits = compute(("keep_letters",), sequence), compute(("keep_digits",), sequence)
    assert sorted(letters + digits) == sorted(sequence)
    assert not set(letters) & set(DIGITS)
    assert not set(digits) & set(LETTERS)
    assert compute(("double_last", "reverse", "drop_first", "reverse"), sequence) == sequence


def test_operations_are_applied_first_to_last() -> None:
    """Dropping the head of `1 2 3` and reversing gives `3 2`; the other way round `2 1`."""
    assert compute(("drop_first", "reverse"), items("1 2 3")) == items("3 2")
    assert compute(("reverse", "drop_first"), items("1 2 3")) == items("2 1")
    assert compute((), items("1 2 3")) == items("1 2 3")


def test_an_unknown_operation_is_an_error() -> None:
    with pytest.raises(KeyError, match="shuffle"):
        compute(("shuffle",), items("1 2"))


def test_every_phrase_is_distinct() -> None:
    phrases = [phrase for operation in OPERATIONS for phrase in operation.phrases]
    assert len(phrases) == 4 * 12 == len(set(phrases))


def test_no_phrase_holds_an_item_or_the_word_for_no_items() -> None:
    words = {word for operation in OPERATIONS for p in operation.phrases for word in p.split()}
    assert not words & {*ITEMS, "nothing"}
