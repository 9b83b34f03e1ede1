"""Laws of the language: what is written can be read back, and nothing else can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.embedded.language import (
    EMPTY,
    FOLLOW_UPS,
    FRAMES,
    ITEMS,
    MAX_DEPTH,
    MEANING,
    REVISE,
    Task,
    parse,
    read_list,
    render,
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


SENTENCES = [
    (0, "take 3 a and sort_up-4 , then swap-20"),
    (1, "sort_up-4 , then swap-20 : 3 a"),
    (2, "please sort_up-4 and then swap-20 for 3 a"),
    (3, "here is 3 a ; sort_up-4 , next swap-20 , thanks"),
    (4, "given 3 a we want you to sort_up-4 ; swap-20"),
]


@pytest.mark.parametrize(("frame", "sentence"), SENTENCES)
def test_each_frame_is_written_and_read_as_by_hand(frame: int, sentence: str) -> None:
    task = Task(("3", "a"), ("sort_up-4", "swap-20"))
    assert render(task, frame) == sentence
    assert parse(sentence) == task


def test_a_task_keeps_the_names_that_were_used_and_knows_what_they_mean() -> None:
    """Two names of one operation are two skills and one thing to do."""
    one, other = parse("reverse-7 : 1 2 3"), parse("reverse-8 : 1 2 3")
    assert one is not None
    assert other is not None
    assert one != other
    assert (one.names, other.names) == (("reverse-7",), ("reverse-8",))
    assert one.operations == other.operations
    assert one.answer() == other.answer() == ("3", "2", "1")


FOLLOW_UP_SENTENCES = [
    (0, "now sort_up-1 , then rotate-9"),
    (1, "next sort_up-1 , then rotate-9 please"),
]


@pytest.mark.parametrize(("frame", "sentence"), FOLLOW_UP_SENTENCES)
def test_a_follow_up_has_names_and_no_list_of_its_own(frame: int, sentence: str) -> None:
    task = Task(None, ("sort_up-1", "rotate-9"))
    assert render(task, frame) == sentence
    assert parse(sentence) == task


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


def test_the_depth_that_can_be_read_is_the_callers_choice() -> None:
    text = "reverse-1 , then reverse-2 , then sort_up-1 : 1 2"
    assert parse(text) == Task(("1", "2"), ("reverse-1", "reverse-2", "sort_up-1"))
    assert parse(text, max_depth=2) is None


@given(st.lists(st.sampled_from([*vocabulary(), "#", "hello"]), max_size=14).map(" ".join))
def test_reading_any_words_gives_a_task_or_nothing(text: str) -> None:
    """And what is read can be answered."""
    task = parse(text)
    if task is not None:
        assert 1 <= len(task.names) <= MAX_DEPTH
        assert task.items is None or task.items
        assert set(task.answer(("1", "b"))) <= set(ITEMS)


@given(LISTS)
def test_reading_a_written_list_gives_the_list_back(items: tuple[str, ...]) -> None:
    assert read_list(write_list(items)) == items


def test_the_empty_list_has_a_word_of_its_own() -> None:
    """No words at all are not an empty list: a model that says nothing has not answered."""
    assert write_list(()) == EMPTY == "nothing"
    assert read_list("nothing") == ()
    assert read_list("") is None
    assert read_list("nothing 1") is None
    assert read_list("1 nothing") is None
    assert read_list("1 2 then") is None
