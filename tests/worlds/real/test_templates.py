"""Laws of the templates file: complete, and read as it says."""

import re

from harness.worlds.real.creator import PROMPT, load_scheme

IN_DEPTH = ("constraints", "deepening", "concretizing", "reasoning")
METHODS = {
    "evol_instruct": (*IN_DEPTH, "breadth"),
    "evol_complexity": IN_DEPTH,
    "evol_quality": ("helpfulness", "relevance", "deepening", "creativity", "details"),
    "self_instruct": ("new",),
    "appendix_f": (
        *("persona", "shift-in", "shift-out", "mix", "abstract"),
        *(*IN_DEPTH, "expansion"),
    ),
}
"""The methods of each scheme."""


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


def test_our_own_file_has_a_message_for_every_method_that_holds_the_prompt_and_its_tag() -> None:
    for name, methods in METHODS.items():
        messages = load_scheme(name)["messages"]
        assert set(messages) == set(methods)
        for message in messages.values():
            assert message.count(PROMPT) == 1
            assert "{instruction}" not in message
            assert "<new_prompt>" in message


def test_evol_complexity_is_evol_instruct_in_depth() -> None:
    """EvolComplexity has EvolInstruct's four methods in depth, and no breadth (table 12)."""
    messages = load_scheme("evol_instruct")["messages"]
    assert load_scheme("evol_complexity")["messages"] == {
        name: messages[name] for name in METHODS["evol_complexity"]
    }
