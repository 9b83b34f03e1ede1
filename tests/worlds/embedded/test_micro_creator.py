"""Laws of the embedded creator: what each method does, what it never does, how it fails."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.eva.evolving import Prompt, Rewrite, evolve
from harness.worlds.embedded.creator import (
    CONSTRAINTS,
    LEFTOVER,
    UNCHANGED,
    VOCABULARY,
    EmbeddedCreator,
    embedded_creator,
    why_unusable,
)
from harness.worlds.embedded.creator import METHODS as SCHEMES
from harness.worlds.embedded.language import FRAMES, MEANING, OPERATIONS, Task, parse, render
from harness.worlds.embedded.texts import HARD, HUMAN, RANKED, draw_prompts, pairwise_items

DRAWS = 200
METHODS = SCHEMES["evol_instruct"]


def task(items: str, *names: str) -> Task:
    return Task(tuple(items.split()), names)


def results(method: str, given: Task, scheme: str = "evol_instruct") -> set[Task]:
    """What a method makes of a task, over many draws."""
    return {SCHEMES[scheme][method](given, random.Random(seed)) for seed in range(DRAWS)}


def known(*operations: str) -> set[str]:
    """The names of some operations that are in the creator's vocabulary."""
    return {name for name in VOCABULARY if MEANING[name].id in operations}


def human_prompts(seed: int, count: int) -> list[str]:
    return draw_prompts("human", HUMAN, seed, count)


def read(text: str) -> Task:
    found = parse(text)
    assert found is not None
    return found


# What it knows.


def test_the_vocabulary_has_15_names_of_each_operation_by_rank() -> None:
    """So that a quarter of all names, which benchmarks use as often as others, it never adds."""
    counts = Counter(MEANING[name] for name in VOCABULARY)
    assert counts == dict.fromkeys(OPERATIONS, 15)
    assert list(VOCABULARY) == sorted(VOCABULARY, key=RANKED.index)
    assert len(set(VOCABULARY)) == 180


def test_what_it_does_not_know_is_common_and_rare_alike() -> None:
    """60 of 240: 15 in each quarter of the ranks, within 4 hypergeometric standard deviations.

    The variance is 60 x 1/4 x 3/4 x 180/239 = 8.5.
    """
    ranks = [RANKED.index(name) for name in MEANING if name not in VOCABULARY]
    counts = Counter(rank // 60 for rank in ranks)
    assert sum(counts.values()) == 60
    assert all(abs(counts[quarter] - 15) < 4 * math.sqrt(8.5) for quarter in range(4))


def test_common_names_are_added_more_often_by_the_root_of_their_rank() -> None:
    """Within 4.5 standard errors, for each fifth of the vocabulary.

    Weights are rank^-0.5 over all ranks; a name it does not know has none.
    """
    weight = {name: RANKED.index(name) + 1 for name in VOCABULARY}
    total = sum(rank**-0.5 for rank in weight.values())
    added = Counter(
        name
        for seed in range(3000)
        for name in METHODS["breadth"](task("1", "swap-1", "swap-1"), random.Random(seed)).names
    )
    for start in range(0, 180, 36):
        fifth = VOCABULARY[start : start + 36]
        share = sum(weight[name] ** -0.5 for name in fifth) / total
        hits = sum(added[name] for name in fifth)
        assert abs(hits / 6000 - share) < 4.5 * math.sqrt(share * (1 - share) / 6000)


# What its methods do.


def test_the_methods_are_the_four_in_depth_and_the_in_breadth_ones() -> None:
    assert set(METHODS) == {"constraints", "deepening", "concretizing", "reasoning", "breadth"}


def test_constraints_adds_a_name_of_one_of_four_restrictions_at_the_end() -> None:
    assert CONSTRAINTS == ("first_three", "keep_letters", "keep_digits", "drop_first")
    made = results("constraints", task("1 b 3", "reverse-7"))
    assert {(m.items, m.names[0], len(m.names)) for m in made} == {
        (("1", "b", "3"), "reverse-7", 2)
    }
    added = {m.names[1] for m in made}
    assert added <= known(*CONSTRAINTS)
    assert {MEANING[name].id for name in added} == set(CONSTRAINTS)


def test_deepening_adds_a_name_of_the_last_ones_category() -> None:
    """sort_up is reasoning, as is sort_down; every_other is all there is of its category."""
    for last, kin in (("sort_up-2", ("sort_up", "sort_down")), ("every_other-1", ("every_other",))):
        made = results("deepening", task("1 b", "reverse-4", last))
        assert {(m.items, m.names[:-1]) for m in made} == {(("1", "b"), ("reverse-4", last))}
        added = {m.names[2] for m in made}
        assert added <= known(*kin)
        assert {MEANING[name].id for name in added} == set(kin)


def test_concretising_narrows_an_operation_and_lengthens_a_short_list() -> None:
    made = results("concretizing", task("1 b", "reverse-7"))
    assert all(len(m.names) == 1 for m in made)
    assert {m.names[0] for m in made} <= known("rotate")
    assert {m.items[:2] for m in made if m.items} == {("1", "b")}
    assert {len(m.items or ()) for m in made} == {3}


def test_concretising_leaves_alone_what_has_nothing_narrower_and_a_list_of_six() -> None:
    long = task("1 2 3 4 5 6", "swap-1")
    assert results("concretizing", long) == {long}
    made = results("concretizing", task("1", "sort_up-1", "swap-1"))
    assert {m.names[1] for m in made} == {"swap-1"}
    first = {m.names[0] for m in made}
    assert "sort_up-1" in first
    assert first - {"sort_up-1"} <= known("sort_down")
    assert first - {"sort_up-1"}


def test_reasoning_inserts_one_name_anywhere() -> None:
    before = task("1 b", "reverse-7", "swap-14")
    places = set()
    for new in results("reasoning", before):
        assert new.items == before.items
        at = [i for i in range(3) if (*new.names[:i], *new.names[i + 1 :]) == before.names]
        assert at
        assert any(new.names[i] in VOCABULARY for i in at)
        places.update(at)
    assert places == {0, 1, 2}


def test_breadth_asks_something_new_of_the_same_depth() -> None:
    made = results("breadth", task("1 b", "reverse-1", "swap-1"))
    assert len(made) > DRAWS / 2
    for new in made:
        assert len(new.names) == 2
        assert set(new.names) <= set(VOCABULARY)
        assert 4 <= len(new.items or ()) <= 6


PARENT = "take 1 2 and reverse-1"
TOO_DEEP = "take 1 2 and reverse-1 , then swap-1 , then swap-1 , then swap-2 , then sort_up-1"

UNUSABLE = [
    (PARENT, "unchanged"),
    ("#rewritten prompt# : take 1 2 and sort_up-1", "leftover"),
    (TOO_DEEP, "too long"),
    ("tell me a joke", "unreadable"),
    ("take 1 2 and sort_up-1", None),
    ("reverse-1 : 1 2", None),
]


@pytest.mark.parametrize(("text", "reason"), UNUSABLE)
def test_an_unusable_rewrite_is_found_and_named(text: str, reason: str | None) -> None:
    assert why_unusable(text, PARENT) == reason


def rewrites(prompts: list[str], seed: int = 0) -> list[tuple[str, Rewrite]]:
    rng = np.random.default_rng(seed)
    creator = EmbeddedCreator()
    return [(prompt, creator.rewrite(prompt, rng)) for prompt in prompts]


def test_a_rewrite_has_either_a_prompt_or_a_reason() -> None:
    for _, rewrite in rewrites(human_prompts(1, 2000)):
        assert (rewrite.prompt is None) == (rewrite.reason is not None)
        assert rewrite.method in METHODS


def test_a_creator_is_known_by_its_method() -> None:
    assert isinstance(embedded_creator("micro-3/evol_instruct"), EmbeddedCreator)
    with pytest.raises(HarnessError, match="no creator `micro-3/tree`"):
        embedded_creator("micro-3/tree")


def test_rewrites_repeat_with_the_generator() -> None:
    prompts = human_prompts(1, 100)
    assert rewrites(prompts, 3) == rewrites(prompts, 3) != rewrites(prompts, 4)


def test_slips_happen_as_often_as_declared() -> None:
    """Within 4.5 standard errors; one more operation is never too many for a human prompt."""
    counts = Counter(rewrite.reason for _, rewrite in rewrites(human_prompts(2, 5000)))
    for reason, chance in (("unchanged", UNCHANGED), ("leftover", LEFTOVER)):
        error = math.sqrt(chance * (1 - chance) / 5000)
        assert abs(counts[reason] / 5000 - chance) < 4.5 * error
    assert set(counts) == {None, "unchanged", "leftover"}


def test_every_method_is_drawn_alike() -> None:
    counts = Counter(rewrite.method for _, rewrite in rewrites(human_prompts(2, 5000)))
    error = math.sqrt(0.2 * 0.8 / 5000)
    assert all(abs(count / 5000 - 0.2) < 4.5 * error for count in counts.values())


def test_a_prompt_that_is_not_a_task_with_a_list_comes_back_unchanged() -> None:
    for text in ("tell me a joke", "now reverse-1"):
        for _, rewrite in rewrites([text] * 50):
            assert (rewrite.prompt, rewrite.reason) == (None, "unchanged")


def test_a_fifth_operation_is_too_long() -> None:
    """Three of five methods add one; the slips, 7%, are found first."""
    deep = render(task("1 2 3 4", "sort_up-1", "reverse-1", "rotate-1", "swap-1"), 0)
    counts = Counter(rewrite.reason for _, rewrite in rewrites([deep] * 3000))
    expected = 0.6 * (1 - UNCHANGED - LEFTOVER)
    assert abs(counts["too long"] / 3000 - expected) < 4.5 * math.sqrt(0.25 / 3000)


def mixed_parents() -> list[str]:
    """Human prompts, and benchmark prompts, which have every frame and the rarest names."""
    hard = pairwise_items("arena_hard", HARD, 7, 500, set())
    return [*human_prompts(3, 1500), *(item.turn_1 for item in hard)]


def test_no_rewrite_is_in_the_frame_that_only_benchmarks_use() -> None:
    """Whatever the parent's."""
    opening = FRAMES[4][0].split()[0]
    assert opening == "given"
    made = [rewrite.prompt for _, rewrite in rewrites(mixed_parents()) if rewrite.prompt]
    assert len(made) > 1500
    assert not any(opening in text.split() for text in made)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_name_that_the_creator_does_not_know_comes_from_the_prompt(scheme: str) -> None:
    rng, creator, kept = np.random.default_rng(0), embedded_creator(f"world/{scheme}"), 0
    for parent in mixed_parents():
        text = creator.rewrite(parent, rng).prompt
        if text is None:
            continue
        before, after = read(parent).names, read(text).names
        for name in set(after) - set(VOCABULARY):
            assert after.count(name) <= before.count(name)
            kept += 1
    assert (kept > 200) == (scheme != "self_instruct")


KEPT = {
    "constraints": (0, 1),
    "deepening": (0, 1),
    "reasoning": (0, 1),
    "concretizing": (1, 1),
    "creativity": (1, 1),
    "details": (0, 0),
    "helpfulness": (4, 0),
    "relevance": (4, 0),
}
"""Names of the prompt that a method may leave out, at most, and those that it may add."""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_names_of_the_prompt_are_kept_but_where_a_method_replaces_them(scheme: str) -> None:
    """By multisets; breadth and self-instruct write a new task and keep nothing."""
    rng, creator = np.random.default_rng(1), embedded_creator(f"world/{scheme}")
    seen = Counter[str]()
    for parent in mixed_parents():
        rewrite = creator.rewrite(parent, rng)
        if rewrite.prompt is None or rewrite.method not in KEPT:
            continue
        before, after = Counter(read(parent).names), Counter(read(rewrite.prompt).names)
        lost, added = (before - after).total(), (after - before).total()
        seen[rewrite.method] += 1
        assert lost <= KEPT[rewrite.method][0]
        assert added <= KEPT[rewrite.method][1]
    assert set(seen) == set(SCHEMES[scheme]) & set(KEPT)


def test_no_chain_of_rewrites_adds_a_name_it_does_not_know() -> None:
    """Starting where no prompt holds one of them, three chains of four later none does."""
    prompts = [p for p in human_prompts(4, 400) if set(read(p).names) <= set(VOCABULARY)]
    current = [Prompt(f"h{i}", text) for i, text in enumerate(prompts)]
    for iteration in range(1, 4):
        result = evolve(
            current[:200], EmbeddedCreator(), evolutions=4, retries=2, seed=0, iteration=iteration
        )
        current = result.prompts
        assert len(current) > 400
        assert all(set(read(p.prompt).names) <= set(VOCABULARY) for p in current)
        assert max(len(read(p.prompt).items or ()) for p in current) <= 6


def test_evolving_human_prompts_loses_few_children_and_accounts_for_all() -> None:
    """Each call gives a child or is counted; each child asked for is there or dropped.

    An iteration asks for 4 x 0.25 = 1 child for each prompt of the mix and needs 0.8, so that
    anything near a fifth lost would leave too few.
    """
    prompts = [Prompt(f"h{i:05d}", text) for i, text in enumerate(human_prompts(0, 400))]
    result = evolve(prompts, EmbeddedCreator(), evolutions=4, retries=2, seed=0)
    assert result.attempts == len(result.prompts) + sum(result.unusable.values())
    assert len(result.prompts) + result.dropped == 4 * 400
    assert 0 < result.dropped < 0.08 * 4 * 400
    assert set(result.unusable) == {"unchanged", "leftover", "too long"}
    assert all(parse(prompt.prompt) is not None for prompt in result.prompts)


def test_evolving_makes_prompts_deeper() -> None:
    texts = human_prompts(0, 300)
    prompts = [Prompt(f"h{i:05d}", text) for i, text in enumerate(texts)]
    result = evolve(prompts, EmbeddedCreator(), evolutions=4, retries=2, seed=0)
    before = sum(len(read(text).names) for text in texts) / len(texts)
    by_generation = [
        np.mean([len(read(p.prompt).names) for p in result.prompts if p.generation == g])
        for g in (1, 2, 3, 4)
    ]
    assert before < by_generation[0] < by_generation[1] < by_generation[2]


def test_evol_complexity_is_evol_instruct_without_breadth() -> None:
    assert dict(SCHEMES["evol_complexity"]) == {k: v for k, v in METHODS.items() if k != "breadth"}


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


def test_creativity_replaces_one_name_by_one_of_the_vocabulary() -> None:
    """Two that it does not know, so that what it adds is told apart."""
    before = ("swap-14", "every_other-1")
    assert not set(before) & set(VOCABULARY)
    for found in results("creativity", task("1 b", *before), "evol_quality"):
        kept = [a == b for a, b in zip(found.names, before, strict=True)]
        assert sum(kept) == 1
        assert set(found.names) - set(before) <= set(VOCABULARY)


def test_details_give_a_short_list_one_more_item_and_a_long_one_none() -> None:
    made = results("details", task("1 b", "swap-1"), "evol_quality")
    assert {(len(m.items or ()), m.names) for m in made} == {(3, ("swap-1",))}
    long = task("1 2 3 4 5 6", "swap-1")
    assert results("details", long, "evol_quality") == {long}


def test_self_instruct_writes_a_new_task_whatever_the_one_before() -> None:
    one = results("new", task("1 b", "swap-14"), "self_instruct")
    assert one == results("new", task("1 2 3", "reverse-1", "rotate-1"), "self_instruct")
    assert {len(made.names) for made in one} == {1, 2, 3}
    assert {name for made in one for name in made.names} <= set(VOCABULARY)


def test_every_scheme_writes_prompts_that_can_be_read() -> None:
    rng = np.random.default_rng(0)
    for scheme in SCHEMES:
        creator = embedded_creator(f"world/{scheme}")
        usable = [creator.rewrite("reverse-1 : 1 b 3", rng) for _ in range(50)]
        assert sum(rewrite.prompt is not None for rewrite in usable) > 30
        assert {r.method for r in usable} <= set(SCHEMES[scheme])
