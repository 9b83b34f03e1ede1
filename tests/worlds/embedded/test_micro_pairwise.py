"""Laws of what the world's reward models read and how each of them is made from θ0."""

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from build_micro import Course, PretrainConfig, pretrain
from transformers import AutoModelForSequenceClassification

from harness.registry.profile import load_profiles
from harness.registry.recipe import RewardRole
from harness.worlds.embedded import files
from harness.worlds.embedded.language import score, token_ids, words
from harness.worlds.embedded.reward import (
    REWARD_MODELS,
    NoisyPair,
    encode_pair,
    fit_reward_model,
    held_out_pairs,
    in_order,
    layer_sources,
    pair_margins,
    training_batches,
    with_layers,
)

torch.set_num_threads(1)

SHORT: dict[str, Any] = {
    "steps": 3, "batch_size": 4, "warmup_steps": 1, "held_out": 40, "threads": 1, "compiled": False
}  # fmt: skip
"""A training of a moment."""

ROLES = list(REWARD_MODELS)


@pytest.fixture(scope="module")
def theta0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a θ0 of a few steps."""
    folder = tmp_path_factory.mktemp("theta0")
    courses: Any = {"operations": Course(2, 3e-3, 1), "names": Course(2, 1e-3, 1)}
    small: Any = {"batch_size": 8, "pool_batches": 2, "compiled": False, "threads": 1}
    pretrain(PretrainConfig(**courses, **small), folder)
    return folder


@pytest.fixture
def body(theta0: Path) -> Any:
    """Return θ0's body with a scalar head, fresh."""
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(
        theta0, num_labels=1, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def test_a_pair_is_encoded_as_by_hand() -> None:
    written = (
        "<bos> <start_of_turn> user now reverse-7 <end_of_turn> "
        "<start_of_turn> model 2 1 <end_of_turn> <start_of_turn> model b <end_of_turn>"
    )
    ids = token_ids()
    assert encode_pair("now reverse-7", "2 1", "b", ids) == [ids[word] for word in written.split()]


def test_a_margin_is_the_logit_signed_by_the_place_of_the_chosen_answer() -> None:
    """A model that always outputs 2, "the first is better", is right by 2 or wrong by 2.

    The chosen answer is first in about half of 400 pairs: 200 with standard deviation 10.
    """
    seen: list[list[str]] = []

    def model(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        seen.extend([words()[i] for i in row] for row in input_ids.tolist())
        return SimpleNamespace(logits=torch.full((len(input_ids), 1), 2.0))

    pairs = [NoisyPair("sort_up-2 : b a", "a b", "b a")] * 400
    margins = pair_margins(model, pairs, "cpu", random.Random(0))  # type: ignore[arg-type]
    first = [" ".join(row).index("model a b") < " ".join(row).index("model b a") for row in seen]
    assert margins.tolist() == [2.0 if chosen_first else -2.0 for chosen_first in first]
    assert 160 <= sum(first) <= 240


@pytest.mark.parametrize(
    ("have", "want", "expected"),
    [
        (4, 4, [(0, False), (1, False), (2, False), (3, False)]),
        (4, 2, [(0, False), (1, False)]),
        (4, 6, [(0, False), (1, False), (1, True), (2, False), (3, False), (3, True)]),
        (2, 5, [(0, False), (0, True), (1, False), (1, True), (1, True)]),
    ],
)
def test_copies_are_evenly_spread_behind_the_layers_they_copy(
    have: int, want: int, expected: list[tuple[int, bool]]
) -> None:
    """Two copies of four layers close each half.

    Three copies of two layers follow layers ceil(2/3) = 1, ceil(4/3) = 2 and ceil(6/3) = 2.
    """
    assert layer_sources(have, want) == expected


@torch.no_grad()
def test_a_deeper_model_starts_as_the_function_of_the_original(body: Any) -> None:
    deeper = with_layers(body, 6).eval()
    tokens = torch.arange(5, 45).reshape(2, 20)
    assert len(deeper.model.layers) == deeper.config.num_hidden_layers == 6
    assert torch.equal(deeper(tokens).logits, body(tokens).logits)


@torch.no_grad()
def test_a_shallower_model_is_the_first_layers(body: Any) -> None:
    """Its hidden states before the last norm are the original's after as many layers."""
    tokens = torch.arange(5, 25)[None]
    shallow = with_layers(body, 2).eval()
    after_two = body.model(tokens, output_hidden_states=True).hidden_states[2]
    assert torch.equal(shallow.model(tokens).last_hidden_state, body.model.norm(after_two))


def test_there_is_a_reward_model_for_every_role_and_an_asset_for_every_reward_model() -> None:
    trained = set(load_profiles()["micro"].trained_reward_models)
    assert set(ROLES) == set(get_args(RewardRole)) - trained
    assert {name for name in files.ASSETS if name.startswith("rm_")} == {f"rm_{r}" for r in ROLES}


@pytest.mark.parametrize("role", ROLES)
def test_the_same_settings_give_the_same_bytes_and_the_same_order_of_pairs(
    theta0: Path, tmp_path: Path, role: str
) -> None:
    config = replace(REWARD_MODELS[role], **SHORT)
    for name in "ab":
        fit_reward_model(config, theta0, tmp_path / name)
    assert files.digest(tmp_path / "a") == files.digest(tmp_path / "b")
    pairs = held_out_pairs(config)
    right = in_order(tmp_path / "a", config, pairs)
    assert right == in_order(tmp_path / "b", config, pairs)
    assert len(right) == len(pairs) == 40


def test_a_pair_is_in_order_if_the_chosen_answer_has_the_higher_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose reward is the answer's number; a tie is not in order."""

    class Numbers:
        def score(self, asked: Any, answers: Any) -> SimpleNamespace:
            return SimpleNamespace(
                values=np.array([[float(text) for text in it] for it in answers])
            )

    monkeypatch.setattr("harness.models.reward_model.load_reward_model", lambda *_: None)
    monkeypatch.setattr("harness.models.reward_model.CheckpointRewards", lambda _: Numbers())
    pairs = [NoisyPair("now", *told) for told in (("2", "1"), ("1", "2"), ("1", "1"))]
    assert in_order(tmp_path, REWARD_MODELS["pointwise"], pairs) == [True, False, False]


def test_held_out_pairs_are_true_and_the_same_for_every_model_of_a_seed() -> None:
    """And drawn apart from what a model learns from, so that they share none but by chance."""
    held_out = held_out_pairs(REWARD_MODELS["pointwise"])
    assert len(held_out) == 2000
    assert all(score(p.prompt, p.chosen) > score(p.prompt, p.rejected) for p in held_out)
    for config in REWARD_MODELS.values():
        assert held_out_pairs(config) == held_out
        assert held_out_pairs(replace(config, seed=1)) != held_out
        learnt = {pair for batch in islice(training_batches(config), 32) for pair in batch}
        assert len(learnt & set(held_out)) < 3
