"""Laws of the language: what is written can be read back, and nothing else can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.embedded.language import (
    BENCHMARK_FRAME,
    BENCHMARK_PHRASE,
    BY_NAME,
    EMPTY,
    FOLLOW_UPS,
    FRAMES,
    ITEMS,
    MAX_DEPTH,
    NAMES,
    REVISE,
    Task,
    parse,
    read_list,
    render,
    vocabulary,
    write_list,
)

LISTS = st.lists(st.sampled_from(ITEMS), max_size=9).map(tuple)
OPERATIONS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=MAX_DEPTH).map(tuple)


@st.composite
def worded_tasks(draw: st.DrawFn) -> tuple[Task, int, tuple[int, ...]]:
    """A task with items or a follow-up, a frame that fits, and a phrasing of each operation."""
    operations = draw(OPERATIONS)
    items = draw(st.none() | LISTS.filter(bool))
    frames = FOLLOW_UPS if items is None else FRAMES
    frame = draw(st.integers(0, len(frames) - 1))
    phrases = tuple(draw(st.integers(0, 3)) for _ in operations)
    return Task(items, operations), frame, phrases


@given(worded_tasks())
def test_reading_a_written_task_gives_the_task_back(
    worded: tuple[Task, int, tuple[int, ...]],
) -> None:
    task, frame, phrases = worded
    assert parse(render(task, frame, phrases)) == task


@given(worded_tasks())
def test_every_sentence_is_made_of_the_vocabulary(
    worded: tuple[Task, int, tuple[int, ...]],
) -> None:
    assert set(render(*worded).split()) <= set(vocabulary())


SENTENCES = [
    (0, "take 3 a and sort it , then trade first and last"),
    (1, "sort it , then trade first and last : 3 a"),
    (2, "please sort it and then trade first and last for 3 a"),
    (3, "here is 3 a ; sort it , next trade first and last , thanks"),
    (4, "given 3 a we want you to sort it ; trade first and last"),
]


@pytest.mark.parametrize(("frame", "sentence"), SENTENCES)
def test_each_frame_is_written_and_read_as_by_hand(frame: int, sentence: str) -> None:
    """`sort it` is the first phrasing of sort_up, `trade first and last` the fourth of swap."""
    task = Task(("3", "a"), ("sort_up", "swap"))
    assert render(task, frame, (0, 3)) == sentence
    assert parse(sentence) == task


def test_the_last_frame_and_the_last_phrasing_are_for_benchmarks() -> None:
    assert len(FRAMES) == BENCHMARK_FRAME + 1
    assert {len(operation.phrases) for operation in BY_NAME.values()} == {BENCHMARK_PHRASE + 1}
    assert BY_NAME["swap"].phrases[BENCHMARK_PHRASE] == "trade first and last"


def test_a_follow_up_has_operations_and_no_list_of_its_own() -> None:
    assert parse("now reverse it") == Task(None, ("reverse",))
    assert parse("next sort it , then cycle it once please") == Task(None, ("sort_up", "rotate"))


def test_the_answer_to_a_follow_up_comes_from_the_answer_before_it() -> None:
    follow_up = Task(None, ("reverse", "drop_first"))
    assert follow_up.answer(("1", "2", "3")) == ("2", "1")
    assert follow_up.answer() == ()
    assert Task(("5", "6"), ("reverse",)).answer(("1", "2", "3")) == ("6", "5")


def test_the_longest_phrase_wins() -> None:
    """`sort it` begins `sort it backwards`, and `take` alone is a filler."""
    assert parse("take 1 2 and sort it backwards") == Task(("1", "2"), ("sort_down",))
    assert parse("take every other item : 1 2") == Task(("1", "2"), ("every_other",))


UNREADABLE = {
    "no words": "",
    "no operation": "take 1 2 and",
    "a stranger's words": "please summarise this article",
    "half a phrase": "take 1 2 and reverse",
    "two lists": "take 1 2 and reverse it 3",
    "an empty list": "take nothing and reverse it",
    "a piece of a template": "#rewritten prompt# : take 1 2 and reverse it",
    "a request to revise": REVISE,
    "five operations": "flip it , then flip it , then flip it , then flip it , then sort it : 1",
    "capitals": "Take 1 2 and reverse it",
    "a downstream question": "how many items has 1 2 3",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_no_sentence_of_the_language_cannot_be_read(text: str) -> None:
    assert parse(text) is None


def test_the_depth_that_can_be_read_is_the_callers_choice() -> None:
    text = "reverse it , then flip it , then sort it : 1 2"
    assert parse(text) == Task(("1", "2"), ("reverse", "reverse", "sort_up"))
    assert parse(text, max_depth=2) is None


@given(st.lists(st.sampled_from([*vocabulary(), "#", "hello"]), max_size=14).map(" ".join))
def test_reading_any_words_gives_a_task_or_nothing(text: str) -> None:
    """And what is read can be answered."""
    task = parse(text)
    if task is not None:
        assert 1 <= len(task.operations) <= MAX_DEPTH
        assert task.items is None or task.items
        assert set(task.answer(("1", "b"))) <= set(ITEMS)


@given(st.text(max_size=40))
def test_reading_any_text_never_fails(text: str) -> None:
    assert parse(text) is None or isinstance(parse(text), Task)
    assert read_list(text) is None or set(read_list(text) or ()) <= set(ITEMS)


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


def test_the_vocabulary_is_sorted_and_has_each_word_once() -> None:
    words = vocabulary()
    assert words == sorted(set(words))
    assert {EMPTY, *ITEMS, *REVISE.split()} <= set(words)
