"""Where the package `if-verifiable` has a kind of instruction, they agree on 1,000 made-up answers.

Left out of the answers is what the two read differently on purpose: a keyword within a longer word,
a P.S. that comes first, bullet points with a dash or without a space, the asterisk of a bullet
point beside a highlight's, and a divider at the very end.
"""

import random
from typing import Any

import pytest

from harness.worlds.instructions.kinds import Instruction, Value

pytestmark = pytest.mark.slow

SAME: dict[str, tuple[str, tuple[Value, ...], str | None, dict[str, Any]]] = {
    # kind: its class there, values, the argument that takes the value, and other arguments
    "no_comma": ("CommaChecker", (None,), None, {}),
    "quoted": ("QuotationChecker", (None,), None, {}),
    "title": ("TitleChecker", (None,), None, {}),
    "postscript": ("PostscriptChecker", (None,), None, {"postscript_marker": "P.S."}),
    "placeholders": ("PlaceholderChecker", (1, 2, 3), "num_placeholders", {}),
    "highlights": ("HighlightSectionChecker", (1, 2, 3), "num_highlights", {}),
    "bullets": ("BulletListChecker", (2, 3, 4), "num_bullets", {}),
    "paragraphs": ("ParagraphChecker", (2, 3), "num_paragraphs", {}),
    "end": ("EndChecker", ("The end.", "Thank you."), "end_phrase", {}),
    "word": ("KeywordChecker", ("river", "stone"), "keywords", {}),
    "avoid": ("ForbiddenWords", ("very", "the", "it"), "forbidden_words", {}),
    "word_twice": (
        "KeywordFrequencyChecker",
        ("river", "stone"),
        "keyword",
        {"frequency": 2, "relation": "at least"},
    ),
    "at_least": ("NumberOfWords", (20, 30, 40), "num_words", {"relation": "at least"}),
}

PLAIN = (
    "the river runs by a very old stone bridge",
    "It is quiet, and the birds sing",
    "a fox came home",
    '"So be it"',
    "Dear [name]",
    "see you in [place]",
    "<<A title>>",
    "Thank you.",
    "The end.",
    "stone on stone",
    "what a day! what a night!",
    "nobody knows why",
    "River",
)

STARRED = ("see *a bright day*", "so **much ado**")

SEPARATORS = (" ", "\n", "\n\n", "\n***\n")


def answer(rng: random.Random) -> str:
    """Return a text of some pieces: bullet points, or laid out by chance."""
    count = rng.randint(1, 8)
    if rng.random() < 0.3:
        text = "".join(f"\n* {piece}" for piece in rng.choices(PLAIN, k=count))
    else:
        own = rng.choices((" ", *rng.choices(SEPARATORS, k=2)), k=count)
        pieces = rng.choices((*PLAIN, *STARRED, *STARRED), k=count)
        text = "".join(f"{sep}{piece}" for sep, piece in zip(own, pieces, strict=True))
    text = text.removeprefix("\n***\n") + rng.choice(
        ("", "", "\nP.S. a fox came home", "\nThe end.")
    )
    return f'"{text}"' if rng.random() < 0.2 else text


@pytest.mark.parametrize("kind", SAME)
def test_both_say_the_same_of_a_thousand_answers(kind: str) -> None:
    theirs = pytest.importorskip("if_verifiable.ifeval.instructions")
    name, values, argument, more = SAME[kind]
    rng, verdicts = random.Random(kind), set[bool]()
    for _ in range(1000):
        text, value = answer(rng), rng.choice(values)
        given = [value] if argument in ("keywords", "forbidden_words") else value
        checker = getattr(theirs, name)(kind)
        checker.build_description(**more, **({argument: given} if argument else {}))
        ours = Instruction(kind, value).followed(text)
        assert ours == bool(checker.check_following(text)), (value, text)
        verdicts.add(ours)
    assert verdicts == {True, False}
