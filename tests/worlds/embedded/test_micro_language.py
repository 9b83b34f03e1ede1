"""Laws of the language: sentences, operations with values by hand, and the gold oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro_reading import read

from harness.errors import HarnessError
from harness.worlds.embedded.language import (
    FOLLOW_UPS,
    FRAMES,
    ITEMS,
    MAX_DEPTH,
    MEANING,
    OPERATIONS,
    REVISE,
    Items,
    Task,
    edit_distance,
    parse,
    partial_credit,
    render,
    score,
    vocabulary,
    write_list,
)

LISTS = st.lists(st.sampled_from(ITEMS), max_size=9).map(tuple)
NAMES = st.lists(st.sampled_from(list(MEANING)), min_size=1, max_size=MAX_DEPTH).map(tuple)


@st.composite
def worded_tasks(draw: st.DrawFn) -> tuple[Task, int]:
    """A task with items or a follow-up, and a frame that fits."""
    items = draw(st.none() | LISTS.filter(bool))
    frames = FOLLOW_UPS if items is None else FRAMES
    return Task(items, draw(NAMES)), draw(st.integers(0, len(frames) - 1))


@given(worded_tasks())
def test_reading_a_written_task_gives_the_task_back(worded: tuple[Task, int]) -> None:
    task, frame = worded
    assert parse(render(task, frame)) == task


@given(worded_tasks())
def test_every_sentence_is_made_of_the_vocabulary(worded: tuple[Task, int]) -> None:
    assert set(render(*worded).split()) <= set(vocabulary())


@pytest.mark.parametrize(
    ("items", "frame", "sentence"),
    [
        (("3", "a"), 0, "take 3 a and sort_up-4 , then swap-20"),
        (("3", "a"), 1, "sort_up-4 , then swap-20 : 3 a"),
        (("3", "a"), 2, "please sort_up-4 and then swap-20 for 3 a"),
        (("3", "a"), 3, "here is 3 a ; sort_up-4 , next swap-20 , thanks"),
        (("3", "a"), 4, "given 3 a we want you to sort_up-4 ; swap-20"),
        (None, 0, "now sort_up-4 , then swap-20"),
        (None, 1, "next sort_up-4 , then swap-20 please"),
    ],
)
def test_each_frame_is_written_and_read_as_by_hand(
    items: Items | None, frame: int, sentence: str
) -> None:
    """A follow-up has names and no list of its own."""
    task = Task(items, ("sort_up-4", "swap-20"))
    assert render(task, frame) == sentence
    assert parse(sentence) == task


def test_a_task_keeps_the_names_that_were_used_and_knows_what_they_mean() -> None:
    """Two names of one operation are two skills and one thing to do."""
    one, other = read("reverse-7 : 1 2 3"), read("reverse-8 : 1 2 3")
    assert one != other
    assert (one.names, other.names) == (("reverse-7",), ("reverse-8",))
    assert one.operations == other.operations
    assert one.answer() == other.answer() == ("3", "2", "1")


def test_the_answer_to_a_follow_up_comes_from_the_answer_before_it() -> None:
    follow_up = Task(None, ("reverse-1", "drop_first-3"))
    assert follow_up.answer(("1", "2", "3")) == ("2", "1")
    assert follow_up.answer() == ()
    assert Task(("5", "6"), ("reverse-1",)).answer(("1", "2", "3")) == ("6", "5")


UNREADABLE = {
    "no words": "",
    "no operation": "take 1 2 and",
    "a stranger's words": "please summarise this article",
    "an operation without a number": "take 1 2 and reverse",
    "a name that nobody has": "take 1 2 and reverse-21",
    "a name from another world": "take 1 2 and reverse it",
    "two lists": "take 1 2 and reverse-1 3",
    "an empty list": "take nothing and reverse-1",
    "a piece of a template": "#rewritten prompt# : take 1 2 and reverse-1",
    "a request to revise": REVISE,
    "five operations": "swap-1 , then swap-1 , then swap-1 , then swap-1 , then swap-2 : 1",
    "capitals": "Take 1 2 and reverse-1",
    "a downstream question": "how many items has 1 2 3",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_no_sentence_of_the_language_cannot_be_read(text: str) -> None:
    assert parse(text) is None


@given(st.lists(st.sampled_from([*vocabulary(), "#", "hello"]), max_size=14).map(" ".join))
def test_reading_any_words_gives_a_task_or_nothing(text: str) -> None:
    """And what is read can be answered."""
    task = parse(text)
    if task is not None:
        assert 1 <= len(task.names) <= MAX_DEPTH
        assert task.items is None or task.items
        assert set(task.answer(("1", "b"))) <= set(ITEMS)


BY_ID = {operation.id: operation for operation in OPERATIONS}


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


ON_ONE_ITEM = {
    "double_last": ("7 7", "e e"),
    "keep_letters": ("", "e"),
    "keep_digits": ("7", ""),
    "successor": ("8", "f"),
    "drop_first": ("", ""),
}
"""Results for the one-item lists `7` and `e`; the other operations leave one item as it is."""


@pytest.mark.parametrize("name", BY_HAND)
def test_each_operation_has_the_values_worked_out_by_hand(name: str) -> None:
    digit, letter = ON_ONE_ITEM.get(name, ("7", "e"))
    for given_list, result in (("", ""), ("7", digit), ("e", letter), ("b 3 a 9 j", BY_HAND[name])):
        assert BY_ID[name].apply(items(given_list)) == items(result)


@given(st.sampled_from(list(BY_HAND)), LISTS)
def test_every_operation_is_total_and_stays_within_the_items(
    name: str, sequence: tuple[str, ...]
) -> None:
    result = BY_ID[name].apply(sequence)
    assert isinstance(result, tuple)
    assert set(result) <= set(ITEMS)
    assert len(result) <= len(sequence) + 1


# Few different items, so that near misses and repeats are common.
NEAR_LISTS = st.lists(st.sampled_from(ITEMS[8:12]), max_size=7).map(tuple)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("", "a b", 2),
        ("1 2 3", "1 3", 1),
        ("1 2 3", "1 9 3", 1),
        ("1 2 3", "0 1 2 3", 1),
        ("1 2 3", "3 2 1", 2),
        ("1 2 3 4", "2 3 4 5", 2),
        ("1 2 3 4", "5 6 7 8", 4),
        ("a b c d e f", "b c d e f a", 2),
    ],
)
def test_edit_distances_are_those_counted_by_hand(a: str, b: str, distance: int) -> None:
    """Least insertions, deletions and replacements; a shift is one deletion and one insertion."""
    assert edit_distance(items(a), items(b)) == distance


@pytest.mark.parametrize(
    ("answer", "correct", "credit"),
    [
        ("1 2", "1 2 3 4", 0.5),
        ("1 2 3 4", "1 2", 0.5),
        ("1 2 4", "1 2 3", 2 / 3),
        ("nothing", "", 1.0),
        ("nothing", "1", 0.0),
        ("1", "", 0.0),
        ("", "", 0.0),
        ("the answer is 1", "1", 0.0),
    ],
)
def test_partial_credit_is_that_worked_out_by_hand(
    answer: str, correct: str, credit: float
) -> None:
    """1 - distance / longer length; what is no list scores 0, silence included."""
    assert partial_credit(answer, items(correct)) == pytest.approx(credit, abs=1e-12)


@given(NEAR_LISTS, NEAR_LISTS)
def test_partial_credit_is_1_for_the_right_answer_only(
    given_list: tuple[str, ...], correct: tuple[str, ...]
) -> None:
    credit = partial_credit(write_list(given_list), correct)
    assert 0.0 <= credit <= 1.0
    assert (credit == 1.0) == (given_list == correct)


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


@pytest.mark.parametrize(
    ("previous", "right"),
    [("1 then 2", "2 1"), ("hello", "nothing"), ("", "nothing"), ("1 nothing 2", "2 1")],
)
def test_a_follow_up_to_garbage_works_on_the_items_in_it(previous: str, right: str) -> None:
    assert score("now reverse-3", right, previous=previous) == 1.0


def test_a_prompt_that_cannot_be_read_is_an_error_that_quotes_it() -> None:
    with pytest.raises(HarnessError, match="cannot read the prompt 'tell me a joke'"):
        score("tell me a joke", "1 2 3")
