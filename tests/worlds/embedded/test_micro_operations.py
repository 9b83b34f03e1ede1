"""Laws of the twelve operations, with values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.embedded.language import (
    CATEGORIES,
    DIGITS,
    ITEMS,
    LETTERS,
    MEANING,
    NAMES_EACH,
    OPERATIONS,
    Items,
    Task,
)

LISTS = st.lists(st.sampled_from(ITEMS), max_size=9).map(tuple)


BY_ID = {operation.id: operation for operation in OPERATIONS}


def items(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def done(operations: str, sequence: Items) -> Items:
    """Do some operations, each asked for by a name of its own number."""
    names = (f"{name}-{number}" for number, name in enumerate(operations.split(), start=1))
    return Task(sequence, tuple(names)).answer()


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
    assert set(BY_ID) == set(BY_HAND)
    assert len(OPERATIONS) == 12
    assert {operation.category for operation in OPERATIONS} == set(CATEGORIES)
    assert len(CATEGORIES) == 8


@pytest.mark.parametrize("name", BY_HAND)
def test_each_operation_has_the_value_worked_out_by_hand(name: str) -> None:
    assert BY_ID[name].apply(items("b 3 a 9 j")) == items(BY_HAND[name])


@pytest.mark.parametrize("name", BY_HAND)
def test_the_empty_list_stays_empty(name: str) -> None:
    assert BY_ID[name].apply(()) == ()


ON_ONE_ITEM = {
    "double_last": ("7 7", "e e"),
    "keep_letters": ("", "e"),
    "keep_digits": ("7", ""),
    "successor": ("8", "f"),
    "drop_first": ("", ""),
}
"""Results for the one-item lists `7` and `e`; the other operations leave one item as it is."""


@pytest.mark.parametrize("name", BY_HAND)
def test_one_item_has_the_value_worked_out_by_hand(name: str) -> None:
    digit, letter = ON_ONE_ITEM.get(name, ("7", "e"))
    assert BY_ID[name].apply(("7",)) == items(digit)
    assert BY_ID[name].apply(("e",)) == items(letter)


@given(st.sampled_from(list(BY_HAND)), LISTS)
def test_every_operation_is_total_and_stays_within_the_items(
    name: str, sequence: tuple[str, ...]
) -> None:
    result = BY_ID[name].apply(sequence)
    assert isinstance(result, tuple)
    assert set(result) <= set(ITEMS)
    assert len(result) <= len(sequence) + 1


@given(LISTS)
def test_operations_keep_the_algebra_their_names_promise(sequence: tuple[str, ...]) -> None:
    """Two reversals or swaps cancel; ten successors come round, as do a rotation for each item.

    Sorting twice is sorting once, letters and digits are all items, a doubled ending can be cut.
    """
    assert done("reverse reverse", sequence) == sequence
    assert done("swap swap", sequence) == sequence
    assert done("successor " * 10, sequence) == sequence
    assert done("rotate " * len(sequence), sequence) == sequence
    assert done("sort_up sort_up", sequence) == done("sort_up", sequence)
    assert done("sort_up reverse", sequence) == done("sort_down", sequence)
    letters, digits = done("keep_letters", sequence), done("keep_digits", sequence)
    assert sorted(letters + digits) == sorted(sequence)
    assert not set(letters) & set(DIGITS)
    assert not set(digits) & set(LETTERS)
    assert done("double_last reverse drop_first reverse", sequence) == sequence


def test_operations_are_applied_first_to_last() -> None:
    """Dropping the head of `1 2 3` and reversing gives `3 2`; the other way round `2 1`."""
    assert done("drop_first reverse", items("1 2 3")) == items("3 2")
    assert done("reverse drop_first", items("1 2 3")) == items("2 1")


def test_each_operation_has_twenty_names_of_its_own() -> None:
    """240 in all: its id and a number, one word each, none of them an item or the word for none."""
    assert len(MEANING) == 240 == 12 * NAMES_EACH
    for operation in OPERATIONS:
        assert operation.names == tuple(f"{operation.id}-{n}" for n in range(1, 21))
    assert all(name.split() == [name] for name in MEANING)
    assert not set(MEANING) & {*ITEMS, "nothing"}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_names_of_one_operation_are_all_read_alike(name: str) -> None:
    for number in range(1, 21):
        assert MEANING[f"{name}-{number}"] is BY_ID[name]
        task = Task(items("b 3 a 9 j"), (f"{name}-{number}",))
        assert task.operations == (BY_ID[name],)
        assert task.answer() == items(BY_HAND[name])
