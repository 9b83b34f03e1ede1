"""Laws of the embedded creator: what each operator does, what it never does, how it fails."""

import random
from collections import Counter

import numpy as np
import pytest
from build_micro import HARD, HUMAN, draw_prompts, pairwise_items
from micro_reading import read

from harness.eva.evolving import Evolution, Prompt, Rewrite, evolve
from harness.registry.recipe import Reach
from harness.worlds.embedded import files
from harness.worlds.embedded.creator import (
    CONSTRAINTS,
    IN_DEPTH,
    METHODS,
    VOCABULARY,
    EmbeddedCreator,
    draw_name,
    embedded_creator,
    why_unusable,
)
from harness.worlds.embedded.language import MEANING, Task, parse
from harness.worlds.embedded.texts import TOPIC_OF, TOPICS, read_prompts, topic_of

DRAWS = 200


def task(items: str, *names: str) -> Task:
    return Task(tuple(items.split()), names)


def results(
    operator: str, given: Task, method: str = "evol_instruct", reach: Reach = "topic"
) -> set[Task]:
    """What an operator makes of a task, over many draws."""
    return {METHODS[method][operator](given, reach, random.Random(seed)) for seed in range(DRAWS)}


def known_of(topic: int) -> set[str]:
    """The names of a topic that are in the creator's vocabulary."""
    return set(TOPICS[topic]) & VOCABULARY


def beside(name: str, *operations: str) -> set[str]:
    """The names that the creator may add to one alone, of some operations or of all."""
    known = known_of(TOPIC_OF[name])
    return {n for n in known if not operations or MEANING[n].id in operations}


def human_prompts(seed: int, count: int) -> list[str]:
    return draw_prompts("human", HUMAN, seed, count)


def added(reach: Reach, count: int = 6000) -> Counter[str]:
    """How often names are added to a task of the topic that is asked about most."""
    rng, given = random.Random(0), task("1", TOPICS[0][0])
    return Counter(draw_name(given, reach, 0, rng) for _ in range(count))


@pytest.mark.parametrize("method", METHODS)
def test_within_its_parents_names_it_adds_none(method: str) -> None:
    """Whatever the operator, though the parent may hold names that it does not know itself."""
    for given in (task("1 b", "swap-14"), task("1 b 3 4", "reverse-7", "sort_down-8")):
        for operator in METHODS[method]:
            made = results(operator, given, method, "parent")
            assert {name for new in made for name in new.names} <= set(given.names)


def test_a_creator_reaches_no_further_than_it_is_told() -> None:
    """Of 400 rewrites some add names of other topics, but not if the reach is its parent's."""
    strange: dict[str, int] = {}
    reaches: tuple[Reach, ...] = ("parent", "topic", "people", "even")
    for reach in reaches:
        rng, creator = np.random.default_rng(0), embedded_creator("world/evol_complexity", reach)
        pairs = [(p, creator.rewrite(p, rng).prompt) for p in human_prompts(5, 400)]
        strange[reach] = sum(
            TOPIC_OF[name] != topic_of(read(parent))
            for parent, text in pairs if text
            for name in read(text).names
        )  # fmt: skip
    assert strange["parent"] == strange["topic"] == 0
    assert 50 < strange["people"] < strange["even"]


def test_constraints_adds_a_name_of_one_of_four_restrictions_at_the_end() -> None:
    """Of the ten names of its topic two restrict."""
    assert CONSTRAINTS == ("first_three", "keep_letters", "keep_digits", "drop_first")
    made = results("constraints", task("1 b 3", "reverse-7"))
    assert {(m.items, m.names[0], len(m.names)) for m in made} == {
        (("1", "b", "3"), "reverse-7", 2)
    }
    assert {m.names[1] for m in made} == {"first_three-1", "first_three-6"}
    assert beside("reverse-7", *CONSTRAINTS) == {"first_three-1", "first_three-6"}


def test_deepening_adds_a_name_of_the_last_ones_category() -> None:
    """sort_up is reasoning, as is sort_down; every_other is all there is of its category."""
    for only, kin in (("sort_up-4", ("sort_up", "sort_down")), ("every_other-6", ("every_other",))):
        made = results("deepening", task("1 b", only))
        assert {(m.items, m.names[0], len(m.names)) for m in made} == {(("1", "b"), only, 2)}
        assert {m.names[1] for m in made} == beside(only, *kin)


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        *((operator, ("reverse-7", "swap-15")) for operator in IN_DEPTH),
        *((operator, ("reverse-7", "swap-15", "rotate-9")) for operator in IN_DEPTH),
        ("concretizing", ("reverse-7",)),
    ],
)
def test_a_prompt_of_two_names_or_a_short_list_gets_an_item_instead_up_to_six(
    operator: str, names: tuple[str, ...]
) -> None:
    """The policy can hardly answer deeper ones; concretising adds an item to any."""
    made = results(operator, task("1 b", *names))
    assert {m.names for m in made} == {names}
    assert {m.items[:2] for m in made if m.items} == {("1", "b")}
    assert {len(m.items or ()) for m in made} == {3}
    long = task("1 2 3 4 5 6", *names)
    assert results(operator, long) == {long}


def test_reasoning_inserts_one_name_of_the_topic_anywhere() -> None:
    """Before or after the one that is there, which may be drawn again."""
    made = results("reasoning", task("1 b", "swap-14"))
    assert {m.items for m in made} == {("1", "b")}
    known = beside("swap-14")
    assert {m.names for m in made} == {
        *((name, "swap-14") for name in known),
        *(("swap-14", name) for name in known),
    }


def test_breadth_asks_something_of_a_topic_next_to_it_in_popularity() -> None:
    """As much: two names of one topic, on a new list."""
    made = results("breadth", task("1 b", *TOPICS[12][:2]))
    assert len(made) > DRAWS / 2
    topics: Counter[int] = Counter()
    for new in made:
        assert len(new.names) == 2
        [topic] = {TOPIC_OF[name] for name in new.names}
        assert set(new.names) <= VOCABULARY
        assert 4 <= len(new.items or ()) <= 6
        topics[topic] += 1
    assert set(topics) == {11, 13}
    assert min(topics.values()) > DRAWS / 4


PARENT = "take 1 2 and reverse-1"
TOO_DEEP = "take 1 2 and reverse-1 , then swap-1 , then swap-1 , then swap-2 , then sort_up-1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PARENT, "unchanged"),
        ("#rewritten prompt# : take 1 2 and sort_up-1", "leftover"),
        (TOO_DEEP, "too long"),
        ("tell me a joke", "unreadable"),
        ("take 1 2 and sort_up-1", None),
        ("reverse-1 : 1 2", None),
    ],
)
def test_an_unusable_rewrite_is_found_and_named(text: str, reason: str | None) -> None:
    assert why_unusable(text, PARENT) == reason


def rewrites(prompts: list[str], seed: int = 0) -> list[tuple[str, Rewrite]]:
    rng = np.random.default_rng(seed)
    creator = EmbeddedCreator()
    return [(prompt, creator.rewrite(prompt, rng)) for prompt in prompts]


def test_a_prompt_that_is_not_a_task_with_a_list_comes_back_unchanged() -> None:
    for text in ("tell me a joke", "now reverse-1"):
        for _, rewrite in rewrites([text] * 50):
            assert (rewrite.prompt, rewrite.reason) == (None, "unchanged")


def mixed_parents() -> list[str]:
    """Human prompts, and benchmark prompts, which have every frame and the rarest names."""
    hard = pairwise_items("arena_hard", HARD, 7, 500, set())
    return [*human_prompts(3, 1500), *(item.turn_1 for item in hard)]


KEPT = {
    "constraints": (0, 1),
    "deepening": (0, 1),
    "reasoning": (0, 1),
    "concretizing": (0, 0),
    "creativity": (1, 1),
    "details": (0, 0),
    "helpfulness": (4, 0),
    "relevance": (4, 0),
}
"""Names of the prompt that an operator may leave out, at most, and those that it may add."""


@pytest.mark.parametrize("method", METHODS)
def test_names_of_the_prompt_are_kept_but_where_an_operator_replaces_them(method: str) -> None:
    """By multisets; breadth and self-instruct write a new task and keep nothing.

    What is added is of the topic, and in depth only to a prompt of one name.
    """
    rng, creator = np.random.default_rng(1), embedded_creator(f"world/{method}", "topic")
    seen = Counter[str]()
    for parent in mixed_parents():
        rewrite = creator.rewrite(parent, rng)
        if rewrite.prompt is None or rewrite.method not in KEPT:
            continue
        before, after = Counter(read(parent).names), Counter(read(rewrite.prompt).names)
        more = after - before
        seen[rewrite.method] += 1
        assert (before - after).total() <= KEPT[rewrite.method][0]
        assert more.total() <= KEPT[rewrite.method][1]
        assert set(more) <= known_of(topic_of(read(parent)))
        assert rewrite.method == "creativity" or not more or before.total() == 1
    assert set(seen) == set(METHODS[method]) & set(KEPT)


@pytest.fixture(scope="module")
def evolved() -> tuple[list[Prompt], Evolution]:
    """400 human prompts, and four rewrites of each."""
    prompts = [Prompt(f"h{i:05d}", text) for i, text in enumerate(human_prompts(0, 400))]
    return prompts, evolve(prompts, EmbeddedCreator(), evolutions=4, retries=2, seed=0)


def test_evolving_human_prompts_loses_few_children_and_accounts_for_all(
    evolved: tuple[list[Prompt], Evolution],
) -> None:
    """Each call gives a child or is counted; each child asked for is there or dropped.

    An iteration asks for 4 x 0.25 = 1 child for each prompt of the mix and needs 0.8, so that
    anything near a fifth lost would leave too few.
    """
    _, result = evolved
    assert result.attempts == len(result.prompts) + sum(result.unusable.values())
    assert len(result.prompts) + result.dropped == 4 * 400
    assert 0 < result.dropped < 0.08 * 4 * 400
    assert set(result.unusable) == {"unchanged", "leftover"}
    assert all(parse(prompt.prompt) is not None for prompt in result.prompts)


def test_the_card_says_how_much_of_a_rewrite_is_its_parents() -> None:
    """Counted here in another way, to half a unit of the third decimal."""
    card = files.card()
    human = read_prompts(files.folder() / card.assets["prompts"]["path"])
    starts = [Prompt(f"h{i}", text) for i, text in enumerate(human)]
    made = evolve(starts, EmbeddedCreator(), evolutions=4, retries=2, seed=0).prompts
    text_of = {p.prompt_id: p.prompt for p in (*starts, *made)}
    total, kept, of_first, near = 0, 0, 0, 0
    for child in made:
        names, first = read(child.prompt).names, child.prompt_id.split(".")[0]
        parent = read(text_of[child.parent_id or ""])
        total += len(names)
        of_first += sum(name in read(text_of[first]).names for name in names)
        kept += sum(name in parent.names for name in names)
        near += sum(name in {*parent.names, *TOPICS[topic_of(parent)]} for name in names)
    noted = card.notes["creator"]
    assert noted["kept"] == pytest.approx(kept / total, abs=0.0005)
    assert noted["kept_or_topic"] == pytest.approx(near / total, abs=0.0005)
    assert noted["kept_of_first"] == pytest.approx(of_first / total, abs=0.0005)
    assert noted["names"] == pytest.approx(total / len(made), abs=0.0005)
    assert noted["teaches_alike"] > 0.5 < noted["right_alike"]


def test_helpfulness_leaves_out_what_has_no_effect() -> None:
    """`1 2` is sorted and holds no letters: only reversing it changes anything."""
    asked = task("1 2", "sort_up-1", "reverse-7", "keep_digits-1")
    assert results("helpfulness", asked, "evol_quality") == {task("1 2", "reverse-7")}
    idle = task("1 2", "sort_up-1")
    assert results("helpfulness", idle, "evol_quality") == {idle}


def test_relevance_leaves_out_what_was_just_said_in_other_words_too() -> None:
    asked = task("1 b", "rotate-1", "rotate-2", "reverse-1", "rotate-1")
    assert results("relevance", asked, "evol_quality") == {
        task("1 b", "rotate-1", "reverse-1", "rotate-1")
    }


def test_creativity_replaces_one_name_by_one_of_the_first_names_topic() -> None:
    """Two that it does not know, so that what it adds is told apart."""
    before = ("swap-14", "every_other-1")
    assert not VOCABULARY & set(before)
    made = results("creativity", task("1 b", *before), "evol_quality")
    for found in made:
        kept = [a == b for a, b in zip(found.names, before, strict=True)]
        assert sum(kept) == 1
    assert {name for found in made for name in found.names} == {*before, *beside("swap-14")}


def test_self_instruct_writes_a_new_task_of_the_topic_of_the_one_before() -> None:
    one = results("new", task("1 b", "reverse-7"), "self_instruct")
    assert one == results("new", task("1 2 3", "sort_down-8", "rotate-9"), "self_instruct")
    assert {len(made.names) for made in one} == {1, 2}
    assert {name for made in one for name in made.names} == beside("reverse-7")
    assert {len(made.items or ()) for made in one} == {4, 5, 6}
