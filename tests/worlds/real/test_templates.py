"""Laws of the templates file: complete, and read as it says."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.real.creator import METHODS, PROMPT, Scheme, load_scheme


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


def test_our_own_file_has_a_message_for_every_method_that_holds_the_prompt_and_its_tag() -> None:
    for name, methods in METHODS.items():
        messages = load_scheme(name).messages
        assert set(messages) == set(methods)
        for message in messages.values():
            assert message.count(PROMPT) == 1
            assert "{instruction}" not in message
            assert "<new_prompt>" in message


def test_evol_complexity_is_evol_instruct_in_depth() -> None:
    """EvolComplexity has EvolInstruct's four methods in depth, and no breadth (table 12)."""
    messages = load_scheme("evol_instruct").messages
    assert load_scheme("evol_complexity").messages == {
        name: messages[name] for name in METHODS["evol_complexity"]
    }


def test_the_digest_is_that_of_the_words() -> None:
    words = {"name": "self_instruct", "messages": {"new": "[{prompt}]", "old": "{prompt}"}}
    scheme = Scheme.model_validate(words)
    turned = Scheme(name="self_instruct", messages={"old": "{prompt}", "new": "[{prompt}]"})
    assert (turned.digest, turned.methods) == (scheme.digest, ("new", "old"))
    other = Scheme(name="self_instruct", messages={"new": "{prompt}"})
    assert other.digest != scheme.digest == Scheme.of(scheme.settings).digest


@given(st.text())
def test_a_prompt_is_put_in_as_it_is(prompt: str) -> None:
    """Also one that holds braces or placeholders itself."""
    scheme = Scheme(name="self_instruct", messages={"new": "[{prompt}]"})
    for text in (prompt, prompt + "{prompt}", "{" + prompt + "}"):
        assert scheme.message("new", text) == f"[{text}]"
