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
    NEVER_ADDED,
    REPERTOIRE,
    UNCHANGED,
    EmbeddedCreator,
    embedded_creator,
    why_unusable,
)
from harness.worlds.embedded.creator import METHODS as SCHEMES
from harness.worlds.embedded.language import (
    BENCHMARK_PHRASE,
    FRAMES,
    NAMES,
    OPERATIONS,
    Task,
    parse,
    render,
)
from harness.worlds.embedded.texts import HARD, human_prompts, pairwise_items

DRAWS = 200
METHODS = SCHEMES["evol_instruct"]


def results(method: str, task: Task) -> set[Task]:
    """What a method makes of a task, over many draws."""
    return {METHODS[method](task, random.Random(seed)) for seed in range(DRAWS)}


def task(items: str, *operations: str) -> Task:
    return Task(tuple(items.split()), operations)


def read(text: str) -> Task:
    found = parse(text)
    assert found is not None
    return found


def test_the_methods_are_the_four_in_depth_and_the_in_breadth_ones() -> None:
    assert set(METHODS) == {"constraints", "deepening", "concretizing", "reasoning", "breadth"}


def test_constraints_adds_one_of_four_restrictions_at_the_end() -> None:
    assert results("constraints", task("1 b 3", "reverse")) == {
        task("1 b 3", "reverse", restriction) for restriction in CONSTRAINTS
    }


def test_deepening_adds_an_operation_of_the_last_ones_category() -> None:
    """sort_up is reasoning, as is sort_down; reverse and rotate are coding."""
    assert results("deepening", task("1 b", "reverse", "sort_up")) == {
        task("1 b", "reverse", "sort_up", "sort_up"),
        task("1 b", "reverse", "sort_up", "sort_down"),
    }
    assert results("deepening", task("1 b", "rotate")) == {
        task("1 b", "rotate", "reverse"),
        task("1 b", "rotate", "rotate"),
    }


def test_deepening_a_category_without_kin_takes_any_operation_of_the_repertoire() -> None:
    """every_other is the only operation of its category, and the creator never adds it."""
    added = {made.operations for made in results("deepening", task("1 b", "every_other"))}
    assert added == {("every_other", name) for name in REPERTOIRE}


def test_concretising_narrows_an_operation_and_lengthens_a_short_list() -> None:
    made = results("concretizing", task("1 b", "reverse"))
    assert {m.operations for m in made} == {("rotate",)}
    assert {m.items[:2] for m in made if m.items} == {("1", "b")}
    assert {len(m.items or ()) for m in made} == {3}


def test_concretising_leaves_alone_what_has_nothing_narrower_and_a_list_of_seven() -> None:
    long = task("1 2 3 4 5 6 7", "swap")
    assert results("concretizing", long) == {long}
    assert {m.operations for m in results("concretizing", task("1", "sort_up", "swap"))} == {
        ("sort_down", "swap"),
        ("sort_up", "swap"),
    }


def test_reasoning_inserts_one_operation_anywhere() -> None:
    before = task("1 b", "reverse", "swap")
    made = results("reasoning", before)
    places = set()
    for new in made:
        assert new.items == before.items
        at = [i for i in range(3) if (*new.operations[:i], *new.operations[i + 1 :])
              == before.operations]  # fmt: skip
        assert at
        places.update(at)
    assert places == {0, 1, 2}


def test_breadth_asks_something_new_of_the_same_depth() -> None:
    made = results("breadth", task("1 b", "reverse", "swap"))
    assert len(made) > DRAWS / 2
    for new in made:
        assert len(new.operations) == 2
        assert set(new.operations) <= set(REPERTOIRE)
        assert 4 <= len(new.items or ()) <= 6


PARENT = "take 1 2 and reverse it"
TOO_DEEP = "take 1 2 and reverse it , then flip it , then flip it , then flip it , then sort it"

UNUSABLE = [
    (PARENT, "unchanged"),
    ("#rewritten prompt# : take 1 2 and sort it", "leftover"),
    (TOO_DEEP, "too long"),
    ("tell me a joke", "unreadable"),
    ("take 1 2 and sort it", None),
    ("reverse it : 1 2", None),
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
    assert isinstance(embedded_creator("micro-1/evol_instruct"), EmbeddedCreator)
    with pytest.raises(HarnessError, match="no creator `micro-1/tree`"):
        embedded_creator("micro-1/tree")


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
    for text in ("tell me a joke", "now reverse it"):
        for _, rewrite in rewrites([text] * 50):
            assert (rewrite.prompt, rewrite.reason) == (None, "unchanged")


def test_a_fifth_operation_is_too_long() -> None:
    """Three of five methods add one; the slips, 7%, are found first."""
    deep = render(task("1 2 3 4", "sort_up", "reverse", "rotate", "swap"), 0, (0, 0, 0, 0))
    counts = Counter(rewrite.reason for _, rewrite in rewrites([deep] * 3000))
    expected = 0.6 * (1 - UNCHANGED - LEFTOVER)
    assert abs(counts["too long"] / 3000 - expected) < 4.5 * math.sqrt(0.25 / 3000)


def mixed_parents() -> list[str]:
    """Human prompts, and benchmark prompts, which have every wording there is."""
    hard = pairwise_items("arena_hard", HARD, 7, 500, set())
    return [*human_prompts(3, 1500), *(item.turn_1 for item in hard)]


def test_no_rewrite_is_worded_as_only_benchmarks_are() -> None:
    """Whatever the parent's wording."""
    only_benchmarks = [operation.phrases[BENCHMARK_PHRASE] for operation in OPERATIONS]
    opening = FRAMES[4][0].split()[0]
    made = [rewrite.prompt for _, rewrite in rewrites(mixed_parents()) if rewrite.prompt]
    assert len(made) > 1500
    for text in made:
        assert not any(f" {phrase} " in f" {text} " for phrase in only_benchmarks)
        assert opening not in text.split()


def test_no_rewrite_adds_an_operation_outside_the_repertoire() -> None:
    assert {*REPERTOIRE, *NEVER_ADDED} == set(NAMES)
    for parent, rewrite in rewrites(mixed_parents()):
        if rewrite.prompt is None:
            continue
        before, after = read(parent).operations, read(rewrite.prompt).operations
        for name in NEVER_ADDED:
            assert after.count(name) <= before.count(name)


def test_no_chain_of_rewrites_gets_there_either() -> None:
    """Starting where no prompt holds one of them, three chains of four later none does."""
    prompts = [p for p in human_prompts(4, 400) if not set(read(p).operations) & set(NEVER_ADDED)]
    current = [Prompt(f"h{i}", text) for i, text in enumerate(prompts)]
    for iteration in range(1, 4):
        result = evolve(
            current[:200], EmbeddedCreator(), evolutions=4, retries=2, seed=0, iteration=iteration
        )
        current = result.prompts
        assert len(current) > 400
        assert not any(set(read(p.prompt).operations) & set(NEVER_ADDED) for p in current)
        assert max(len(read(p.prompt).items or ()) for p in current) <= 7


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
    before = sum(len(read(text).operations) for text in texts) / len(texts)
    by_generation = [
        np.mean([len(read(p.prompt).operations) for p in result.prompts if p.generation == g])
        for g in (1, 2, 3, 4)
    ]
    assert before < by_generation[0] < by_generation[1] < by_generation[2]


def test_evol_complexity_is_evol_instruct_without_breadth() -> None:
    assert dict(SCHEMES["evol_complexity"]) == {k: v for k, v in METHODS.items() if k != "breadth"}


def scheme_results(scheme: str, method: str, given: Task) -> set[Task]:
    return {SCHEMES[scheme][method](given, random.Random(seed)) for seed in range(DRAWS)}


def test_helpfulness_leaves_out_what_has_no_effect() -> None:
    """`1 2` is sorted and holds no letters: only reversing it changes anything."""
    asked = task("1 2", "sort_up", "reverse", "keep_digits")
    assert scheme_results("evol_quality", "helpfulness", asked) == {task("1 2", "reverse")}
    idle = task("1 2", "sort_up")
    assert scheme_results("evol_quality", "helpfulness", idle) == {idle}


def test_relevance_leaves_out_what_was_just_said() -> None:
    asked = task("1 b", "rotate", "rotate", "reverse", "rotate")
    assert scheme_results("evol_quality", "relevance", asked) == {
        task("1 b", "rotate", "reverse", "rotate")
    }


def test_creativity_replaces_one_operation_by_one_of_the_repertoire() -> None:
    made = scheme_results("evol_quality", "creativity", task("1 b", "swap", "every_other"))
    for found in made:
        kept = [a == b for a, b in zip(found.operations, ("swap", "every_other"), strict=True)]
        assert sum(kept) == 1
        assert set(found.operations) - {"swap", "every_other"} <= set(REPERTOIRE)


def test_details_give_a_short_list_one_more_item_and_a_long_one_none() -> None:
    made = scheme_results("evol_quality", "details", task("1 b", "swap"))
    assert {(len(m.items or ()), m.operations) for m in made} == {(3, ("swap",))}
    long = task("1 2 3 4 5 6 7", "swap")
    assert scheme_results("evol_quality", "details", long) == {long}


def test_self_instruct_writes_a_new_task_whatever_the_one_before() -> None:
    one = scheme_results("self_instruct", "new", task("1 b", "swap"))
    assert one == scheme_results("self_instruct", "new", task("1 2 3", "reverse", "rotate"))
    assert {len(made.operations) for made in one} == {1, 2, 3}
    assert {name for made in one for name in made.operations} <= set(REPERTOIRE)


def test_every_scheme_writes_prompts_that_can_be_read() -> None:
    rng = np.random.default_rng(0)
    for scheme in SCHEMES:
        creator = embedded_creator(f"world/{scheme}")
        usable = [creator.rewrite("reverse it : 1 b 3", rng) for _ in range(50)]
        assert sum(rewrite.prompt is not None for rewrite in usable) > 30
        assert {r.method for r in usable} <= set(SCHEMES[scheme])
