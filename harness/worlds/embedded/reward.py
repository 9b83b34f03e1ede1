"""Training the world's reward models on noisy preferences over demonstrations.

A reward model is θ0's body, cut or grown to a number of layers, with a scalar head. It learns
from pairs of attempts by the fallible demonstrator, labelled by the oracle with a tenth of the
labels flipped, as human preferences are. It is therefore neither the oracle nor blind: how good it
is, is measured on held-out pairs and written in its card.

A pointwise model gives each answer a reward of its own and learns that the chosen one's is the
higher; a pairwise model reads both answers at once and learns which of them is the chosen one.
Both minimise -log sigmoid(margin), where the margin is the difference of the rewards or the logit.

*Layers.* A trained model is made shallower or deeper without training it from scratch. A shallower
model keeps the first layers. A deeper one gets copies of layers, evenly spread, each right behind
the layer it copies, whose two branches (attention and feed-forward) add nothing at first: Gemma-2
normalises a branch before adding it to the residual stream, with scale 1 + weight, so a weight of
-1 silences it. The deeper model therefore starts as the very function that the original computes,
and the copies join in as training moves their scales off zero.

Source: the Bradley-Terry loss of the paper's reward models (ArmoRM's and Skywork's reports), and
its pairwise form (PairRM's); block expansion of LLaMA Pro (Wu et al., 2024), which zeroes output
projections instead; behind Gemma-2's normalisation that would give those projections gradients a
thousand times the others'.
"""

from __future__ import annotations

import copy
import functools
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.worlds.embedded.pairwise import (
    Preference,
    draw_preference,
    pair_margins,
    pairs_in_order,
)
from harness.worlds.embedded.pretrain import descent, encode, padded, reproducible
from harness.worlds.embedded.tokenizer import PAD, build_tokenizer, token_ids

if TYPE_CHECKING:
    import torch

SILENCED = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")
"""Parameters of a copied layer that start at -1."""

LAYERS = "model.layers."


def layer_sources(have: int, want: int) -> list[tuple[int, bool]]:
    """Return, for each layer of the model wanted, the layer it comes from and if it is an extra.

    Args:
        have: layers of the original.
        want: layers of the result.
    """
    if want <= have:
        return [(layer, False) for layer in range(want)]
    extra = want - have
    copied = [math.ceil(k * have / extra) - 1 for k in range(1, extra + 1)]
    return [
        (layer, is_copy)
        for layer in range(have)
        for is_copy in (False, *(True for source in copied if source == layer))
    ]


def with_layers(model: Any, layers: int) -> Any:
    """Return a Gemma-2 with a given number of layers; the model itself if it has that many.

    Args:
        model: a Gemma-2 with any head, on the CPU.
        layers: number of layers wanted, 1 or more.
    """
    import torch

    if layers == model.config.num_hidden_layers:
        return model
    sources = layer_sources(model.config.num_hidden_layers, layers)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    config.layer_types = [model.config.layer_types[source] for source, _ in sources]
    weights = model.state_dict()
    kept = {name: value for name, value in weights.items() if not name.startswith(LAYERS)}
    for position, (source, is_copy) in enumerate(sources):
        prefix = f"{LAYERS}{source}."
        for name, value in weights.items():
            if name.startswith(prefix):
                part = name.removeprefix(prefix)
                silent = is_copy and part in SILENCED
                started = torch.full_like(value, -1.0) if silent else value
                kept[f"{LAYERS}{position}.{part}"] = started
    resized = type(model)(config)
    resized.load_state_dict(kept)
    return resized.to(model.dtype)


Margins = Callable[[Any, list[Preference], str], "torch.Tensor"]
"""By how much a model prefers the chosen answer of each pair: (model, pairs, device) -> (pairs,)"""


@dataclass(frozen=True)
class RewardConfig:
    """Settings of a reward model's training (ours)."""

    seed: int = 0
    steps: int = 1500
    batch_size: int = 64
    learning_rate: float = 5e-4
    warmup_steps: int = 50
    threads: int = 2
    """Compute threads; another number rounds differently."""
    flipped: float = 0.1
    """Share of training labels that are wrong."""
    held_out: int = 2000
    """Pairs that accuracy is measured on, with true labels."""
    reads: Literal["one answer", "two answers"] = "one answer"
    """Two answers: a pairwise reward model."""
    layers: int = 4
    """Layers of the body; θ0 has four."""
    pairs: str = "preferences"
    """Name of the stream of random numbers that draws the training pairs."""
    pool_batches: int = 1
    """Pairs are drawn in pools of so many batches and batched by length, to waste little on
    padding; a pool of one batch keeps its order."""
    compiled: bool = False
    """Compile the graph where there is a C++ compiler; without one the bytes differ."""


REWARD_MODELS: dict[str, RewardConfig] = {
    "pointwise": RewardConfig(),
    "pointwise_large": RewardConfig(
        steps=2500,
        layers=6,
        pairs="preferences/pointwise_large",
        pool_batches=16,
        compiled=True,
    ),
    "pairwise": RewardConfig(
        steps=3000,
        reads="two answers",
        layers=2,
        pairs="preferences/pairwise",
        pool_batches=16,
        compiled=True,
    ),
    "pairwise_large": RewardConfig(
        steps=4000,
        reads="two answers",
        pairs="preferences/pairwise_large",
        pool_batches=16,
        compiled=True,
    ),
}
"""The reward model of each role. Sizes and steps are set by a budget of ten minutes each on two
cores; the accuracy and time that came of them are in the cards. No policy trained on them had a
say."""


def train_reward_model(
    config: RewardConfig,
    policy: Path,
    output: Path,
    on_step: Callable[[int, float], None] | None = None,
) -> float:
    """Train a reward model and save it with its tokenizer (bfloat16 safetensors).

    Args:
        config: settings.
        policy: folder of θ0, whose body it starts from.
        output: folder to write to.
        on_step: called with the step and the loss after every step.

    Returns:
        Accuracy on held-out pairs with true labels, of the saved weights.
    """
    fit_reward_model(config, policy, output, on_step)
    return held_out_accuracy(output, config)


def fit_reward_model(
    config: RewardConfig,
    policy: Path,
    output: Path,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train a reward model as `train_reward_model` does, and measure nothing."""
    with reproducible(config.seed, config.threads) as device:
        _train(config, policy, output, device, on_step)


def _train(
    config: RewardConfig,
    policy: Path,
    output: Path,
    device: str,
    on_step: Callable[[int, float], None] | None,
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    model: Any = AutoModelForSequenceClassification.from_pretrained(
        policy, num_labels=1, dtype=torch.float32, attn_implementation="eager"
    )
    model = with_layers(model, config.layers).to(device)
    margins = _margins(config, model)
    descend = descent(model, config.learning_rate, config.warmup_steps, config.steps)
    compiled = config.compiled and shutil.which("g++") is not None
    forward = torch.compile(model, dynamic=True) if compiled else model
    for step, pairs in zip(range(1, config.steps + 1), training_batches(config), strict=False):
        with torch.autocast(device, dtype=torch.bfloat16):
            leads = margins(forward, pairs, device)
        loss = -torch.nn.functional.logsigmoid(leads).mean()
        descend(loss)
        if on_step is not None:
            on_step(step, float(loss.detach()))
    model.to(torch.bfloat16).save_pretrained(output)
    build_tokenizer().save_pretrained(output)


def training_batches(config: RewardConfig) -> Iterator[list[Preference]]:
    """Yield batches of noisy preferences without end."""
    rng = random.Random(f"{config.seed}/{config.pairs}")
    size = config.batch_size
    while True:
        pool = [draw_preference(rng, config.flipped) for _ in range(size * config.pool_batches)]
        starts = list(range(0, len(pool), size))
        if config.pool_batches > 1:
            pool.sort(key=_words)
            rng.shuffle(starts)
        for start in starts:
            yield pool[start : start + size]


def _words(pair: Preference) -> int:
    """Return how long a pair is to read."""
    return sum(len(text.split()) for text in (pair.prompt, pair.chosen, pair.rejected))


def held_out_accuracy(folder: Path, config: RewardConfig) -> float:
    """Return the share of held-out pairs that a saved reward model orders as the oracle does."""
    return sum(held_out_in_order(folder, config)) / config.held_out


def held_out_in_order(folder: Path, config: RewardConfig) -> list[bool]:
    """Return of each held-out pair whether a saved reward model orders it as the oracle does.

    The pairs depend on the seed and on how many they are, so that models of one seed have the same.
    """
    parts = _parts(random.Random(f"{config.seed}/held-out preferences"), config)
    if config.reads == "two answers":
        return pairs_in_order(folder, [pair for part in parts for pair in part])
    return _rewarded_in_order(folder, parts)


def _rewarded_in_order(folder: Path, parts: Iterator[list[Preference]]) -> list[bool]:
    """Return of each pair whether its chosen answer gets the higher reward."""
    import torch
    from transformers import AutoModelForSequenceClassification

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).to(device)
    model.eval()
    with torch.inference_mode():
        margins = torch.cat([reward_margins(model, pairs, device) for pairs in parts])
    return [bool(right) for right in (margins > 0).tolist()]


def _parts(rng: random.Random, config: RewardConfig) -> Iterator[list[Preference]]:
    for start in range(0, config.held_out, config.batch_size):
        count = min(config.batch_size, config.held_out - start)
        yield [draw_preference(rng, flipped=0.0) for _ in range(count)]


def _margins(config: RewardConfig, model: Any) -> Margins:
    """Return what the model is trained by, and name its output if it is a pairwise one."""
    if config.reads == "one answer":
        return reward_margins
    from harness.models.loading import FIRST_IS_BETTER

    model.config.id2label = {0: FIRST_IS_BETTER}
    model.config.label2id = {FIRST_IS_BETTER: 0}
    return functools.partial(pair_margins, rng=random.Random(f"{config.seed}/{config.pairs}/order"))


def reward_margins(model: torch.nn.Module, pairs: list[Preference], device: str) -> torch.Tensor:
    """Return each chosen answer's reward minus the rejected one's, shape (pairs,)."""
    ids = token_ids()
    rows = [encode([(p.prompt, p.chosen)], ids)[0] for p in pairs]
    rows += [encode([(p.prompt, p.rejected)], ids)[0] for p in pairs]
    tokens, mask = (part.to(device) for part in padded(rows, ids[PAD]))
    logits: torch.Tensor = model(input_ids=tokens, attention_mask=mask).logits
    chosen, rejected = logits[:, 0].float().chunk(2)
    return chosen - rejected
