"""Laws of evolution chains."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UserError
from harness.eva.evolving import (
    PLUGIN_SETTING,
    Evolution,
    NoReplyError,
    OwnCreator,
    Prompt,
    Rewrite,
    Rewriter,
    Write,
    evolve,
    own_method,
    plugin_settings,
)
from harness.extensions import CREATORS


class Appending:
    """A creator that appends a random digit."""

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        return Rewrite(f"{prompt}{rng.integers(10)}", "append")


class Scripted:
    """A creator that follows a script: `+` a usable rewrite, any other word an unusable one."""

    def __init__(self, script: str) -> None:
        self.script = iter(script.split())

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        step = next(self.script)
        if step == "+":
            return Rewrite(f"{prompt}+", "append")
        return Rewrite(None, "append", reason=step)


def run(creator: Rewriter, ids: Iterable[str] = "a", **settings: Any) -> Evolution:
    settings = {"evolutions": 4, "retries": 0, "seed": 7, **settings}
    return evolve([Prompt(i, i) for i in ids], creator, **settings)


def test_a_chain_rewrites_each_child_from_the_one_before_and_keeps_all_but_the_original() -> None:
    children = run(Scripted("+ + + +"), "p").prompts
    assert [child.prompt for child in children] == ["p+", "p++", "p+++", "p++++"]
    assert [child.prompt_id for child in children] == ["p.1.1", "p.1.2", "p.1.3", "p.1.4"]
    assert [child.parent_id for child in children] == ["p", "p.1.1", "p.1.2", "p.1.3"]
    assert [child.generation for child in children] == [1, 2, 3, 4]
    assert {(child.source, child.method) for child in children} == {("evolved", "append")}


def test_a_dropped_child_leaves_a_gap_and_the_chain_goes_on_from_the_last_usable_prompt() -> None:
    result = run(Scripted("+ vague long + +"), "p", retries=1)
    assert [(c.prompt_id, c.parent_id, c.prompt) for c in result.prompts] == [
        ("p.1.1", "p", "p+"),
        ("p.1.3", "p.1.1", "p++"),
        ("p.1.4", "p.1.3", "p+++"),
    ]
    assert (result.dropped, result.attempts) == (1, 5)
    assert result.unusable == {"vague": 1, "long": 1}


def test_a_retry_that_succeeds_drops_nothing() -> None:
    result = run(Scripted("vague vague + +"), "p", evolutions=2, retries=2)
    assert (len(result.prompts), result.dropped) == (2, 0)
    assert result.unusable == {"vague": 2}


def test_a_creator_that_always_fails_yields_no_children_and_every_failure_is_counted() -> None:
    result = run(Scripted("bad " * 12), "ab", evolutions=2, retries=2)
    assert result.prompts == []
    assert (result.dropped, result.attempts, result.unusable["bad"]) == (4, 12, 12)


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_blank_text_is_unusable_even_if_the_creator_gives_no_reason(text: str | None) -> None:
    class Blank:
        def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
            return Rewrite(text, "blank")

    result = run(Blank(), evolutions=1)
    assert (result.prompts, dict(result.unusable)) == ([], {"empty": 1})


@given(st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1), st.data())
def test_a_chain_depends_on_no_other_prompt(ids: set[str], data: st.DataObject) -> None:
    some = data.draw(st.permutations(sorted(ids)))[: data.draw(st.integers(1, len(ids)))]
    every, alone = (run(Appending(), part).prompts for part in (sorted(ids), some))
    assert set(alone) <= set(every)
    assert len(alone) == 4 * len(some)


def test_another_seed_gives_another_chain() -> None:
    assert run(Appending(), seed=1).prompts != run(Appending(), seed=2).prompts


def test_ids_stay_distinct_when_a_prompt_and_its_child_evolve_again_in_a_later_iteration() -> None:
    start = [Prompt("p", "p")]
    first = evolve(start, Appending(), evolutions=2, retries=0, seed=0, iteration=1).prompts
    both = evolve(start + first, Appending(), evolutions=2, retries=0, seed=0, iteration=2).prompts
    ids = [prompt.prompt_id for prompt in start + first + both]
    assert len(set(ids)) == len(ids)
    assert both[-1].prompt_id == "p.1.2.2.2"
    assert both[-1].generation == 4


def test_repeated_ids_are_an_error() -> None:
    with pytest.raises(HarnessError, match="`a` occurs twice"):
        run(Appending(), "aa")


Making = Callable[..., OwnCreator]


@pytest.fixture
def own(registries: None) -> Making:
    """Return what makes a creator of a function, under a rule that refuses short prompts."""

    def make(function: Callable[..., Any], write: Write | None = None) -> OwnCreator:
        CREATORS.register("mine", "1")(function)
        return OwnCreator("mine", lambda new, old, told: "short" if len(new) < 3 else None, write)

    return make


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a new one", Rewrite("a new one", "mine")),
        (None, Rewrite(None, "mine", "none")),
        ("ab", Rewrite(None, "mine", "short", "ab")),
    ],
)
def test_what_a_users_method_returns_is_held_to_the_worlds_rules(
    own: Making, given: str | None, expected: Rewrite
) -> None:
    creator = own(lambda prompt, rng: given)
    assert creator.rewrite("prompt", np.random.default_rng(0)) == expected
    settings: Any = plugin_settings("mine")
    assert settings[PLUGIN_SETTING]["version"] == "1"


def test_a_users_method_asks_the_model_it_is_given(own: Making) -> None:
    def method(prompt: str, rng: Any, write: Callable[[str], str]) -> str:
        return write(f"rewrite: {prompt}")

    def write(message: str, rng: Any) -> str:
        if "bad" in message:
            raise NoReplyError("refused")
        return message.upper()

    creator = own(method, write)
    rng = np.random.default_rng(0)
    assert creator.rewrite("good", rng) == Rewrite("REWRITE: GOOD", "mine")
    assert creator.rewrite("bad", rng) == Rewrite(None, "mine", "refused")


def test_the_worlds_rules_see_what_the_model_was_told_besides_the_prompt(own: Making) -> None:
    seen: list[tuple[str, str, list[str]]] = []
    made = own(lambda prompt, rng, write: write(f"now {prompt}!"), lambda message, rng: "a reply")
    creator = replace(made, why_unusable=lambda *given: seen.append((*given[:2], list(given[2]))))
    assert creator.rewrite("old", np.random.default_rng(0)) == Rewrite("a reply", "mine")
    assert seen == [("a reply", "old", ["now \n!"])]


def test_a_shipped_method_adds_nothing_to_a_stages_settings() -> None:
    assert plugin_settings("evol_instruct") == {}


def test_a_users_method_that_returns_no_text_is_one_sentence(own: Making) -> None:
    with pytest.raises(UserError, match="`mine` returned int: let it return"):
        own(lambda prompt, rng: 5).rewrite("prompt", np.random.default_rng(0))


def test_a_stage_runs_with_the_method_it_was_planned_with(own: Making) -> None:
    own(lambda prompt, rng: prompt)
    settings = {"creator": "micro/mine", **plugin_settings("mine")}
    assert own_method(settings) == "mine"
    assert own_method({"creator": "micro/evol_instruct"}) is None
    other: Any = {**settings, PLUGIN_SETTING: {"name": "mine", "version": "2"}}
    with pytest.raises(HarnessError, match="not what is loaded now"):
        own_method(other)
