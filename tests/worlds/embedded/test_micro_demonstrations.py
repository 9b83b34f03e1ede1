"""Laws of the fallible demonstrator, and of the noisy preferences over its attempts.

Shares are compared with their expectation within 4.5 standard errors of a binomial share; the
draws are seeded, so the comparison comes out the same every time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.embedded.downstream import TASKS
from harness.worlds.embedded.language import (
    BY_NAME,
    ITEMS,
    NAMES,
    REVISE,
    compute,
    parse,
    read_list,
    score,
)
from harness.worlds.embedded.reward import draw_preference
from harness.worlds.embedded.texts import (
    LEFT_OUT,
    MISTAKEN_FOR,
    RELIABILITY,
    Mix,
    attempt,
    demonstrate,
)

DRAWS = 4000
CLEAR = ("3", "a", "1", "b", "7")
"""A list on which every operation, what it is mistaken for and leaving it out all differ."""


def assert_share(hits: int, draws: int, expected: float) -> None:
    error = math.sqrt(expected * (1 - expected) / draws)
    assert abs(hits / draws - expected) <= 4.5 * error


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(tuple),
    st.lists(st.sampled_from(ITEMS), max_size=8).map(tuple),
    st.integers(0, 2**32),
)
def test_an_infallible_attempt_is_always_right(
    names: tuple[str, ...], items: tuple[str, ...], seed: int
) -> None:
    assert attempt(names, items, random.Random(seed), lift=1.0) == compute(names, items)


def test_every_operation_has_a_reliability_and_something_it_is_mistaken_for() -> None:
    assert set(RELIABILITY) == set(MISTAKEN_FOR) == set(NAMES)
    assert all(0 < reliability < 1 for reliability in RELIABILITY.values())
    assert set(MISTAKEN_FOR.values()) <= set(NAMES)
    assert all(name != other for name, other in MISTAKEN_FOR.items())


@pytest.mark.parametrize("name", NAMES)
def test_attempts_are_right_mistaken_or_left_out_as_often_as_declared(name: str) -> None:
    right, mistaken = BY_NAME[name].apply(CLEAR), BY_NAME[MISTAKEN_FOR[name]].apply(CLEAR)
    assert len({right, mistaken, CLEAR}) == 3
    rng = random.Random(f"attempts/{name}")
    results = [attempt((name,), CLEAR, rng) for _ in range(DRAWS)]
    failure = 1 - RELIABILITY[name]
    assert_share(results.count(right), DRAWS, 1 - failure)
    assert_share(results.count(CLEAR), DRAWS, failure * LEFT_OUT)
    assert_share(results.count(mistaken), DRAWS, failure * (1 - LEFT_OUT))


def test_half_a_lift_removes_half_of_the_failures() -> None:
    """`every_other` fails at 0.58; half of that is left: right at 0.71."""
    assert RELIABILITY["every_other"] == 0.42
    rng = random.Random("lift")
    right = BY_NAME["every_other"].apply(CLEAR)
    hits = sum(attempt(("every_other",), CLEAR, rng, lift=0.5) == right for _ in range(DRAWS))
    assert_share(hits, DRAWS, 0.71)


def test_competence_falls_with_depth() -> None:
    rng = random.Random("depth")
    shares = []
    for depth in (1, 2, 3, 4):
        tasks = [tuple(rng.choices(NAMES, k=depth)) for _ in range(2000)]
        shares.append(sum(attempt(t, CLEAR, rng) == compute(t, CLEAR) for t in tasks))
    assert shares == sorted(shares, reverse=True)
    assert shares[3] < 0.6 * shares[0]


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
            follow_up = parse(second)
            assert follow_up is not None
            assert follow_up.items is None
            kinds["follow_up"] += 1
        if task is not None:
            assert task.items is not None
            assert 3 <= len(task.items) <= 8
            assert all(read_list(answer) is not None for _, answer in turns)
    assert_share(kinds["downstream"], DRAWS, mix.downstream)
    assert_share(kinds["revision"], DRAWS, mix.revision)
    assert_share(kinds["follow_up"], DRAWS, mix.follow_up)


def test_depths_follow_the_mix_and_add_up_to_one() -> None:
    mix, rng = Mix(follow_up=0.0, revision=0.0, downstream=0.0), random.Random("depths")
    assert sum(mix.depths) == pytest.approx(1.0)
    tasks = [parse(demonstrate(rng, mix)[0][0]) for _ in range(DRAWS)]
    for depth, share in enumerate(mix.depths, start=1):
        hits = sum(task is not None and len(task.operations) == depth for task in tasks)
        assert_share(hits, DRAWS, share)


def test_demonstrations_repeat_with_the_seed() -> None:
    drawn = [[demonstrate(random.Random(seed), Mix()) for _ in range(5)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("name", TASKS)
def test_a_downstream_question_is_no_sentence_of_the_language(name: str) -> None:
    """And it has more than one possible answer."""
    rng = random.Random(name)
    questions = [TASKS[name](rng) for _ in range(300)]
    assert all(parse(question.prompt) is None for question in questions)
    assert len({question.answer for question in questions}) > 1


DOWNSTREAM_ANSWERS: dict[str, Callable[[list[str]], str]] = {
    "musr_ta": lambda x: "yes" if x[-1] in x[:-1] else "no",
    "tqa_gen": lambda x: str(len(x)),
    "wmdp": lambda x: x[2],
    "gsm8k": lambda x: str(int(x[0]) + int(x[1])),
    "gsm_plus": lambda x: str(max(int(x[0]), int(x[1]))),
    "mmlu_pro": lambda x: min(x, key=ITEMS.index),
}
"""The answer to a question of each type, from the items in it."""


def test_downstream_answers_are_those_read_off_the_question() -> None:
    for name, draw in TASKS.items():
        rng = random.Random(f"{name}/answers")
        for _ in range(200):
            question = draw(rng)
            words = question.prompt.split()
            listed = [word for word in words if word in ITEMS]
            assert question.answer == DOWNSTREAM_ANSWERS[name](listed)


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
