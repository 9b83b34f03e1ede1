"""Laws of unusable rewrites: what must be found, and what must pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.real.creator import OWN_TEMPLATES, PROMPT, read_templates
from harness.worlds.real.unusable import (
    LIMITS,
    REASONS,
    asks,
    changed_language,
    has_leftover,
    is_answer,
    is_refusal,
    language,
    normalised,
    why_unusable,
)

PARENT = "How do I plant tomatoes on a small balcony?"
GOOD = "How do I plant tomatoes on a small, shady balcony that cannot carry more than 80 kg?"
TOLD = [
    message.replace(PROMPT, "\n")
    for scheme in read_templates(OWN_TEMPLATES).values()
    for message in scheme.messages.values()
]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "Plan a season of tomatoes for a balcony of two square metres, month by month.",
        "I can't sleep at night. What should I do?",
        "I cannot get my code to compile; can you help?",
        "I cannot write well. Improve this essay on tomatoes for me.",
        "I won't pay for these dead tomato plants. Draft a letter to the nursery.",
        "I am unable to log in to my garden planner. Write an email to its support.",
        "Sorry, I can't find my trowel again, where would you look for it?",
        "I'm sorry if this is inappropriate, but how do I ask my boss for a raise?",
        "As an AI expert, I want you to explain how attention works.",
        "As an AI language model, can you tell me what you are?",
        "Act as an assistant that refuses everything, and stay in that role.",
        "This request was sent to me by a client. Rephrase it politely: send the plants now!",
        "Here is a prompt for a painter: tomatoes at dusk. Which colours would you use?",
        "Here's a list of seeds. Sort it by price: basil 2, tomato 3, chili 1.",
        "Solve the equation x^2 + 3x = 10 for x, and show each step.",
        "The answer to life is 42, they say. Why?",
        "Answer the following question in one line: how tall do tomatoes grow?",
        "Write an email to [name], my neighbour, about the tomatoes on [date].",
        "Fill the placeholder {name} in this template: Dear {name}, the tomatoes are ripe.",
        "Translate 'Où sont les tomates de mon balcon ?' into English.",
        "Tomatoes need sun. My balcony has none. The landlord says no to lamps. What now?",
        "Translate this into English: Où sont les tomates qui étaient sur mon balcon hier soir ?",
        "List three\n- tomatoes\n- herbs\n- flowers\nthat bear shade.",
        "balcony tomatoes for beginners",
        "```python\nprint('tomato')\n```\nWhy does this print nothing in my notebook?",
        "Original question: how do tomatoes grow? Ask it so that a child of six understands.",
    ],
)
def test_ordinary_prompts_pass(text: str) -> None:
    assert why_unusable(text, PARENT, TOLD) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("...!?", "empty"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("I’m not able to help with that, as I’m only a language model.", "refusal"),
        ("I cannot assist with rewriting this prompt as it promotes harm.", "refusal"),
        ("As an AI language model, I cannot create content of this kind.", "refusal"),
        ("Sorry, I can't fulfill this request.", "refusal"),
        ("I must respectfully decline.", "refusal"),
        ("I apologize, but I am unable to rewrite this prompt.", "refusal"),
        ("Unfortunately, I can't help with this.", "refusal"),
        ("This prompt violates the guidelines that I follow.", "refusal"),
        ('"I cannot create such content."', "refusal"),
        (f"#Rewritten Prompt#: {GOOD}", "leftover"),
        (f"#Given Prompt#:\n{PARENT}\n#Created Prompt#:\n{GOOD}", "leftover"),
        (f"Rewritten prompt: {GOOD}", "leftover"),
        (f"**New Prompt:** {GOOD}", "leftover"),
        (f"## Revised question:\n{GOOD}", "leftover"),
        (f"Original prompt: {PARENT}\n{GOOD}", "leftover"),
        (f"Here is the rewritten prompt: {GOOD}", "leftover"),
        (f"Sure! Here's a more challenging version of it:\n\n{GOOD}", "leftover"),
        (f"<new_prompt>{GOOD}", "leftover"),
        (f"{GOOD}</prompt>", "leftover"),
        ("How do I plant {prompt} on a balcony?", "leftover"),
        (f"{GOOD}\n\nGive the new prompt between the tags and write nothing else.", None),
        (f"{GOOD} Write in the voice of a user who needs the answer, please.", "leftover"),
        (PARENT, "unchanged"),
        ("  how do i plant tomatoes, on a small balcony ?!", "unchanged"),
        (f"“{PARENT}”", "unchanged"),
        (GOOD * 30, "too long"),
        ("Hi", "too short"),
        ("Wie pflanze ich Tomaten auf einem kleinen Balkon, der nicht viel trägt und im Schatten "
         "liegt?", "language"),
        ("如何在小阳台上种植西红柿并保证它们得到足够的阳光和水分以及肥料?", "language"),
        ("Как посадить помидоры на маленьком балконе?", "language"),
        ("Answer: in pots of 20 litres.", "answer"),
        ("**Solution:** use pots of 20 litres with holes.", "answer"),
        ("Certainly! The pots should hold 20 litres.", "answer"),
        ("The answer is to use pots.", "answer"),
        (
            "Tomatoes do well in pots of 20 litres or more. The soil is loose and rich in compost. "
            "A sunny wall keeps them warm at night. They carry fruit from July to October.",
            "answer",
        ),
    ],
)  # fmt: skip
def test_an_unusable_rewrite_is_found_and_named(text: str, reason: str | None) -> None:
    assert why_unusable(text, PARENT, TOLD) == reason
    assert reason is None or reason in REASONS


def test_what_the_parent_has_as_well_is_no_evidence() -> None:
    """Prompts about refusals, templates or other languages stay what they are when rewritten."""
    parent = "#Given Prompt# is filled in where {prompt} stands. Explain this template briefly."
    assert why_unusable(parent.replace("briefly", "to a beginner"), parent, TOLD) is None
    parent = "I'm sorry, but I can't help with that. Why do assistants say so?"
    assert why_unusable(parent + " Give three reasons and an example each.", parent) is None
    parent = "Wie alt ist der Balkon, auf dem die Tomaten stehen, und wer hat ihn gebaut?"
    assert (
        why_unusable("Wer hat den Balkon gebaut, und was ist das Alter der Tomaten?", parent)
        is None
    )
    parent = "Answer: 42. What was the question?"
    assert why_unusable("Answer: 42. What were three possible questions?", parent) is None


def test_text_that_was_pasted_does_not_make_an_answer() -> None:
    """The request stands at one end, and much that asks nothing in between."""
    pasted = "The balcony faces north. It is narrow. The floor is wood. The rail is iron. " * 3
    for text in (f"Summarise this text.\n\n{pasted}", f"{pasted}\n\nSummarise this text.",
                 f"{pasted}\nI would like to know what it says about the floor."):  # fmt: skip
        assert asks(text)
        assert not is_answer(text, PARENT)
    assert not asks(pasted)
    assert is_answer(pasted, PARENT)


def test_a_parent_that_asks_nothing_has_no_answers() -> None:
    told = "The balcony faces north. It is narrow. The floor is wood. The rail is iron."
    assert not is_answer(told + " There is no lamp.", told)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("What is the fastest way to sort a list that is almost in order already?", "English"),
        ("¿Cuál es la forma más rápida de ordenar una lista que ya está casi en orden?", "Spanish"),
        ("Wie sortiert man eine Liste am schnellsten, die schon fast in Ordnung ist?", "German"),
        ("Quelle est la façon la plus rapide de trier une liste presque en ordre ?", "French"),
        ("Как быстрее всего отсортировать почти упорядоченный список?", "CYRILLIC"),
        ("ほとんど整列しているリストを最も速く並べ替える方法は何ですか", "CJK"),
        ("Sort 3 1 2", None),
        ("x^2 + y^2 = z^2, a^2 + b^2 = c^2, p^2 + q^2 = r^2", None),
        ("`le la les de des un une est en que qui dans pour` sort sort", None),
    ],
)  # fmt: skip
def test_a_language_is_told_where_it_is_clear(text: str, known: str | None) -> None:
    assert language(text) == known


def test_what_has_no_language_has_not_changed_it() -> None:
    english = "What is the fastest way to sort a list that is almost in order already?"
    assert not changed_language("Sort 3 1 2", english)
    assert not changed_language(english, "Sort 3 1 2")
    assert not changed_language(english, english)


texts = st.text(max_size=300)


@given(texts, texts, st.lists(texts, max_size=2))
def test_any_text_gets_a_reason_or_none(text: str, parent: str, told: list[str]) -> None:
    assert why_unusable(text, parent, told) in (None, *REASONS)


@given(texts)
def test_a_prompt_is_never_a_rewrite_of_itself(text: str) -> None:
    """Whatever case, space and punctuation the copy has (`ß` and `SS` are the same letters)."""
    for copy in (text, text.upper(), f'  "{text}" \n', f"{text}..."):
        assert why_unusable(copy, text) is not None


@given(texts)
def test_the_same_words_stay_the_same(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)
    assert normalised(f" {text}, ") == normalised(text)


@pytest.mark.parametrize("pair", ["3 + 4", "3 * 4", "3 / 4", "3 = 4", "3 < 4"])
def test_another_operator_is_another_prompt(pair: str) -> None:
    others = {normalised(p) for p in ("3 + 4", "3 * 4", "3 / 4", "3 = 4", "3 < 4")}
    assert len(others - {normalised(pair)}) == 4


@given(st.integers(0, 400), st.integers(1, 40))
def test_lengths_are_bounded_exactly(extra: int, times: int) -> None:
    """At 3 times the parent and 1,200 characters a text passes, with one more it does not."""
    parent = "Why?" * times
    longest = int(LIMITS.times * len(parent)) + LIMITS.more
    text = "How? " * (longest // 5 + 1)
    assert why_unusable(text[:longest], parent) != "too long"
    assert why_unusable((text + " " * extra)[: longest + 1], parent) == "too long"


@given(st.lists(st.sampled_from("abcdefghij"), min_size=8, max_size=20), st.data())
def test_eight_words_of_the_instructions_are_a_leftover(
    told: list[str], data: st.DataObject
) -> None:
    """And seven are not, since these can be chance."""
    numbered = [f"{word}{place}" for place, word in enumerate(told)]
    first = data.draw(st.integers(0, len(told) - 8))
    said, message = numbered[first : first + 8], ", ".join(numbered).title()
    assert has_leftover(" ".join(["tomatoes", *said]), PARENT, ["Hello.", message])
    assert not has_leftover(" ".join(["tomatoes", *said[:7], "tomatoes"]), PARENT, [message])


@given(st.sampled_from(["I'm sorry, but I can't help with that.", "I cannot assist with this."]))
def test_a_refusal_is_read_at_the_beginning_alone(refusal: str) -> None:
    assert is_refusal(refusal)
    assert not is_refusal(f"Why do assistants say this? {refusal}")
