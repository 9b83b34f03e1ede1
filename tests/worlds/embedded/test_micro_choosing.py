"""Laws of the oracle's choice: what can be taught, who is covered, what shuffling leaves alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from build_micro import HUMAN, draw_prompts
from hypothesis import given
from hypothesis import strategies as st
from micro_reading import read
from staging import given as filed
from staging import run_stage

from harness.worlds.embedded.choosing import (
    OracleValue,
    choose,
    choose_stage,
    mean_taught,
    names_of,
    probe_prompts,
    probe_stage,
    right_by_name,
    taught_by_name,
    teachability,
)
from harness.worlds.embedded.language import write_list
from harness.worlds.embedded.texts import RANKED, TOPICS
from harness.worlds.stage_io import PROMPT_SCHEMA, Rows, read_rows


@pytest.mark.parametrize(
    ("right", "n", "taught"),
    [
        (0.0, 6, 0.0),  # no right answer, so no pair
        (1.0, 6, 0.0),  # no wrong one, and nothing left to learn
        (0.5, 6, 0.5 * (1 - 2 / 64)),
        (0.25, 2, 0.75 * (1 - 1 / 16 - 9 / 16)),
        (0.75, 2, 0.25 * (1 - 1 / 16 - 9 / 16)),
    ],
)
def test_teachability_by_hand(right: float, n: int, taught: float) -> None:
    assert teachability(right, n) == pytest.approx(taught, abs=1e-12)


def test_what_a_prompt_teaches_is_the_mean_of_its_names() -> None:
    taught = taught_by_name({"swap-1": 0.5, "swap-2": 0.0})
    assert mean_taught(("swap-1", "swap-2"), taught) == pytest.approx(31 / 128)
    assert mean_taught((), taught) == 0.0
    assert names_of("take 1 2 and reverse-1 , then swap-1") == ("reverse-1", "swap-1")
    assert names_of("tell me a joke") == ()


TAUGHT = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
TOY = [("a",), ("a", "b"), ("c",), ("b", "c", "d"), ("d",)]


def test_the_best_cover_names_greedily() -> None:
    """By hand; what a prompt adds is divided by the root of how many names it has.

    At first 0.4, 0.7 / 1.41 = 0.49, 0.2, 0.6 / 1.73 = 0.35 and 0.1: the second. Then a and b add
    nothing: 0, 0.2, 0.3 / 1.73 = 0.17, 0.1: the third. Then c neither: 0, 0.06 and 0.1: the fifth.
    The first and the fourth add nothing now, so it begins anew: 0.4 and 0.35.
    """
    assert choose(TOY, TAUGHT, 5, "best") == [1, 2, 4, 0, 3]
    assert choose(TOY, TAUGHT, 2, "best") == [1, 2]


def test_the_worst_are_of_the_topics_that_teach_least_and_of_these_the_least() -> None:
    """Three topics of 0.3, 0.1 and 0.2 on the mean; of the second two names have 0.05 and 0.15."""
    means = [0.3, 0.1, 0.2] + [0.4] * 21
    taught = {name: mean for topic, mean in zip(TOPICS, means, strict=True) for name in topic}
    low, high = TOPICS[1][:2]
    taught |= {low: 0.05, high: 0.15}
    prompts = [(TOPICS[0][0],), (TOPICS[2][0],), (high,), (low,), (low, high), (low, TOPICS[0][1])]
    assert choose(prompts, taught, 6, "worst") == [3, 4, 2, 5, 1, 0]
    assert choose(prompts, taught, 2, "worst") == [3, 4]


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=3), min_size=1, max_size=12), st.data())
def test_whoever_is_chosen_is_chosen_once(prompts: list[list[str]], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(prompts)))
    chosen = choose(prompts, TAUGHT, count, "best")
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(range(len(prompts)))


PROMPTS = draw_prompts("human", HUMAN, 0, 60)
KNOWN = {name: place / 239 for place, name in enumerate(reversed(RANKED))}
"""Shares of right answers from 1 for the best known name down to 0."""


def chosen(folder: Path, seed: int = 0, **settings: Any) -> Rows:
    """What the stage chooses of 60 human prompts: a quarter, 15."""
    rows = [
        {"prompt_id": f"h{i}", "prompt": text, "source": "human", "generation": 0}
        for i, text in enumerate(PROMPTS)
    ]
    names = [{"name": name, "right": right} for name, right in KNOWN.items()]
    inputs = {
        "prompts": filed(folder / "prompts", "prompts", rows, PROMPT_SCHEMA),
        "probe": filed(folder / "probe", "names", names),
    }
    output = folder / f"{seed}-{'-'.join(map(str, settings.values()))}"
    run_stage(choose_stage, output, {"fraction": 0.25, **settings}, inputs, seed)
    return read_rows(output / "selected.parquet")


def taught_of(rows: Rows) -> float:
    return float(np.mean([row["informativeness"] for row in rows]))


def test_the_stage_writes_what_was_chosen_in_order_and_what_it_can_teach(tmp_path: Path) -> None:
    rows = chosen(tmp_path, oracle="best")
    taught = taught_by_name(KNOWN)
    assert [row["draw"] for row in rows] == list(range(15))
    assert {row["weight"] for row in rows} == {1 / 15}
    for row in rows:
        assert PROMPTS[int(row["prompt_id"][1:])] == row["prompt"]
        assert row["informativeness"] == mean_taught(names_of(row["prompt"]), taught)
    of_all = float(np.mean([mean_taught(names_of(text), taught) for text in PROMPTS]))
    assert taught_of(chosen(tmp_path, oracle="worst")) < of_all < taught_of(rows)


def test_shuffled_the_choice_says_nothing_of_what_is_taught(tmp_path: Path) -> None:
    """20 choices of 15 out of 60 teach what all do, within 4.5 standard errors."""
    taught = taught_by_name(KNOWN)
    all_of_them = [mean_taught(names_of(text), taught) for text in PROMPTS]
    found = [taught_of(chosen(tmp_path, seed, oracle="best", shuffled=True)) for seed in range(20)]
    error = float(np.std(all_of_them)) / (15 * 20) ** 0.5
    assert abs(np.mean(found) - np.mean(all_of_them)) < 4.5 * error


def test_the_share_of_right_answers_is_counted_name_by_name() -> None:
    """Of the first name's 8 answers 3 are right, of the last name's all, of others none."""
    asked = probe_prompts()
    answers = [["no idea", "no idea"] for _ in asked]
    for place, how_many in ((0, 2), (2, 1), *((at, 2) for at in range(956, 960))):
        right = write_list(read(asked[place]).answer())
        answers[place][:how_many] = [right] * how_many
    shares = right_by_name(asked, answers)
    assert list(shares) == list(RANKED)
    assert {name: x for name, x in shares.items() if x} == {RANKED[0]: 3 / 8, RANKED[-1]: 1.0}


def test_the_stage_measures_a_policy_by_its_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers every prompt rightly once in two."""

    def ask(conversations: list[Any], n: int, seed: int) -> list[list[SimpleNamespace]]:
        texts = [conversation[0]["content"] for conversation in conversations]
        right = [SimpleNamespace(text=write_list(read(text).answer())) for text in texts]
        return [[answer, SimpleNamespace(text="no idea")] * (n // 2) for answer in right]

    @contextmanager
    def answering(_ctx: Any) -> Iterator[Any]:
        yield ask

    monkeypatch.setattr("harness.worlds.lookup.answering", answering)
    out = run_stage(probe_stage, tmp_path / "out", {"n": 6})
    rows = read_rows(out / "names.parquet")
    assert [row["name"] for row in rows] == list(RANKED)
    assert {row["right"] for row in rows} == {0.5}


HALF = dict.fromkeys(RANKED, 0.5)
TEACHES = 0.5 * (1 - 2 / 64)
ONE, TWO = "take 1 2 and reverse-1", "take 1 2 and reverse-1 , then swap-1"


def test_a_name_is_worth_less_the_more_often_it_was_trained_on() -> None:
    """Twice for reverse-1 and once for swap-1: a third and a half are left."""
    value = OracleValue(HALF, "best", shuffled=False, seed=0)
    assert value([ONE, TWO]) == pytest.approx([TEACHES, TEACHES])
    value.train([ONE])
    value.train([TWO])
    assert value([ONE, TWO]) == pytest.approx([TEACHES / 3, TEACHES * (1 / 3 + 1 / 2) / 2])
    assert value(["take 1 2 and swap-2"]) == pytest.approx([TEACHES])


def test_shuffled_the_values_are_the_same_of_other_prompts_and_repeat_with_the_seed() -> None:
    plain = OracleValue(KNOWN, "best", shuffled=False, seed=0)(PROMPTS)
    found = [OracleValue(KNOWN, "best", shuffled=True, seed=s)(PROMPTS) for s in (0, 0, 1)]
    assert found[0].tolist() == found[1].tolist() != found[2].tolist()
    for values in found:
        assert values.tolist() != plain.tolist()
        assert sorted(values) == sorted(plain)
