"""The reward: what is not a text about its subject has none, else the share that is followed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.worlds.instructions.kinds import Instruction, words
from harness.worlds.instructions.rules import (
    RULES,
    distinct,
    is_text,
    share_followed,
    stems,
    task_of,
)
from harness.worlds.instructions.tasks import SUBJECTS, Task, prompts


def about(subject: str, *instructions: Instruction) -> Task:
    return Task("Write a short poem about {}", subject, instructions)


BIKE = about("an old bicycle", Instruction("lowercase"), Instruction("exclamations", 2))

BABBLE = "The [name] of a [name] had a [name] of a [name] and the [name] of a [name] had a bicycle."


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("my bicycle is old.", True),
        ("My bicycles are red.", True),
        ("BICYCLING makes me happy!", True),
        ("ring, ring: *bicycle bell*", True),
        ("bicycle bicycle bicycle bicycle?", True),  # repetition counts from twelve words on
        ("my bicycle is red, and here ends [name]", True),
        ("my bicycle is old", False),  # not finished
        ("my bicycle is old,", False),
        ("my bicycle is 10\n", False),
        ("", False),
        (" \n\t", False),
        ("my bicycle.", False),  # too short
        ("bicycle, bicycle: 1 2 3 4 5.", False),  # figures are not words
        ("my old car is red.", False),  # of the subject has only "old", which is about nothing
        ("my tricycle is so red.", False),
        ("bicycle " * 12 + ".", False),
        ("my bicycle is red and. " * 3, False),
        (BABBLE, False),
        ("Section 1\nSection 2", False),
        ("Section 1\nSection 2\n" * 8 + "bicycle.", False),
        ("* **\n* **", False),
        ("* **\n* **\n* ** bicycle.", False),
        ("!" * 500, False),
    ],
)
def test_a_text_about_its_subject_is_told_from_what_is_not(answer: str, expected: bool) -> None:
    assert is_text(BIKE, answer) is expected


def test_from_twelve_words_on_repetition_counts() -> None:
    """Eight words and the first four again: 8 of 10 runs of three are distinct; five: 8 of 11."""
    first = "bicycle bell rings over seven green old hills"
    words = first.split()
    assert is_text(BIKE, "bicycle " * 11 + ".")
    assert is_text(BIKE, " ".join(words + words[:4]) + ".")
    assert not is_text(BIKE, " ".join(words + words[:5]) + ".")


def test_two_of_five_words_must_be_distinct() -> None:
    """All runs of three words differ here; of 12 words 5 are distinct, and then of 13."""
    order = "bicycle a b c d bicycle b a c bicycle d b a".split()
    runs = list(zip(order, order[1:], order[2:], strict=False))
    assert len(set(runs)) == len(runs)
    assert is_text(BIKE, " ".join(order[:12]) + ".")
    assert not is_text(BIKE, " ".join(order) + ".")


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("an old bicycle", ("bicyc",)),
        ("the first day of school", ("day", "schoo")),
        ("a bus driver", ("bus", "drive")),
        ("honey bees", ("honey", "bee")),
        ("a good night's sleep", ("night", "sleep")),
        ("a glass of milk", ("glas", "milk")),
    ],
)
def test_a_subject_is_known_by_the_beginnings_of_its_words(
    subject: str, expected: tuple[str, ...]
) -> None:
    assert stems(subject) == expected


def test_an_answer_with_but_is_not_about_a_bus() -> None:
    answer = "All is well, but nobody has come."
    assert not is_text(about("the last bus"), answer)
    assert is_text(about("the last bus"), "Both buses have come.")
    assert not is_text(about("honey bees"), "It has been a long day.")


def test_every_subject_can_be_written_about() -> None:
    for subject in SUBJECTS:
        assert is_text(about(subject), f"This is all about {subject}."), subject


def test_the_reward_is_the_share_of_instructions_followed() -> None:
    one, two = BIKE.instructions
    three = about("an old bicycle", one, two, Instruction("no_comma"))
    cases = {
        "my bicycle, so red! so old!": (1.0, 2 / 3),
        "my bicycle so red! so old!": (1.0, 1.0),
        "my bicycle, so red! so old.": (0.5, 1 / 3),
        "My bicycle, so red.": (0.0, 0.0),
        "my car, so red! so old!": (0.0, 0.0),
    }
    for answer, (of_two, of_three) in cases.items():
        assert share_followed(BIKE, answer) == of_two
        assert share_followed(three, answer) == pytest.approx(of_three)
    assert RULES.score(str(BIKE), list(cases)) == [two for two, _ in cases.values()]


@pytest.mark.parametrize("prompt", ["", "Write\na  poem.", f"{BIKE} Thank you."])
def test_a_prompt_without_readable_instructions_is_refused(prompt: str) -> None:
    with pytest.raises(UserError) as refused:
        RULES.score(prompt, ["my bicycle is old"])
    assert repr(" ".join(prompt.split())) in str(refused.value)


def test_a_long_or_strange_prompt_is_shown_in_short() -> None:
    with pytest.raises(UserError) as refused:
        task_of("\x1b[31m" + "a" * 5000)
    assert len(str(refused.value)) < 400
    assert "\x1b" not in str(refused.value)


STRANGE = ("", "\x00", "\x1b[2J bicycle " * 5, "\ud800 my bicycle is \udfff", "\ufeffbicycle\u202e",
           "a" * 100_000, "bicycle " * 20_000, "*" * 100_000, "\n" * 100_000)  # fmt: skip


def test_whatever_an_answer_is_it_is_scored() -> None:
    for prompt in (*prompts("prompts", 40), *prompts("new_kinds", 20)):
        for score in RULES.score(prompt, list(STRANGE)):
            assert 0.0 <= score <= 1.0


@given(st.text(), st.sampled_from(prompts("prompts", 50)))
def test_any_text_has_a_reward_from_0_to_1_and_always_the_same(answer: str, prompt: str) -> None:
    [score] = RULES.score(prompt, [answer])
    assert 0.0 <= score <= 1.0
    assert RULES.score(prompt, [answer, ""]) == [score, 0.0]
    assert not score or is_text(task_of(prompt), answer)


def test_distinct_words_are_a_share() -> None:
    assert distinct(words("a b a B")) == 0.5
    assert distinct(words("12 !")) == distinct(words("")) == 1.0
