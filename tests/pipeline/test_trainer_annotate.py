"""Laws of annotating with published reward models, and of what the stage says of them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from computing import given, read_json, run_stage
from small_checkpoints import write_armo, write_pair_llm, write_pairrm
from toy_identities import NamedWorld

from harness.errors import UserError
from harness.models.reader import Answered
from harness.models.reward_model import Rewarded, load_reward_model, score, win_probabilities
from harness.pipeline.algorithm import Planner
from harness.pipeline.steps import annotate_stage, pair_stage, user
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.worlds.embedded import files
from harness.worlds.stage_io import PROMPT_SCHEMA, read_rewards, read_rows

ANSWERS = {"one two": ["three", "four five", "three"], "six": ["seven eight", "nine ten?", ""]}
TALKS = [Answered(user(p), (a,)) for p, answers in ANSWERS.items() for a in answers]
NAME = "RLHFlow/some-model@9f"

Annotated = Callable[..., tuple[np.ndarray, dict[str, Any]]]


@pytest.fixture
def annotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Annotated:
    """Return a function that annotates three answers to each of two prompts on the processor.

    It takes the model's folder and texts in place of the prompts; it returns P x N rewards, which
    it leaves in `rewards`, and the summary.
    """
    monkeypatch.setattr("harness.models.loading.fastest_device", lambda: "cpu")

    def annotate(
        model: Path, prompts: tuple[str, ...] = tuple(ANSWERS), **settings: str
    ) -> tuple[np.ndarray, dict[str, Any]]:
        monkeypatch.setattr("harness.worlds.real.models.folder_of", lambda identity: model)
        rows = [
            dict.fromkeys(PROMPT_SCHEMA.names)
            | {"prompt_id": name, "prompt": prompt, "sample": i, "completion": text}
            for (name, texts), prompt in zip(ANSWERS.items(), prompts, strict=True)
            for i, text in enumerate(texts)
        ]
        inputs = {"completions": given(tmp_path / "completions", "completions", rows)}
        out = tmp_path / "rewards"
        if out.exists():
            out.rename(tmp_path / "rewards before")
        run_stage(annotate_stage, out, {"reward_model": NAME, **settings}, inputs)
        return read_rewards(out)[1], read_json(out / "summary.json")

    return annotate


def test_armo_annotates_in_the_stages_number_format_and_is_unverified(
    tmp_path: Path, annotated: Annotated
) -> None:
    model = write_armo(tmp_path / "model")
    rewards, summary = annotated(model)
    full, _ = score(load_reward_model(model), TALKS, batch_size=256)
    np.testing.assert_allclose(rewards.ravel(), full, atol=1e-6)
    assert summary == {
        "reward_model": NAME,
        "format": "ArmoRM",
        "weights": "unverified",
        "cut": 0,
        "left_out": 0,
    }
    rewards, _ = annotated(model, dtype="bfloat16")
    half, _ = score(load_reward_model(model, dtype="bfloat16"), TALKS, batch_size=256)
    np.testing.assert_array_equal(rewards.ravel(), half)
    assert (half != full).any()


@pytest.mark.parametrize(
    ("write", "format_"),
    [(write_pairrm, "PairRM"), (write_pair_llm, "pair-preference language model")],
)
def test_pairwise_models_annotate_with_mean_win_probabilities(
    write: Callable[[Path], Path], format_: str, tmp_path: Path, annotated: Annotated
) -> None:
    model = write(tmp_path / "model")
    rewards, summary = annotated(model, rewards="win_probability")
    reader = load_reward_model(model, "two answers")
    wins = win_probabilities(
        reader, [user(p) for p in ANSWERS], list(ANSWERS.values()), batch_size=8
    )[0]
    np.testing.assert_allclose(rewards, wins.mean(axis=2), atol=1e-6)
    np.testing.assert_allclose(rewards.mean(axis=1), 0.5)
    assert rewards[0, 0] == rewards[0, 2], "equal answers"
    assert (summary["format"], summary["weights"]) == (format_, "unverified")


def test_answers_that_were_cut_are_counted(tmp_path: Path, annotated: Annotated) -> None:
    """With a context of one token less than the longest conversation has, that one is cut."""
    armo = load_reward_model(write_armo(tmp_path / "measure"))
    pairs = [Answered(user(p), (a,)) for p, answers in ANSWERS.items() for a in answers]
    lengths = sorted(len(e.tokens) for e in armo.encode(pairs))
    model = write_armo(tmp_path / "model", max_position_embeddings=lengths[-1] - 1)
    _, summary = annotated(model)
    assert summary["cut"] == sum(n == lengths[-1] for n in lengths)


def test_a_prompt_that_is_too_long_is_left_out_with_a_count(
    tmp_path: Path, annotated: Annotated
) -> None:
    """The first prompt fills the context alone; the pairs are those of the second, as ever."""
    model, long = write_armo(tmp_path / "model", max_position_embeddings=128), "one " * 300
    rewards, summary = annotated(model, (long, "six"))
    assert rewards.shape == (1, 3)
    assert (summary["left_out"], summary["cut"]) == (1, 0)
    inputs = {name: tmp_path / name for name in ("completions", "rewards")}
    paired = run_stage(pair_stage, tmp_path / "paired", {"drop_ties": False}, inputs)
    [pair] = read_rows(paired / "pairs.parquet")
    best, worst = rewards[0].argmax(), rewards[0].argmin()
    assert (pair["chosen"], pair["rejected"]) == tuple(ANSWERS["six"][i] for i in (best, worst))
    with pytest.raises(UserError, match="ArmoRM has no reward for any of 2 prompts"):
        annotated(model, (long, long))


def test_a_prompt_that_lacks_one_reward_is_left_out_whole(
    tmp_path: Path, annotated: Annotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards are read by position: a lone missing one would shift those of all later prompts."""
    found = Rewarded(np.array([[0.1, np.nan, 0.3], [1.0, 2.0, 3.0]]))
    model = SimpleNamespace(score=lambda *_: found, format="a pair model", weights="none")
    monkeypatch.setattr("harness.pipeline.steps.rewards_of", lambda *_: model)
    rewards, summary = annotated(tmp_path)
    np.testing.assert_array_equal(rewards, [[1.0, 2.0, 3.0]])
    assert summary["left_out"] == 1


def test_the_embedded_world_s_model_says_that_it_is_embedded(
    tmp_path: Path, annotated: Annotated
) -> None:
    _, summary = annotated(tmp_path, reward_model=files.card().identity("rm_pointwise"))
    assert (summary["weights"], summary["format"]) == ("embedded", "sequence classifier")


def test_sppo_asks_for_win_probabilities_and_weights_prompts_by_a_pointwise_model(
    paper: Profile,
) -> None:
    recipe = Recipe(algorithm="sppo", chain=("human", "eva"), reward_model="pairwise")
    run = Planner(NamedWorld(paper)).run("sppo", recipe, 0)
    evolved = run.iterations[1].pairs.inputs["evolved"]
    models: Any = paper.reward_models
    assert evolved.inputs["rewards"].settings == {
        "reward_model": f"{models['pairwise']}@not-downloaded",
        "rewards": "win_probability",
        "dtype": "bfloat16",
    }
    evolve = evolved.inputs["completions"].inputs["prompts"]
    weighed = evolve.inputs["selected"].inputs["rewards"]
    assert weighed.settings == {
        "reward_model": f"{models['pointwise']}@not-downloaded",
        "dtype": "bfloat16",
    }
