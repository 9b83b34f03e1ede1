"""Laws of single stages on a few rows written by hand, with a stub in place of each model."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from computing import given, read_json, run_stage

from harness.errors import UserError
from harness.models.reward_model import FunctionRewards, Rewarded
from harness.pipeline.online_steps import StreamSource
from harness.pipeline.steps import generate_stage, pair_stage, rewrite_stage, train_stage
from harness.training.offline import as_messages
from harness.training.offline_losses import SPPO
from harness.worlds.stage_io import (
    COMPLETION_SCHEMA,
    OPEN_PAIR_SCHEMA,
    PAIR_SCHEMA,
    PROMPT_SCHEMA,
    Rows,
    read_rows,
)

SAMPLING = {"top_p": 1.0, "temperature": 1.0, "max_new_tokens": 8, "batch_size": 2}


def pairs_with(rewards: Sequence[tuple[float, float]]) -> Rows:
    """Return pairs with the rewards of their chosen and rejected answers."""
    return [
        {**dict.fromkeys(PAIR_SCHEMA.names), "prompt_id": f"h{i}", "prompt": f"prompt {i}",
         "chosen": f"chosen {i}", "reward_chosen": chosen, "reward_rejected": rejected}
        for i, (chosen, rejected) in enumerate(rewards)
    ]  # fmt: skip


@pytest.fixture
def trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function from the rewards of pairs to the rows that training is given."""
    seen: list[Rows] = []

    def train(algorithm: Any, start: Path, rows: Rows, *_: Any, **__: Any) -> dict[str, float]:
        seen.append(rows)
        return {}

    monkeypatch.setattr("harness.training.offline.algorithm_of", lambda *_: None)
    monkeypatch.setattr("harness.training.offline.train", train)

    def given_to_training(rewards: Sequence[tuple[float, float]], **settings: Any) -> Rows:
        folder = given(tmp_path / "pairs", "pairs", pairs_with(rewards), PAIR_SCHEMA)
        inputs = {"pairs": folder, "policy": tmp_path}
        run_stage(train_stage, tmp_path / "out", {"epochs": 1, "batch_size": 4, **settings}, inputs)
        [rows] = seen
        return rows

    return given_to_training


def test_sppo_trains_on_the_rewards_as_win_probabilities(trained_on: Any) -> None:
    """So does a plug-in's loss that is like it, under a name of its own."""
    [row] = trained_on([(0.8, 0.3)], algorithm="mine")
    assert [row[name] for name in SPPO.columns] == [0.8, 0.3]


def test_where_ties_are_dropped_the_other_pairs_are_trained_on_in_order(trained_on: Any) -> None:
    """A revision that scores less than the rejected answer is no tie."""
    rewards = [(1.0, 0.0), (0.5, 0.5), (2.0, 1.0), (0.2, 0.4)]
    rows = trained_on(rewards, algorithm="dpo", drop_ties=True)
    assert [row["prompt_id"] for row in rows] == ["h0", "h2", "h3"]


def test_an_answer_of_all_the_tokens_allowed_is_trained_on_as_cut_off(tmp_path: Path) -> None:
    """At most 3 tokens: the best answer has 3, the worst 2."""
    rows: Rows = [
        {**dict.fromkeys(COMPLETION_SCHEMA.names), "prompt_id": "h0", "sample": sample,
         "n_tokens": n_tokens, "reward": reward}
        for sample, (n_tokens, reward) in enumerate([(3, 1.0), (2, 0.0)])
    ]  # fmt: skip
    inputs = {name: given(tmp_path / name, name, rows) for name in ("completions", "rewards")}
    out = run_stage(pair_stage, tmp_path / "out", {"open_from": 3}, inputs)
    [pair] = read_rows(out / "pairs.parquet")
    assert (pair["chosen_open"], pair["rejected_open"]) == (True, False)
    messages = as_messages(pair)
    assert [messages[side][0]["open"] for side in ("chosen", "rejected")] == [True, False]


def test_a_pair_without_a_revision_or_its_reward_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is revised from 1 to 5; the second prompt has no answer, and no reward."""
    answers = [[SimpleNamespace(text="revised")], []]
    monkeypatch.setattr("harness.models.policy.generate", lambda *_, **__: answers)
    model = FunctionRewards("toy", lambda _, texts: [5.0] if texts == ["revised"] else None)
    monkeypatch.setattr("harness.pipeline.steps.rewards_of", lambda *_: model)
    pairs = pairs_with([(1.0, 0.0), (2.0, 0.0)])
    inputs = {"pairs": given(tmp_path / "pairs", "pairs", pairs, PAIR_SCHEMA), "policy": tmp_path}
    out = run_stage(rewrite_stage, tmp_path / "out", SAMPLING, inputs)
    rows = read_rows(out / "pairs.parquet")
    assert [row["chosen"] for row in rows] == ["revised", "chosen 1"]
    assert [row["reward_chosen"] for row in rows] == [5.0, 2.0]
    assert read_json(out / "summary.json") == {
        "pairs": 2, "unchanged": 1, "reward_before": 1.5, "reward_after": 3.5,
    }  # fmt: skip


def test_a_revision_is_open_if_it_was_cut_off_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 8 tokens: the first revision ends with 7, the second is cut off."""
    answers = [[SimpleNamespace(text="revised", n_tokens=n)] for n in (7, 8)]
    monkeypatch.setattr("harness.models.policy.generate", lambda *_, **__: answers)
    model = FunctionRewards("toy", lambda *_: [1.0])
    monkeypatch.setattr("harness.pipeline.steps.rewards_of", lambda *_: model)
    pairs = [
        {**pair, "chosen_open": was, "rejected_open": False}
        for pair, was in zip(pairs_with([(1.0, 0.0)] * 2), (True, False), strict=True)
    ]
    inputs = {
        "pairs": given(tmp_path / "pairs", "pairs", pairs, OPEN_PAIR_SCHEMA), "policy": tmp_path,
    }  # fmt: skip
    out = run_stage(rewrite_stage, tmp_path / "out", SAMPLING, inputs)
    assert [row["chosen_open"] for row in read_rows(out / "pairs.parquet")] == [False, True]


def test_prompts_that_are_all_too_long_for_the_policy_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.models.policy.generate", lambda *_, **__: [[], []])
    rows = [dict.fromkeys(PROMPT_SCHEMA.names) | {"prompt": text} for text in ("one", "two")]
    inputs = {"prompts": given(tmp_path / "prompts", "prompts", rows), "policy": tmp_path}
    with pytest.raises(UserError, match="all 2 prompts are too long for the policy to answer"):
        run_stage(generate_stage, tmp_path / "out", {**SAMPLING, "n": 2}, inputs)


def test_an_answer_without_an_end_is_penalized_unless_its_prompt_has_no_reward() -> None:
    source: Any = object.__new__(StreamSource)
    source._s, source._became = {"missing_eos_penalty": 1.0}, Counter()
    model: Any = SimpleNamespace(
        score=lambda *_: Rewarded(np.array([[2.0, 1.0], [np.nan, np.nan]]))
    )
    ended = np.array([[True, False], [False, True]])
    assert source._scored(model, ["one", "two"], [], ended).tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert source._became["without_reward"] == 1
