r"""Where the package `if-verifiable` has a kind of instruction, they agree on 1,000 real answers.

The policy of `laptop` answers 200 prompts of its pool, five times each. An answer is checked
against the value that its prompt asks for, and against one drawn by chance if it asks for none.
`APART` says which answers the two read differently on purpose; those are left out. So are answers
without a letter, which follow nothing here.
"""

import random
import re
from typing import Any

import pytest

from harness.models.policy import generate
from harness.registry.declared import named_profile
from harness.worlds.instructions import weights
from harness.worlds.instructions.kinds import KINDS, Instruction, Value
from harness.worlds.instructions.tasks import prompts, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

theirs = pytest.importorskip("if_verifiable.ifeval.instructions")

SAME: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    # kind: its class there, the argument that takes the value, and other arguments
    "no_comma": ("CommaChecker", None, {}),
    "quoted": ("QuotationChecker", None, {}),
    "title": ("TitleChecker", None, {}),
    "postscript": ("PostscriptChecker", None, {"postscript_marker": "P.S."}),
    "placeholders": ("PlaceholderChecker", "num_placeholders", {}),
    "highlights": ("HighlightSectionChecker", "num_highlights", {}),
    "bullets": ("BulletListChecker", "num_bullets", {}),
    "paragraphs": ("ParagraphChecker", "num_paragraphs", {}),
    "end": ("EndChecker", "end_phrase", {}),
    "word": ("KeywordChecker", "keywords", {}),
    "avoid": ("ForbiddenWords", "forbidden_words", {}),
    "word_twice": ("KeywordFrequencyChecker", "keyword", {"frequency": 2, "relation": "at least"}),
    "at_least": ("NumberOfWords", "num_words", {"relation": "at least"}),
}

LONGER = r"(?i)\w{v}|{v}['’]?\w"
APART = {
    # There, a P.S. may stand within a line, in small letters, first, and with nothing after it.
    "postscript": r"(?im)^.*[^\s*_#>].*P\. ?S\.|P\. ?S\.\W*\Z|\A\W*P\. ?S\.|(?-i:p\. ?s\.)",
    # There, a bullet point's asterisk can open a highlight, and spaces can stand at its ends.
    "highlights": r"(?m)^[ \t]*\*\s|\*\*\*|\*(\s[^*]*|[^*]*\s)\*",
    # There, a dash and an asterisk without a space are bullet points, and "•" is none.
    "bullets": r"(?m)^[ \t]*[-•]|^[ \t]*\*\S",
    # There, a divider may come first or last; and a longer row of asterisks splits differently.
    "paragraphs": r"\A\W*\*\*\*|\*\*\*\W*\Z|\*{4}",
    # There, case does not matter, and Markdown after the phrase does.
    "end": r"(?!{v})(?i:{v})\W*\Z|[*_#>]\s*\Z",
    # There, a word is also found within a longer one.
    **dict.fromkeys(("word", "word_twice", "avoid"), LONGER),
    # There, figures are words, and "it's" is two.
    "at_least": r"\w['’]\w|\d|_",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """The prompts and answers, in order."""
    if weights.gguf_file() is None:
        pytest.skip(f"needs the weights: {weights.INSTALL}")
    asked = prompts("prompts", 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_WORK", str(tmp_path_factory.mktemp("agreement")))
        sampled = generate(
            weights.folder(),
            [[{"role": "user", "content": prompt}] for prompt in asked],
            **named_profile("laptop").generation.model_dump(exclude={"top_k"}),
            seed=0,
        )
    return [(p, one.text) for p, own in zip(asked, sampled, strict=True) for one in own]


def value_of(kind: str, prompt: str, rng: random.Random) -> Value:
    task = read(prompt)
    assert task is not None
    asked = [one.value for one in task.instructions if one.kind == kind]
    return asked[0] if asked else rng.choice(KINDS[kind].values)


@pytest.mark.parametrize("kind", SAME)
def test_both_say_the_same(kind: str, answers: list[tuple[str, str]]) -> None:
    name, argument, more = SAME[kind]
    rng, verdicts = random.Random(kind), list[bool]()
    for prompt, text in answers:
        value = value_of(kind, prompt, rng)
        apart = APART.get(kind, r"(?!)").replace("{v}", re.escape(str(value)))
        if re.search(apart, text) or not any(map(str.isalpha, text)):
            continue
        given = [value] if argument in ("keywords", "forbidden_words") else value
        checker = getattr(theirs, name)(kind)
        checker.build_description(**more, **({argument: given} if argument else {}))
        ours = Instruction(kind, value).followed(text)
        assert ours == bool(checker.check_following(text)), (value, text)
        verdicts.append(ours)
    assert len(verdicts) >= 500
    assert set(verdicts) == {True, False}
