"""Laws of the templates file: complete, and read as it says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.real.creator import METHODS, PROMPT, ReplyFormat, Scheme, read_templates


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


def test_our_own_file_has_a_message_for_every_method_that_holds_the_prompt_and_its_tag() -> None:
    schemes = read_templates()
    assert set(schemes) == set(METHODS)
    for name, scheme in schemes.items():
        assert set(scheme.messages) == set(METHODS[name])
        for message in scheme.messages.values():
            assert message.count(PROMPT) == 1
            assert "{instruction}" not in message
            assert f"<{scheme.reply.tag}>" in message


def test_evol_complexity_is_evol_instruct_in_depth() -> None:
    """EvolComplexity has EvolInstruct's four methods in depth, and no breadth (table 12)."""
    both = read_templates()
    messages = both["evol_instruct"].messages
    assert both["evol_complexity"].messages == {
        name: messages[name] for name in METHODS["evol_complexity"]
    }


def test_the_digest_is_that_of_the_words() -> None:
    words = {"name": "self_instruct", "messages": {"new": "[{prompt}]", "old": "{prompt}"}}
    scheme = Scheme.model_validate(words)
    turned = Scheme(name="self_instruct", messages={"old": "{prompt}", "new": "[{prompt}]"})
    assert (turned.digest, turned.methods) == (scheme.digest, ("new", "old"))
    others = ({"system": "Be brief."}, {"reply": {"tag": "p"}}, {"messages": {"new": "{prompt}"}})
    digests = {Scheme.model_validate(words | other).digest for other in others}
    assert len(digests | {scheme.digest}) == 4


@given(st.text())
def test_a_prompt_is_put_in_as_it_is(prompt: str) -> None:
    """Also one that holds braces or placeholders itself."""
    scheme = Scheme(name="self_instruct", messages={"new": "[{prompt}]"})
    for text in (prompt, prompt + "{prompt}", "{" + prompt + "}"):
        assert scheme.message("new", text) == f"[{text}]"


@pytest.mark.parametrize(
    ("reply", "text", "read"),
    [
        (ReplyFormat(), "  Sort it. \n", "Sort it."),
        (ReplyFormat(tag="p"), "Sure! <p>\nSort it.\n</p> Enjoy.", "Sort it."),
        (ReplyFormat(tag="p"), "<p>draft</p> no: <p>Sort it.</p>", "Sort it."),
        (ReplyFormat(tag="p"), "I cannot sort it.", None),
        (ReplyFormat(tag="p"), "<p>Sort", None),
        (ReplyFormat(after="Prompt#:"), "#Old Prompt#: a\n#New Prompt#: Sort it.", "Sort it."),
        (ReplyFormat(after="Prompt#:"), "Sort it.", None),
    ],
)
def test_a_reply_is_read_where_the_file_says(
    reply: ReplyFormat, text: str, read: str | None
) -> None:
    assert reply.read(text) == read
