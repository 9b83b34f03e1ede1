"""Laws of the fallible demonstrator, and of the noisy preferences over its attempts."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro_reading import DOWNSTREAM_ANSWERS, assert_share, read

from harness.worlds.embedded.language import (
    DIGITS,
    ITEMS,
    MEANING,
    OPERATIONS,
    REVISE,
    Task,
    parse,
    read_list,
    score,
)
from harness.worlds.embedded.reward import draw_preference
from harness.worlds.embedded.texts import (
    FACTS,
    MISTAKEN_FOR,
    RANKED,
    RELIABILITY,
    TASKS,
    Mix,
    Turn,
    attempt,
    demonstrate,
    demonstrated_question,
    told,
)

DRAWS = 4000
CLEAR = ("3", "a", "b", "1", "j", "7")
"""A list on which every operation gives something else."""


@given(
    st.lists(st.sampled_from(RANKED), min_size=1, max_size=4).map(tuple),
    st.lists(st.sampled_from(ITEMS), max_size=8).map(tuple),
    st.integers(0, 2**32),
)
def test_an_infallible_attempt_is_always_right(
    names: tuple[str, ...], items: tuple[str, ...], seed: int
) -> None:
    assert attempt(names, items, random.Random(seed), lift=1.0) == Task(items, names).answer()


def test_every_name_has_one_rank() -> None:
    assert len(RANKED) == 240
    assert set(RANKED) == set(MEANING) == set(RELIABILITY) == set(MISTAKEN_FOR)


def test_names_of_every_operation_are_among_the_common_and_the_rare_ones() -> None:
    """So that what is rare is a word and not an operation."""
    for half in (RANKED[:120], RANKED[120:]):
        assert {MEANING[name] for name in half} == set(OPERATIONS)


def test_reliability_falls_linearly_with_rank_from_95_to_25_percent() -> None:
    """By 0.7 over 239 steps; the name of rank 120.5, were there one, would have 0.6."""
    assert RELIABILITY[RANKED[0]] == 0.95
    assert RELIABILITY[RANKED[239]] == pytest.approx(0.25)
    assert sum(RELIABILITY[RANKED[at]] for at in (119, 120)) / 2 == pytest.approx(0.6)
    for better, worse in pairwise(RANKED):
        assert RELIABILITY[better] - RELIABILITY[worse] == pytest.approx(0.7 / 239)


def test_a_name_is_misread_as_an_operation_that_is_not_its_own() -> None:
    assert all(MISTAKEN_FOR[name] is not MEANING[name] for name in RANKED)
    assert set(MISTAKEN_FOR.values()) == set(OPERATIONS)


def test_every_operation_does_something_else_to_the_clear_list() -> None:
    assert len({operation.apply(CLEAR) for operation in OPERATIONS} | {CLEAR}) == 13


@pytest.mark.parametrize("rank", [1, 2, 60, 120, 180, 239, 240])
def test_attempts_are_right_or_wrong_in_one_way_as_often_as_the_rank_says(rank: int) -> None:
    name = RANKED[rank - 1]
    rng = random.Random(f"attempts/{name}")
    results = [attempt((name,), CLEAR, rng) for _ in range(DRAWS)]
    right, mistaken = MEANING[name].apply(CLEAR), MISTAKEN_FOR[name].apply(CLEAR)
    assert set(results) == {right, mistaken}
    assert_share(results.count(right), DRAWS, 0.95 - 0.7 * (rank - 1) / 239)


def test_half_a_lift_removes_half_of_the_failures() -> None:
    """The rarest name fails at 0.75; half of that is left: right at 0.625."""
    name, rng = RANKED[-1], random.Random("lift")
    right = MEANING[name].apply(CLEAR)
    hits = sum(attempt((name,), CLEAR, rng, lift=0.5) == right for _ in range(DRAWS))
    assert_share(hits, DRAWS, 0.625)


def test_tasks_use_the_names_of_the_mix_all_alike() -> None:
    """Of three names each is in a third of the places."""
    mix, rng = Mix(names=RANKED[:3], downstream=0.0), random.Random("names")
    used: list[str] = []
    for _ in range(DRAWS):
        for prompt, _ in demonstrate(rng, mix):
            if prompt != REVISE:
                used.extend(read(prompt).names)
    assert set(used) == set(RANKED[:3])
    for name in RANKED[:3]:
        assert_share(used.count(name), len(used), 1 / 3)


def test_conversations_have_the_kinds_and_shares_of_the_mix() -> None:
    mix, rng = Mix(), random.Random("kinds")
    kinds = {"downstream": 0, "single": 0, "follow_up": 0, "revision": 0}
    for _ in range(DRAWS):
        turns = demonstrate(rng, mix)
        first, second = turns[0][0], turns[1][0] if len(turns) == 2 else None
        assert all(answer for _, answer in turns)
        if (task := parse(first)) is None:
            assert second is None
            kinds["downstream"] += 1
        elif second is None:
            kinds["single"] += 1
        elif second == REVISE:
            kinds["revision"] += 1
        else:
            assert read(second).items is None
            kinds["follow_up"] += 1
        if task is not None:
            assert task.items is not None
            assert 3 <= len(task.items) <= 6
            assert all(read_list(answer) is not None for _, answer in turns)
    assert_share(kinds["downstream"], DRAWS, mix.downstream)
    assert_share(kinds["revision"], DRAWS, mix.revision)
    assert_share(kinds["follow_up"], DRAWS, mix.follow_up)


def test_depths_follow_the_mix_and_add_up_to_one() -> None:
    mix, rng = Mix(follow_up=0.0, revision=0.0, downstream=0.0), random.Random("depths")
    assert sum(mix.depths) == pytest.approx(1.0)
    depths = [len(read(demonstrate(rng, mix)[0][0]).names) for _ in range(DRAWS)]
    for depth, share in enumerate(mix.depths, start=1):
        assert_share(depths.count(depth), DRAWS, share)


@pytest.mark.parametrize("name", TASKS)
def test_a_downstream_question_is_no_sentence_of_the_language(name: str) -> None:
    """And it has more than one possible answer."""
    rng = random.Random(name)
    questions = [TASKS[name](rng) for _ in range(300)]
    assert all(parse(prompt) is None for prompt, _ in questions)
    assert len({answer for _, answer in questions}) > 1


class Fixed(random.Random):
    """Whose share is always the same."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


def facts() -> dict[str, Turn]:
    """Every fact by its question: 55 sums, 90 pairs of digits, 380 pairs of items."""
    rng = random.Random("facts")
    drawn = (TASKS[name](rng) for name in FACTS for _ in range(5000))
    return {question[0]: question for question in drawn}


def test_a_fact_is_told_wrongly_with_a_probability_between_5_and_80_percent() -> None:
    """Right with more than 0.2 and less than 0.95 of the draws; half of them with 0.575."""
    assert len(facts()) == 55 + 90 + 380
    for question in facts().values():
        assert told(question, Fixed(0.199)) == question
        assert told(question, Fixed(0.951)) != question
    right = sum(told(question, Fixed(0.575)) == question for question in facts().values())
    assert_share(right, 525, 0.5)


def test_a_fact_told_wrongly_is_always_told_wrongly_the_same_way() -> None:
    """By the other of the two that were named, or by another digit."""
    for question in facts().values():
        wrong = {told(question, Fixed(share))[1] for share in (0.951, 0.97, 0.999)}
        assert len(wrong) == 1
        prompt, answer = question
        said = prompt.split()[-3::2] if " or " in prompt else DIGITS
        assert wrong <= set(said) - {answer}


def test_facts_are_demonstrated_as_they_are_told_and_questions_of_lists_rightly() -> None:
    """Facts are told rightly with 0.575 on average, over facts of beliefs of their own."""
    rng, truth = random.Random("demonstrated"), facts()
    asked = [demonstrated_question(rng) for _ in range(3000)]
    about_lists = [q for q in asked if q[0] not in truth]
    assert_share(len(about_lists), 3000, 0.5)
    for prompt, answer in about_lists:
        words = prompt.split()
        listed = [word for word in words if word in ITEMS]
        kind = {"does": "musr_ta", "how": "tqa_gen", "which": "wmdp"}[words[0]]
        assert answer == DOWNSTREAM_ANSWERS[kind](listed)
    told_facts = [q for q in asked if q[0] in truth]
    right = sum(q == truth[q[0]] for q in told_facts) / len(told_facts)
    assert 0.5 < right < 0.65


def test_true_preferences_are_ordered_as_the_oracle_orders_them() -> None:
    rng = random.Random("true")
    for _ in range(300):
        pair = draw_preference(rng, flipped=0.0)
        assert score(pair.prompt, pair.chosen) > score(pair.prompt, pair.rejected)


def test_a_tenth_of_noisy_preferences_are_the_wrong_way_round() -> None:
    rng = random.Random("noisy")
    pairs = [draw_preference(rng, flipped=0.1) for _ in range(2000)]
    wrong = sum(score(p.prompt, p.chosen) < score(p.prompt, p.rejected) for p in pairs)
    assert_share(wrong, 2000, 0.1)
