"""Demonstrations of the warm-up: texts changed by rule until they follow their instructions."""

from __future__ import annotations

import random

import pytest

from harness.worlds.instructions.kinds import KINDS, NEW, SEEN, Instruction
from harness.worlds.instructions.rules import is_text, share_followed, task_of
from harness.worlds.instructions.tasks import Task, subjects_of
from harness.worlds.instructions.warm_up import demonstrate, demonstrations

TEXT = "My old bicycle, which is red, has a very good bell and it rings."
FORM = "Write a short poem about {}"


def of(text: str, *instructions: Instruction) -> str:
    return demonstrate(Task(FORM, "an old bicycle", instructions), text, random.Random(0))


@pytest.mark.parametrize("kind", SEEN)
def test_a_demonstration_follows_its_instruction(kind: str) -> None:
    for value in KINDS[kind].values:
        one = Instruction(kind, value)
        shown = of(TEXT, one)
        assert one.followed(shown), (value, shown)
        assert is_text(Task(FORM, "an old bicycle", (one,)), shown), (value, shown)


def test_instructions_are_followed_in_an_order_that_keeps_those_before() -> None:
    quoted_title = of(TEXT, Instruction("quoted"), Instruction("title"))
    assert quoted_title == f'"<<An Old Bicycle>>\n{TEXT}"'


def test_of_many_demonstrations_three_in_four_instructions_are_followed() -> None:
    subject = subjects_of("training")[0]
    about = Task(FORM, subject, ())
    texts = [(about, f"This is {subject}, and it is mine."), (about, f"I saw {subject} today.")]
    made = demonstrations(texts, 200)
    tasks = [task_of(prompt) for prompt, _ in made]
    assert not {kind for task in tasks for kind in task.kinds} & set(NEW)
    assert {task.subject for task in tasks} == {subject}
    shares = [share_followed(task, text) for task, (_, text) in zip(tasks, made, strict=True)]
    assert 0.65 < sum(shares) / len(shares) < 0.9
    assert made == demonstrations(texts, 200)
