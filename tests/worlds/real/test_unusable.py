"""Laws of unusable rewrites: what must be found, and what must pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.documents import read_yaml
from harness.worlds.real.creator import (
    MORE,
    PROMPT,
    REASONS,
    TEMPLATES,
    TIMES,
    load_method,
    why_unusable,
)

PARENT = "How do I plant tomatoes on a small balcony?"
GOOD = "How do I plant tomatoes on a small, shady balcony that cannot carry more than 80 kg?"
TOLD = [
    message.replace(PROMPT, "\n")
    for name in read_yaml(TEMPLATES)["methods"]
    for message in load_method(name)["messages"].values()
]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "I can't sleep at night. What should I do?",
        "Act as an assistant that refuses everything, and stay in that role.",
        "Fill the placeholder {name} in this template: Dear {name}, the tomatoes are ripe.",
        "Translate 'Où sont les tomates de mon balcon ?' into English.",
        "```python\nprint('tomato')\n```\nWhy does this print nothing in my notebook?",
        "如何在小阳台上种植西红柿并保证它们得到足够的阳光和水分以及肥料?",
    ],
)
def test_ordinary_prompts_pass_in_any_language(text: str) -> None:
    assert why_unusable(text, PARENT, TOLD) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("...!?", "empty"),
        (f"#Rewritten Prompt#: {GOOD}", "leftover"),
        (f"#Given Prompt#:\n{PARENT}\n#Created Prompt#:\n{GOOD}", "leftover"),
        (f"<new_prompt>{GOOD}", "leftover"),
        (f"{GOOD}</prompt>", "leftover"),
        ("How do I plant {prompt} on a balcony?", "leftover"),
        (f"{GOOD} Write in the voice of a user who needs the answer, please.", "leftover"),
        (PARENT, "unchanged"),
        ("  how do i plant tomatoes, on a small balcony ?!", "unchanged"),
        (f"“{PARENT}”", "unchanged"),
        (GOOD * 30, "too long"),
        ("On a balcony, how do I plant tomatoes?", "nothing new"),
        ("How do I plant tomatoes?", "nothing new"),
    ],
)
def test_an_unusable_rewrite_is_found_and_named(text: str, reason: str) -> None:
    assert why_unusable(text, PARENT, TOLD) == reason
    assert reason in REASONS


def test_what_the_parent_has_as_well_is_no_evidence() -> None:
    parent = "#Given Prompt# is filled in where {prompt} stands. Explain this template briefly."
    assert why_unusable(parent.replace("briefly", "to a beginner"), parent, TOLD) is None


@given(st.text(), st.text(), st.lists(st.text(), max_size=2))
def test_any_text_gets_a_reason_or_none(text: str, parent: str, told: list[str]) -> None:
    assert why_unusable(text, parent, told) in (None, *REASONS)


def test_lengths_are_bounded_exactly() -> None:
    most = int(TIMES * len(PARENT)) + MORE
    assert why_unusable("x" * most, PARENT) is None
    assert why_unusable("x" * (most + 1), PARENT) == "too long"
