"""Laws of annotating with published reward models, and of what the stage says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import write_armo, write_pair_llm, write_pairrm

from harness.errors import UserError
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, score, win_probabilities
from harness.pipeline.algorithm import Planner
from harness.pipeline.steps import annotate_stage, assistant, pair_stage, user
from harness.registry.profile import find_profile, load_profiles
from harness.registry.recipe import Recipe
from harness.runtime import StageContext
from harness.worlds.embedded import files
from harness.worlds.real.world import World
from harness.worlds.stage_io import PROMPT_SCHEMA, read_rewards, read_rows, write_rows

ANSWERS = {"one two": ["three", "four five", "three"], "six": ["seven eight", "nine ten?", ""]}
NAME = "RLHFlow/some-model@9f"


@pytest.fixture
def completions(tmp_path: Path) -> Path:
    """Return a stage's folder with three answers to each of two prompts."""
    folder = tmp_path / "completions"
    folder.mkdir()
    rows = [
        {"prompt_id": prompt, "prompt": prompt, "sample": i, "completion": text}
        for prompt, texts in ANSWERS.items()
        for i, text in enumerate(texts)
    ]
    write_rows(folder / "completions.parquet", rows)
    return folder


def annotated(
    model: Path, completions: Path, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> tuple[np.ndarray, dict[str, Any]]:
    """Run the stage on the processor; return P x N rewards and the summary."""
    monkeypatch.setattr("harness.worlds.real.models.folder_of", lambda identity: model)
    monkeypatch.setattr("harness.models.loading.fastest_device", lambda: "cpu")
    out = completions.parent / "out"
    out.mkdir()
    annotate_stage(
        StageContext({"reward_model": NAME, **settings}, {"completions": completions}, out, 0)
    )
    return read_rewards(out)[1], json.loads((out / "summary.json").read_text(encoding="utf-8"))


def test_armo_annotates_and_is_unverified(
    tmp_path: Path, completions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_armo(tmp_path / "model")
    rewards, summary = annotated(model, completions, monkeypatch)
    talks = [[*user(p), assistant(a)] for p, answers in ANSWERS.items() for a in answers]
    np.testing.assert_allclose(
        rewards.ravel(), score(load_reward_model(model), talks, batch_size=8), atol=1e-6
    )
    assert summary == {
        "reward_model": NAME,
        "format": "ArmoRM",
        "weights": "unverified",
        "cut": 0,
        "left_out": 0,
    }


@pytest.mark.parametrize(
    ("write", "format_"),
    [(write_pairrm, "PairRM"), (write_pair_llm, "pair-preference language model")],
)
def test_pairwise_models_annotate_with_mean_win_probabilities(
    write: Callable[[Path], Path],
    format_: str,
    tmp_path: Path,
    completions: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = write(tmp_path / "model")
    rewards, summary = annotated(model, completions, monkeypatch, rewards="win_probability")
    reader = load_reward_model(model, "two answers")
    wins = win_probabilities(
        reader, [user(p) for p in ANSWERS], list(ANSWERS.values()), batch_size=8
    )
    np.testing.assert_allclose(rewards, wins.mean(axis=2), atol=1e-6)
    np.testing.assert_allclose(rewards.mean(axis=1), 0.5)
    assert rewards[0, 0] == rewards[0, 2], "equal answers"
    assert (summary["format"], summary["weights"]) == (format_, "unverified")


def test_the_number_format_is_a_setting_of_the_stage(
    tmp_path: Path, completions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_armo(tmp_path / "model")
    rewards, _ = annotated(model, completions, monkeypatch, dtype="bfloat16")
    talks = [[*user(p), assistant(a)] for p, answers in ANSWERS.items() for a in answers]
    half = score(load_reward_model(model, dtype="bfloat16"), talks, batch_size=256)
    np.testing.assert_array_equal(rewards.ravel(), half)
    assert (half != score(load_reward_model(model), talks, batch_size=256)).any()


def test_answers_that_were_cut_are_counted(
    tmp_path: Path, completions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a context of one token less than the longest conversation has, that one is cut."""
    armo = load_reward_model(write_armo(tmp_path / "measure"))
    given = [Answered(user(p), (a,)) for p, answers in ANSWERS.items() for a in answers]
    lengths = sorted(len(e.tokens) for e in armo.encode(given))
    model = write_armo(tmp_path / "model", max_position_embeddings=lengths[-1] - 1)
    _, summary = annotated(model, completions, monkeypatch)
    assert summary["cut"] == sum(n == lengths[-1] for n in lengths)


def test_a_prompt_that_is_too_long_is_left_out_with_a_count(
    tmp_path: Path, completions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second prompt fills the context alone; the pairs are those of the first, as ever."""
    rows = read_rows(completions / "completions.parquet")
    names = dict.fromkeys(PROMPT_SCHEMA.names)
    long = [
        {**names, **row, "prompt": "one " * 300 if row["prompt_id"] == "one two" else "six"}
        for row in rows
    ]
    write_rows(completions / "completions.parquet", long)
    model = write_armo(tmp_path / "model", max_position_embeddings=128)
    rewards, summary = annotated(model, completions, monkeypatch)
    assert rewards.shape == (1, 3)
    assert (summary["left_out"], summary["cut"]) == (1, 0)
    paired = tmp_path / "paired"
    paired.mkdir()
    inputs = {"completions": completions, "rewards": tmp_path / "out"}
    pair_stage(StageContext({"drop_ties": False}, inputs, paired, 0))
    [pair] = read_rows(paired / "pairs.parquet")
    best, worst = rewards[0].argmax(), rewards[0].argmin()
    assert (pair["chosen"], pair["rejected"]) == tuple(ANSWERS["six"][i] for i in (best, worst))
    for row in long:
        row["prompt"] = "one " * 300
    write_rows(completions / "completions.parquet", long)
    (tmp_path / "out").rename(tmp_path / "before")
    with pytest.raises(UserError, match="ArmoRM has no reward for any of 2 prompts"):
        annotated(model, completions, monkeypatch)


def test_the_embedded_world_s_model_says_that_it_is_embedded(
    tmp_path: Path, completions: Path
) -> None:
    identity = files.card().identity("rm_pointwise")
    out = tmp_path / "out"
    out.mkdir()
    annotate_stage(StageContext({"reward_model": identity}, {"completions": completions}, out, 0))
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["weights"] == "embedded"
    assert summary["format"] == "sequence classifier"


class ToyWorld(World):
    """Identities that mean nothing."""

    def policy(self) -> str:
        return "toy/theta0"

    def reward_model(self, role: str) -> str:
        return f"toy/rm_{role}"

    def benchmark(self, name: str) -> str:
        return f"toy/{name}"


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
