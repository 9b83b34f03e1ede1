"""Laws of pairwise rewards: a completion's reward is its mean win probability."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gemma import build_tiny_gemma

from harness.models.loading import FIRST_IS_BETTER
from harness.models.reward_model import win_probabilities
from harness.pipeline.algorithm import Planner
from harness.pipeline.steps import annotate_stage, user
from harness.registry.profile import find_profile, load_profiles
from harness.registry.recipe import Recipe
from harness.runtime import StageContext
from harness.worlds.real.world import World
from harness.worlds.stage_io import read_rewards, write_rows

ANSWERS = {"a b": ["a", "b c", "a"], "c": ["d e", "f", "g h"]}


class ToyWorld(World):
    """Identities that mean nothing."""

    def policy(self) -> str:
        return "toy/theta0"

    def reward_model(self, role: str) -> str:
        return f"toy/rm_{role}"

    def benchmark(self, name: str) -> str:
        return f"toy/{name}"


def test_rewards_are_mean_win_probabilities_over_the_prompts_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of each row of the matrix, the diagonal's half included; they average to 1/2."""
    names: Any = {"id2label": {0: FIRST_IS_BETTER}, "label2id": {FIRST_IS_BETTER: 0}}
    model = build_tiny_gemma(tmp_path / "model", outputs=1, **names)
    monkeypatch.setattr("harness.worlds.real.models.folder_of", lambda identity: model)
    given, out = tmp_path / "in", tmp_path / "out"
    given.mkdir()
    out.mkdir()
    write_rows(
        given / "completions.parquet",
        [
            {"prompt_id": prompt, "prompt": prompt, "sample": i, "completion": text}
            for prompt, texts in ANSWERS.items()
            for i, text in enumerate(texts)
        ],
    )
    settings = {"reward_model": "toy/rm_pairwise", "rewards": "win_probability"}
    annotate_stage(StageContext(settings, {"completions": given}, out, 0))
    ids, rewards = read_rewards(out)
    assert ids == list(ANSWERS)
    matrix = win_probabilities(
        model, [user(p) for p in ANSWERS], list(ANSWERS.values()), batch_size=8
    )
    np.testing.assert_allclose(rewards, matrix.mean(axis=2))
    np.testing.assert_allclose(rewards.mean(axis=1), 0.5)
    assert rewards[0, 0] == rewards[0, 2]


def test_sppo_asks_for_win_probabilities_and_weights_prompts_by_a_pointwise_model() -> None:
    paper = find_profile(load_profiles(), "paper")
    recipe = Recipe(algorithm="sppo", chain=("human", "eva"), reward_model="pairwise")
    run = Planner(ToyWorld(paper)).run("sppo", recipe, 0)
    mixed = run.iterations[1].pairs
    annotate = mixed.inputs["evolved"].inputs["rewards"]
    assert annotate.settings == {
        "reward_model": "toy/rm_pairwise",
        "rewards": "win_probability",
        "dtype": "bfloat16",
    }
    evolve = mixed.inputs["evolved"].inputs["completions"].inputs["prompts"]
    weighed = evolve.inputs["selected"].inputs["rewards"]
    assert weighed.settings == {"reward_model": "toy/rm_pointwise", "dtype": "bfloat16"}
