"""Prompts: each says everything about its task, and sets of prompts do not overlap."""

import random

import pytest

from harness.worlds.instructions.kinds import NEW, SEEN, Instruction, compatible
from harness.worlds.instructions.tasks import (
    FORMS,
    PARTS,
    SUBJECTS,
    Task,
    draw,
    prompts,
    read,
    subjects_of,
)

POEM = Task(
    "Write a short poem about {}",
    "an old bicycle",
    (Instruction("lowercase"), Instruction("exclamations", 2)),
)
PROMPT = (
    "Write a short poem about an old bicycle. Use only lowercase letters. "
    "Use at least 2 exclamation marks."
)


def test_a_prompt_is_form_subject_and_instructions() -> None:
    assert str(POEM) == PROMPT
    assert read(PROMPT) == POEM
    assert POEM.kinds == ("lowercase", "exclamations")


@pytest.mark.parametrize("part", PARTS)
def test_every_prompt_reads_back_as_what_it_was_written_from(part: str) -> None:
    """And has one or two instructions that go together, of the part's subjects and kinds."""
    subjects, kinds = PARTS[part]
    found = prompts(part, 2000)
    assert len(set(found)) == 2000
    for prompt in found:
        task = read(prompt)
        assert task is not None
        assert str(task) == prompt
        assert task.subject in subjects_of(subjects)
        assert set(task.kinds) <= set(kinds)
        assert 1 <= len(task.kinds) <= 2
        assert compatible(task.kinds[0], task.kinds[1:])


def test_tasks_of_three_instructions_read_back_as_themselves() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        task = draw(rng, SUBJECTS, rng.choice((SEEN, NEW)), most=3)
        assert read(str(task)) == task


def test_forms_and_subjects_are_distinct_and_clean() -> None:
    for texts in (FORMS, SUBJECTS):
        assert len({text.lower() for text in texts}) == len(texts)
        assert all(text == " ".join(text.split()) and "." not in text for text in texts)
    assert all(form.count("{}") == 1 for form in FORMS)
    assert min(len(FORMS), len(SUBJECTS)) >= 100


def test_parts_share_no_subject() -> None:
    parts = [set(subjects_of(name)) for name in ("training", "held_out", "new_kinds")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(SUBJECTS)
    assert len(parts[0]) == pytest.approx(0.6 * len(SUBJECTS), abs=1)
    assert len(parts[1]) == pytest.approx(0.2 * len(SUBJECTS), abs=1)


def test_parts_have_the_kinds_that_they_are_named_after() -> None:
    kinds = {
        part: {kind for prompt in prompts(part, 2000) for kind in (read(prompt) or POEM).kinds}
        for part in PARTS
    }
    assert kinds["prompts"] == kinds["held_out"] == set(SEEN)
    assert kinds["off_target"] == kinds["new_kinds"] == set(NEW)


@pytest.mark.parametrize("part", PARTS)
def test_more_prompts_only_add_to_fewer(part: str) -> None:
    assert prompts(part, 700)[:300] == prompts(part, 300)


HEAD = "Write a short poem about an old bicycle."


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        HEAD,
        f"{HEAD} ",
        f" {PROMPT}",
        f"{PROMPT} ",
        f"{PROMPT}\n",
        f"{PROMPT} Thank you.",
        f"{PROMPT} {PROMPT}",
        PROMPT.lower(),
        PROMPT.replace("bicycle", "tricycle"),
        PROMPT.replace("bicycle.", "bicycle"),
        PROMPT.replace("2", "5"),
        PROMPT.replace(". ", ".  "),
        PROMPT.replace(" ", "\n"),
        "Use only lowercase letters.",
        f"{HEAD} Do not use any commas. Do not use any commas.",
        f"{HEAD} Do not use any commas. Write it without a single comma.",
        f"{HEAD} Use only lowercase letters. Use capital letters only.",
        f"{HEAD} Use only lowercase letters. Do not use any commas. After the text, add a P.S.",
        f"{HEAD} Use only lowercase letters. Do not use any commas. Use at most 40 words. "
        'Use the word "river".',
        f'{HEAD} Do not use any commas. Start with the exact words "Well,"',
    ],
)
def test_any_other_text_is_not_a_task(text: str) -> None:
    assert read(text) is None


def test_a_prompt_with_one_character_less_or_another_is_not_itself() -> None:
    """It is nothing, or another prompt (of 3 for 2), but never the same task."""
    for prompt in prompts("prompts", 30):
        for at in range(len(prompt)):
            for other in (prompt[:at] + prompt[at + 1 :], f"{prompt[:at]}3{prompt[at + 1 :]}"):
                found = read(other)
                assert found is None or str(found) == other
                assert other == prompt or found != read(prompt)


def test_an_instruction_is_added_or_put_in_the_place_of_another() -> None:
    new = Instruction("no_comma")
    assert POEM.with_instruction(new).kinds == ("lowercase", "exclamations", "no_comma")
    assert POEM.with_instruction(new, 0).kinds == ("no_comma", "exclamations")
    assert POEM.with_instruction(new, 1).kinds == ("lowercase", "no_comma")
