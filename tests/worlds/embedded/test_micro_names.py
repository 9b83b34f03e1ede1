"""Laws of the embeddings of names: short ones are quick to relearn, where they are used."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Gemma2ForCausalLM

from harness.models.loading import load_model
from harness.training import offline
from harness.training.offline_losses import DPO
from harness.worlds.embedded import files
from harness.worlds.embedded.language import MEANING, build_tokenizer, token_ids
from harness.worlds.embedded.pretrain import LONG, SHORT, encode, model_config, padded, resize_names
from harness.worlds.embedded.reward import RewardConfig, fit_reward_model
from harness.worlds.embedded.texts import Mix, demonstrate

torch.set_num_threads(1)

IDS = token_ids()
NAMES = [IDS[name] for name in MEANING]
OTHERS = [index for word, index in IDS.items() if word not in MEANING]


def policy(**settings: Any) -> Any:
    """Return a random policy of the world's architecture, smaller."""
    config = model_config(len(IDS))
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    for name, value in (small | {"attn_implementation": "eager"} | settings).items():
        setattr(config, name, value)
    config.layer_types = config.layer_types[: config.num_hidden_layers]
    torch.manual_seed(0)
    return Gemma2ForCausalLM(config).eval()


def saved(folder: Path, size: float, **settings: Any) -> Path:
    """Save a random policy whose names have embeddings of a size."""
    model = policy(**settings)
    resize_names(model, size)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def embeddings(folder: Path) -> torch.Tensor:
    return load_file(folder / "model.safetensors")["model.embed_tokens.weight"].float()


def sizes(rows: torch.Tensor) -> torch.Tensor:
    return rows.pow(2).mean(1).sqrt()


@pytest.mark.parametrize("size", [SHORT, LONG])
@torch.no_grad()
def test_names_get_the_size_and_keep_their_direction_and_nothing_else_changes(size: float) -> None:
    model = policy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    resize_names(model, size)
    changed = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {"model.embed_tokens.weight"}
    was, now = before["model.embed_tokens.weight"], model.get_input_embeddings().weight
    assert torch.equal(now[OTHERS], was[OTHERS])
    torch.testing.assert_close(sizes(now[NAMES]), torch.full((240,), size))
    alike = torch.cosine_similarity(now[NAMES], was[NAMES])
    torch.testing.assert_close(alike, torch.ones(240))


@torch.no_grad()
def test_what_a_layer_reads_of_a_name_does_not_depend_on_its_size() -> None:
    """So the logits of a single layer are alike wherever the word itself is no name.

    Gemma-2 divides by the root of a mean square plus 1e-6: of a row of size 0.0042, times the root
    of 32 embedding coordinates, that is 1e-6 of 5.6e-4, or an effect of 0.09%.
    """
    model = policy(num_hidden_layers=1)
    model.config.final_logit_softcapping = None
    sentence = "<bos> <start_of_turn> user take 3 a b and reverse-7 , then swap-2 <end_of_turn>"
    tokens = torch.tensor([[IDS[word] for word in sentence.split()]])
    is_name = torch.tensor([word in MEANING for word in sentence.split()])
    resize_names(model, LONG)
    long = model(tokens).logits[0]
    resize_names(model, SHORT)
    short = model(tokens).logits[0]
    scale = float(long.std())
    assert float((long - short)[~is_name].abs().max()) < 0.01 * scale
    assert float((long - short)[is_name].abs().max()) > 0.1 * scale


@torch.no_grad()
def test_the_shipped_policy_says_nearly_the_same_with_long_names() -> None:
    """The probabilities of the next word move by a twentieth of what they could; names are short.

    Over all of the model's words in 300 demonstrations.
    """
    model: Any = load_model(files.resolve(files.card().identity("theta0"))).eval()
    table = model.get_input_embeddings().weight
    assert sizes(table[NAMES].float()).tolist() == pytest.approx([SHORT] * 240, rel=2**-8)
    rng = random.Random(0)
    rows = [encode(demonstrate(rng, Mix()), IDS) for _ in range(300)]
    tokens, mask = padded([tokens for tokens, _ in rows], 0)
    labels = padded([labels for _, labels in rows], -100)[0]

    def says() -> torch.Tensor:
        logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1]
        return torch.as_tensor(logits[labels[:, 1:] >= 0].float().softmax(-1))

    short = says()
    resize_names(model, LONG)
    long = says()
    assert float((short - long).abs().sum(-1).mean()) / 2 < 0.1
    assert float((short.argmax(-1) == long.argmax(-1)).float().mean()) > 0.9


PAIRS = [
    {"prompt": "reverse-7 : 1 2 3", "chosen": "3 2 1", "rejected": "1 2 3"},
    {"prompt": "take a b and swap-2 , then sort_up-1", "chosen": "a b", "rejected": "b a"},
    {"prompt": "please successor-4 for 1 2", "chosen": "2 3", "rejected": "nothing"},
    {"prompt": "here is a 1 ; keep_digits-20 , thanks", "chosen": "1", "rejected": "a"},
]
USED = [IDS[n] for n in ("reverse-7", "swap-2", "sort_up-1", "successor-4", "keep_digits-20")]
UNUSED = [index for index in NAMES if index not in USED]


def trained(start: Path, out: Path, **changes: Any) -> torch.Tensor:
    """Train by the harness's DPO; the embeddings that come of it."""
    settings: dict[str, Any] = {
        "learning_rate": 3e-4, "beta": 2.0, "epochs": 1, "batch_size": 4, "micro_batch_size": 4,
        "max_length": 64, "schedule": "constant_with_warmup", "warmup_ratio": 0.0,
    }  # fmt: skip
    out.mkdir()
    offline.train(DPO(**settings | changes), start, PAIRS, out, seed=0, on_log=lambda *_: None)
    return embeddings(out / "model")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with short names."""
    return saved(tmp_path_factory.mktemp("short"), SHORT)


def test_a_name_that_no_prompt_has_keeps_its_embedding_exactly(start: Path, tmp_path: Path) -> None:
    """Through a step, and through three more on the same prompts; those of the prompts move."""
    before = embeddings(start)
    for epochs in (1, 4):
        after = trained(start, tmp_path / str(epochs), epochs=epochs)
        assert torch.equal(after[UNUSED], before[UNUSED])
        assert all(not torch.equal(after[index], before[index]) for index in USED)


def test_a_step_turns_a_short_name_much_further_than_a_long_one(
    start: Path, tmp_path: Path
) -> None:
    """Adam's first step is 3e-4 in every coordinate: about 3e-4 / 0.0042 = 0.07 radians of it.

    A long one turns by 3e-4 / 0.14 = 0.002, a 33rd.
    """

    def turned(folder: Path, out: Path) -> float:
        alike = torch.cosine_similarity(trained(folder, out)[USED], embeddings(folder)[USED])
        return float(torch.acos(alike.double().clamp(max=1)).mean())

    short = turned(start, tmp_path / "a")
    assert short == pytest.approx(3e-4 / SHORT, rel=0.3)
    assert turned(saved(tmp_path / "long", LONG), tmp_path / "b") < short / 10


@pytest.mark.parametrize("layers", [2, 3])
def test_a_reward_model_starts_from_lengthened_names(
    start: Path, tmp_path: Path, layers: int
) -> None:
    """In bfloat16; a step at a learning rate of next to nothing leaves it where it starts."""
    config = RewardConfig(
        steps=1, batch_size=2, learning_rate=1e-12, warmup_steps=1, layers=layers, threads=1
    )
    fit_reward_model(config, start, tmp_path)
    before, after = embeddings(start), embeddings(tmp_path)
    assert sizes(after[NAMES]).tolist() == pytest.approx([LONG] * 240, rel=2**-8)
    assert float(torch.cosine_similarity(after[NAMES], before[NAMES]).min()) > 0.9999
    torch.testing.assert_close(after[OTHERS], before[OTHERS].bfloat16().float())
