"""Laws of the templates file: complete, and read as it says."""

from harness.worlds.real.creator import PROMPT, load_method

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
"""The operators of each method."""


def test_our_own_file_has_a_message_for_every_operator_that_holds_the_prompt_and_its_tag() -> None:
    for name, operators in METHODS.items():
        messages = load_method(name)["messages"]
        assert set(messages) == set(operators)
        for message in messages.values():
            assert message.count(PROMPT) == 1
            assert "{instruction}" not in message
            assert "<new_prompt>" in message


def test_evol_complexity_is_evol_instruct_in_depth() -> None:
    """EvolComplexity has EvolInstruct's four operators in depth, and no breadth (table 12)."""
    messages = load_method("evol_instruct")["messages"]
    assert load_method("evol_complexity")["messages"] == {
        name: messages[name] for name in METHODS["evol_complexity"]
    }
