"""The world's reward models: training on noisy preferences, and measuring their accuracy.

A reward model is θ0's body, cut or grown to a number of layers, with a scalar head. It learns from
pairs of attempts by the fallible demonstrator at one task, ranked by the oracle with a tenth of the
labels flipped, so it is better than chance but not the oracle. Its accuracy on held-out pairs is
measured and recorded in the world's card.

A pointwise model gives each answer a reward. A pairwise model reads both answers as consecutive
model turns, and its head reads from the last token how much better the first is. Both minimize
-log sigmoid(margin). In pairwise training, a fair coin decides whether the better answer comes
first.

θ0's name embeddings are short (`training.resize_names`), so what it knows of names is quick to
relearn. A reward model should be stable instead, so it starts with long ones.

Source: the Bradley-Terry loss of the paper's reward models (ArmoRM and Skywork reports) and its
pairwise form (PairRM); block expansion from LLaMA Pro (Wu et al., 2024).
"""

from __future__ import annotations

import copy
import functools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from harness.runtime.stage import StageContext
from harness.worlds import ACCURACY, BEST_OF_N
from harness.worlds.embedded import files, training
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.texts import attempt, draw_task, word
from harness.worlds.stage_io import Result, read_rewards, read_rows, write_json, writes

if TYPE_CHECKING:
    import torch


class NoisyPair(NamedTuple):
    """A prompt with a better and a worse answer, according to a label that may be wrong."""

    prompt: str
    chosen: str
    rejected: str


def draw_preference(rng: random.Random, flipped: float) -> NoisyPair:
    """Draw two attempts at one task with unequal scores; `flipped`: chance of a wrong label."""
    while True:
        task = draw_task(rng)
        assert task.items is not None
        answers = [lang.write_list(attempt(task.names, task.items, rng)) for _ in range(2)]
        first, second = (lang.partial_credit(answer, task.answer()) for answer in answers)
        if first == second:
            continue
        if (first < second) != (rng.random() < flipped):
            answers.reverse()
        return NoisyPair(word(task, rng), *answers)


def encode_pair(prompt: str, first: str, second: str, ids: dict[str, int]) -> list[int]:
    tokens, _ = training.encode([(prompt, first)], ids)
    words = (lang.START, lang.MODEL, *second.split(), lang.END)
    return [*tokens, *(ids[word] for word in words)]


def pair_margins(
    model: torch.nn.Module, pairs: list[NoisyPair], device: str, rng: random.Random
) -> torch.Tensor:
    """Return a pairwise model's logits for the chosen over the rejected answers, shape (pairs,)."""
    import torch

    ids = lang.token_ids()
    chosen_first = [rng.random() < 0.5 for _ in pairs]
    rows = [
        encode_pair(p.prompt, *((p.chosen, p.rejected) if first else (p.rejected, p.chosen)), ids)
        for p, first in zip(pairs, chosen_first, strict=True)
    ]
    sign = torch.tensor([1.0 if first else -1.0 for first in chosen_first], device=device)
    return _read(model, rows, device) * sign


def reward_margins(model: torch.nn.Module, pairs: list[NoisyPair], device: str) -> torch.Tensor:
    """Return each chosen answer's reward minus the rejected one's, shape (pairs,)."""
    ids = lang.token_ids()
    turns = [(p.prompt, p.chosen) for p in pairs] + [(p.prompt, p.rejected) for p in pairs]
    rows = [training.encode([turn], ids)[0] for turn in turns]
    chosen, rejected = _read(model, rows, device).chunk(2)
    return chosen - rejected


def _read(model: torch.nn.Module, rows: list[list[int]], device: str) -> torch.Tensor:
    tokens, mask = (part.to(device) for part in training.padded(rows, lang.token_ids()[lang.PAD]))
    logits: torch.Tensor = model(input_ids=tokens, attention_mask=mask).logits
    return logits[:, 0].float()


SILENCED = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")
"""Parameters of a copied layer that start at -1."""


def layer_sources(have: int, want: int) -> list[tuple[int, bool]]:
    """Return, for each layer of the resized model, its source layer and whether it is a copy."""
    extra = max(0, want - have)
    copied = [math.ceil(k * have / extra) - 1 for k in range(1, extra + 1)]
    both = [(layer, False) for layer in range(min(have, want))] + [(at, True) for at in copied]
    return sorted(both)


def with_layers(model: Any, layers: int) -> Any:
    """Return a Gemma-2 with a given number of layers; the model itself if it has that many.

    A shallower model keeps the first layers. A deeper one gets evenly spaced copies, each right
    after its source layer, whose two branches add nothing at first: Gemma-2 normalizes a branch
    with scale 1 + weight before adding it to the residual stream, so a weight of -1 silences it.
    (LLaMA Pro zeroes output projections; with Gemma-2's post-norm, that would give those
    projections gradients a thousand times larger than the others'.)
    """
    import torch

    if layers == model.config.num_hidden_layers:
        return model
    sources = layer_sources(model.config.num_hidden_layers, layers)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    config.layer_types = [model.config.layer_types[source] for source, _ in sources]
    weights = model.state_dict()
    kept = {name: value for name, value in weights.items() if ".layers." not in name}
    for position, (source, is_copy) in enumerate(sources):
        for part, value in model.model.layers[source].state_dict().items():
            silent = is_copy and part in SILENCED
            started = torch.full_like(value, -1.0) if silent else value
            kept[f"model.layers.{position}.{part}"] = started
    resized = type(model)(config)
    resized.load_state_dict(kept)
    return resized.to(model.dtype)


@dataclass(frozen=True)
class RewardConfig:
    """Hyperparameters of a reward model (ours)."""

    seed: int = 0
    steps: int = 1500
    batch_size: int = 64
    learning_rate: float = 5e-4
    warmup_steps: int = 50
    threads: int = 2  # compute threads; a different number rounds differently
    flipped: float = 0.1  # share of training labels that are wrong
    held_out: int = 2000  # pairs with true labels on which accuracy is measured
    reads: Literal["one answer", "two answers"] = "one answer"
    """`two answers` is a pairwise reward model."""
    layers: int = 4  # layers of the body; θ0 has four
    pairs: str = "preferences"
    """Name of the random stream that draws the training pairs."""
    pool_batches: int = 1
    """Batches per pool of pairs, which is batched by length; a pool of one keeps its order."""
    compiled: bool = False
    """Compile the graph if there is a C++ compiler; without one the bytes differ."""


_BASE = RewardConfig(pool_batches=16, compiled=True)

REWARD_MODELS: dict[str, RewardConfig] = {
    "pointwise": replace(_BASE, steps=3000),
    "pointwise_large": replace(_BASE, steps=4000, layers=6, pairs="preferences/pointwise_large"),
    "pairwise": replace(
        _BASE, steps=6000, layers=3, reads="two answers", pairs="preferences/pairwise"
    ),
    "pairwise_large": replace(
        _BASE, steps=9000, reads="two answers", pairs="preferences/pairwise_large"
    ),
}
"""The reward model of each role. Sizes and steps follow from a budget of ten minutes each on two
cores, not from any policy trained on them; the resulting accuracies are in the world's card."""


def fit_reward_model(
    config: RewardConfig,
    policy: Path,
    output: Path,
    on_step: Callable[[int, float], None] = lambda *_: None,
) -> None:
    """Train a reward model from the body of θ0 in the folder `policy`; save it in bfloat16."""
    import torch
    from transformers import AutoModelForSequenceClassification

    with training.reproducible(config.seed, config.threads) as device:
        model: Any = AutoModelForSequenceClassification.from_pretrained(
            policy, num_labels=1, dtype=torch.float32, attn_implementation="eager"
        )
        training.resize_names(model, training.LONG)
        model = with_layers(model, config.layers).to(device)
        margins: Callable[..., torch.Tensor] = reward_margins
        if config.reads == "two answers":
            from harness.models.loading import FIRST_IS_BETTER

            model.config.id2label = {0: FIRST_IS_BETTER}
            model.config.label2id = {FIRST_IS_BETTER: 0}
            order = random.Random(f"{config.seed}/{config.pairs}/order")
            margins = functools.partial(pair_margins, rng=order)
        descend = training.descent(model, config.learning_rate, config.warmup_steps, config.steps)
        forward = training.compiled(model) if config.compiled else model
        for step, pairs in zip(range(1, config.steps + 1), training_batches(config), strict=False):
            with torch.autocast(device, dtype=torch.bfloat16):
                leads = margins(forward, pairs, device)
            loss = -torch.nn.functional.logsigmoid(leads).mean()
            descend(loss)
            on_step(step, float(loss.detach()))
        model.to(torch.bfloat16).save_pretrained(output)
        lang.build_tokenizer().save_pretrained(output)


def training_batches(config: RewardConfig) -> Iterator[list[NoisyPair]]:
    rng = random.Random(f"{config.seed}/{config.pairs}")
    size = config.batch_size
    while True:
        pool = [draw_preference(rng, config.flipped) for _ in range(size * config.pool_batches)]
        starts = list(range(0, len(pool), size))
        if config.pool_batches > 1:
            pool.sort(key=lambda pair: sum(len(text.split()) for text in pair))
            rng.shuffle(starts)
        for start in starts:
            yield pool[start : start + size]


def held_out_pairs(config: RewardConfig) -> list[NoisyPair]:
    """Return unseen pairs with true labels, the same for all models of one seed."""
    rng = random.Random(f"{config.seed}/held-out preferences")
    return [draw_preference(rng, flipped=0.0) for _ in range(config.held_out)]


def in_order(folder: Path, config: RewardConfig, pairs: list[NoisyPair]) -> list[bool]:
    """Return, for each pair, whether a reward model prefers the chosen answer."""
    from harness.models.reward_model import CheckpointRewards, load_reward_model

    model = CheckpointRewards(load_reward_model(folder, config.reads))
    asked = [[{"role": "user", "content": p.prompt}] for p in pairs]
    rewards = model.score(asked, [[p.chosen, p.rejected] for p in pairs]).values
    return [bool(right) for right in rewards[:, 0] > rewards[:, 1]]


def reward_model_stage(ctx: StageContext) -> None:
    """Train a reward model on noisy preferences; writes `model/` and `log.json`."""
    fields: dict[str, Any] = {k: v for k, v in ctx.settings.items() if k != "policy"}
    # As in every worker: one thread, and nothing that depends on a compiler.
    config = RewardConfig(**fields, threads=1, compiled=False)
    history: list[dict[str, float]] = []

    def on_step(step: int, loss: float) -> None:
        history.append({"step": step, "loss": loss})
        ctx.report(step, {"loss": loss})

    policy = files.resolve(str(ctx.settings["policy"]))
    ctx.expect(config.steps)
    fit_reward_model(config, policy, ctx.output / "model", on_step)
    summary = {"steps": config.steps, "loss_last": history[-1]["loss"]}
    write_json(ctx.output / "log.json", {"history": history, "summary": summary})


@writes("scores")
def held_out_stage(ctx: StageContext) -> Result:
    """Evaluate a reward model on held-out pairs: 1 for each pair ranked correctly."""
    s = ctx.settings
    config = RewardConfig(seed=s["seed"], held_out=s["held_out"], reads=s["reads"])
    if "reward_model" in ctx.inputs:
        model = ctx.inputs["reward_model"] / "model"
    else:
        model = files.resolve(str(s["reward_model"]))
    right = in_order(model, config, held_out_pairs(config))
    rows = [
        {"prompt_id": f"pair{i:05d}", "column": ACCURACY, "value": float(is_right)}
        for i, is_right in enumerate(right)
    ]
    return rows, {"pairs": len(right), "right": sum(right)}


@writes("scores")
def best_of_n_stage(ctx: StageContext) -> Result:
    """Score each prompt's highest-reward answer with the judge; ties go to the first.

    The summary has the mean score of all answers and of the best ones, as reference points.
    """
    answers = read_rows(ctx.inputs["completions"] / "completions.parquet")
    ids, rewards = read_rewards(ctx.inputs["rewards"])
    scores = np.array([lang.score(row["prompt"], row["completion"]) for row in answers])
    scores = scores.reshape(rewards.shape)
    chosen = scores[np.arange(len(scores)), rewards.argmax(axis=1)]
    rows = [
        {"prompt_id": prompt_id, "column": BEST_OF_N, "value": float(value)}
        for prompt_id, value in zip(ids, chosen, strict=True)
    ]
    return rows, {
        "n": rewards.shape[1],
        "judge": ctx.settings["judge"],
        "chosen": float(chosen.mean()),
        "mean_answer": float(scores.mean()),
        "best_by_judge": float(scores.max(axis=1).mean()),
    }
