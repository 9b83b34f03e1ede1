"""The little that the stand-ins are about: subjects, questions on them, and sentences in reply.

Everything is composed from the lists below, so that the same texts serve as human prompts, as the
policy's demonstrations, as benchmark items and as what tokenizers are trained on. None of it is
taken from a data set.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

SUBJECTS: Mapping[str, tuple[str, str, str]] = {
    "a sundial": (
        "A rod throws a shadow on a plate.",
        "The shadow moves as the sun does.",
        "It shows no hour after dark.",
    ),
    "a bicycle": (
        "The pedals turn a chain.",
        "The chain turns the rear wheel.",
        "A rider steers to stay upright.",
    ),
    "bread": (
        "Flour and water make a dough.",
        "Yeast fills the dough with gas.",
        "Heat sets the crust.",
    ),
    "a library": (
        "Books stand in the order of their numbers.",
        "Readers borrow them for some weeks.",
        "A catalogue says where each one is.",
    ),
    "rain": (
        "Warm air carries water upwards.",
        "The water cools and gathers in drops.",
        "Heavy drops fall.",
    ),
    "a compass": (
        "A needle turns on a pin.",
        "The field of the earth pulls at it.",
        "Iron nearby leads it astray.",
    ),
    "a garden": (
        "Plants need light and water.",
        "Weeds take both from them.",
        "Good soil holds water for long.",
    ),
    "a clock": (
        "A weight or a spring drives the wheels.",
        "A pendulum keeps them in step.",
        "The hands show what they count.",
    ),
    "a letter": (
        "It begins with a greeting.",
        "It says what is wanted.",
        "It ends with a name.",
    ),
    "a bridge": (
        "An arch carries weight to both banks.",
        "Cables carry it to towers.",
        "Wind and trains make it swing.",
    ),
    "a map": (
        "It shows a place from above.",
        "Its scale says how far things are.",
        "North is mostly at the top.",
    ),
    "a kitchen": (
        "Food is kept cold until it is used.",
        "Knives are sharp for a reason.",
        "A clean table saves time.",
    ),
}
"""What prompts are about, and three sentences on each."""

QUESTIONS = (
    "Explain how {subject} works.",
    "Describe {subject} to a child.",
    "What should everybody know about {subject}?",
    "Write two sentences about {subject}.",
    "Why do people care about {subject}?",
    "List three facts about {subject}.",
    "How would you begin a talk on {subject}?",
    "Give a short definition of {subject}.",
    "What is often misunderstood about {subject}?",
    "Compare {subject} with something similar.",
    "Tell me in a few words what matters in {subject}.",
    "What could go wrong with {subject}?",
)
"""How they are asked."""

FOLLOW_UPS = ("Now say it in one sentence.", "Can you give a reason for that?")
"""What a user says after the first answer."""

WANTED = (
    "Give one example from daily life.",
    "Explain the reason behind each step.",
    "What changes if there is little time?",
    "Answer so that an expert would agree.",
    "Name one thing that is hard to measure.",
    "What would you ask an engineer about it?",
)
"""What a rewritten prompt asks for on top."""


def prompts() -> list[str]:
    """Return all questions on all subjects: 144 texts in a fixed order, no two alike."""
    return [question.format(subject=subject) for question in QUESTIONS for subject in SUBJECTS]


def reply(prompt: str, number: int) -> str:
    """Return sentences on the subject of a prompt, in an order that a number draws."""
    known = next((said for subject, said in SUBJECTS.items() if subject in prompt), None)
    sentences = list(known or [said for said, _, _ in SUBJECTS.values()])
    draw = random.Random(f"{number}/{prompt}")
    return " ".join(draw.sample(sentences, draw.randint(1, 3)))


def demonstrations(each: int) -> list[tuple[str, str]]:
    """Return prompts with replies, so many for each prompt."""
    return [(prompt, reply(prompt, number)) for prompt in prompts() for number in range(each)]


def all_texts() -> list[str]:
    """Return every text there is, for tokenizers to be trained on."""
    said = [sentence for sentences in SUBJECTS.values() for sentence in sentences]
    return [*prompts(), *said, *FOLLOW_UPS, *WANTED]
