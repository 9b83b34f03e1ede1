"""Laws of the downstream items and of the scores of prompts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from micro_reading import DOWNSTREAM_ANSWERS

from harness.registry.profile import Profile
from harness.worlds.embedded.files import VERSION
from harness.worlds.embedded.judge import (
    SCORERS,
    GivenAnswer,
    complexity,
    quality,
    score_downstream,
)
from harness.worlds.embedded.language import DIGITS, Task, render, token_ids
from harness.worlds.embedded.language import ITEMS as SYMBOLS
from harness.worlds.embedded.pretrain import PretrainConfig, curriculum
from harness.worlds.embedded.texts import ITEMS_OF_TASKS, TASKS, Mix, demonstrate
from harness.worlds.embedded.texts import downstream_identity as identity
from harness.worlds.embedded.texts import downstream_items as items


def prompt(items_text: str, *operations: str) -> str:
    """Put a task into words, each operation under a name of its own number."""
    names = tuple(f"{name}-{number}" for number, name in enumerate(operations, start=1))
    return render(Task(tuple(items_text.split()), names), 0)


def listed(text: str) -> int:
    """Return how many items a question lists."""
    return sum(word in SYMBOLS for word in text.partition(" this : ")[0].split())


def test_every_question_is_asked_once_and_has_its_right_answer() -> None:
    """The right answers are worked out anew from the words of the question."""
    assert Counter(item.category for item in items()) == ITEMS_OF_TASKS
    assert len({item.turn_1 for item in items()}) == len({i.item_id for i in items()}) == 945
    for item in items():
        found = [word for word in item.turn_1.split() if word in SYMBOLS]
        assert item.reference == DOWNSTREAM_ANSWERS[item.category](found), item.turn_1


def test_the_two_small_tasks_ask_every_question_there_is() -> None:
    sums = {f"how many make {a} plus {b}" for a in range(10) for b in range(10 - a)}
    pairs = {f"which is larger : {a} or {b}" for a in DIGITS for b in DIGITS if a != b}
    asked = {task: {i.turn_1 for i in items() if i.category == task} for task in ITEMS_OF_TASKS}
    assert (asked["gsm8k"], asked["gsm_plus"]) == (sums, pairs)


def test_long_lists_are_longer_than_any_demonstration() -> None:
    """Where items are counted, three lengths of five are."""
    rng = random.Random(3)
    lengths, shown = {}, {}
    for task in ("musr_ta", "wmdp", "tqa_gen"):
        lengths[task] = {listed(item.turn_1) for item in items() if item.category == task}
        shown[task] = {listed(TASKS[task](rng)[0]) for _ in range(1000)}
    assert lengths["musr_ta"] == lengths["wmdp"] == {7, 8, 9, 10, 11, 12}
    assert shown["musr_ta"] == shown["wmdp"] == {3, 4, 5, 6}
    assert lengths["tqa_gen"] == {5, 6, 7, 8, 9}
    assert shown["tqa_gen"] == {2, 3, 4, 5, 6}


@pytest.mark.slow
def test_every_fact_and_none_of_the_lists_was_demonstrated_to_the_shipped_policy() -> None:
    """All 1.15 million demonstrations are drawn again."""
    shown = set(demonstrated(PretrainConfig()))
    seen = Counter(item.category for item in items() if item.turn_1 in shown)
    assert seen == {"gsm8k": 55, "gsm_plus": 90, "mmlu_pro": 200}


def demonstrated(config: PretrainConfig) -> Iterator[str]:
    """Yield the first turn of every demonstration of a training."""
    courses = (
        ("operations", config.operations.steps, curriculum),
        ("names", config.names.steps, lambda progress: Mix()),
    )
    for stream, steps, mix_at in courses:
        for pool in range(-(-steps // config.pool_batches)):
            rng = random.Random(f"{config.seed}/demonstrations/{stream}/{pool}")
            mix = mix_at(pool * config.pool_batches / steps)
            for _ in range(config.batch_size * config.pool_batches):
                yield demonstrate(rng, mix)[0][0]


def test_items_are_words_of_the_language_and_have_one_identity() -> None:
    known = set(token_ids())
    assert all(set(f"{item.turn_1} {item.reference}".split()) <= known for item in items())
    assert identity() == f"{VERSION}/downstream@01294b0b582d879a"


def test_only_the_right_answer_counts() -> None:
    asked = items()[:3]
    texts = (asked[0].reference or "", "", f"{asked[2].reference} {asked[2].reference}")
    answers = {
        (item.item_id, 1): GivenAnswer(text, 1) for item, text in zip(asked, texts, strict=True)
    }
    judged, _, _ = score_downstream(asked, answers)
    assert [j["value"] for j in judged] == [100.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (prompt("1 2 3", "reverse"), 1.0),
        (prompt("1 2 3", "reverse", "swap", "rotate"), 3.0),
        (prompt("1 2 3 4 5", "reverse"), 1.0),
        (prompt("1 2 3 4 5 6", "reverse"), 2.0),
        (prompt("1 2 3 4 5 6 7", "reverse", "swap", "rotate", "reverse"), 5.0),
        ("what is it", 1.0),
    ],
)
def test_complexity_counts_operations_and_a_long_list(text: str, expected: float) -> None:
    """One for each operation, one for six items or more, 5 at most; 1 where nothing is read."""
    assert complexity(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (prompt("1 2 3", "reverse"), 5.0),
        (prompt("1 1 1", "reverse"), 3.0),
        (prompt("1 2 3", "reverse", "reverse"), 3.0),
        (prompt("1 2 3", "keep_digits", "reverse"), 4.0),
        ("now reverse-1", 1.0),
        ("what is it", 1.0),
    ],
)
def test_quality_asks_whether_each_operation_has_something_to_do(
    text: str, expected: float
) -> None:
    """2 for a prompt that can be read, and one for each of three more.

    Every step changes the list, no operation follows itself, and the answer is neither empty nor
    what was given. `1 1 1` reversed changes nothing and is what was given; reversing twice changes
    the list each time, but follows itself and gives it back; keeping digits of digits does nothing.
    """
    assert quality(text) == expected


def test_the_profile_has_the_tasks_and_scores_of_the_world(micro: Profile) -> None:
    downstream, prompts = (micro.benchmarks[name] for name in ("downstream", "prompt_judge"))
    assert {score: downstream.items_of(score) for score in downstream.columns} == ITEMS_OF_TASKS
    assert set(SCORERS) == set(prompts.columns)
