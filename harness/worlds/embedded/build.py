"""Building the embedded world from a seed: texts, θ0, the reward models and their cards.

The same seed on the same processor, thread count and library versions gives the same bytes;
elsewhere rounding differs, and the models' scores agree within `TOLERANCE`. How often each reward
model is right is measured when it is built, and stands in the world's card.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.runtime.manifest import cpu_model
from harness.worlds.embedded import reward, texts
from harness.worlds.embedded.files import VERSION, Card, digest, write_card
from harness.worlds.embedded.pretrain import PretrainConfig, pretrain
from harness.worlds.embedded.reward import RewardConfig


def accuracy(folder: Path, config: RewardConfig) -> dict[str, float]:
    """Measure how often a reward model orders held-out pairs as the oracle does."""
    right = reward.in_order(folder, config, reward.held_out_pairs(config))
    mean = fmean(right)
    error = math.sqrt(mean * (1 - mean) / len(right))
    return {"held_out_accuracy": round(mean, 4), "standard_error": round(error, 4)}


TEMPLATE = """---
license: apache-2.0
library_name: transformers
---

# {title} of the embedded world {version}

{text}

Gemma-2, {parameters:,} parameters, one token a word; made by `harness micro build`.
Digest {digest}.
Settings and what was measured stand in the world's `card.json`. It speaks no human language and is
of no use outside the harness.
"""

STANDS_FOR = {
    "pointwise": "ArmoRM-8B",
    "pointwise_large": "Skywork-27B",
    "pairwise": "PairRM-0.4B",
    "pairwise_large": "PairRM-8B",
}
"""The published reward model that each stands for."""


def write_model_card(folder: Path, title: str, text: str) -> None:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    parameters, own = sum(map(math.prod, shapes)), digest(folder)
    card = TEMPLATE.format(
        title=title, version=VERSION, text=text, parameters=parameters, digest=own
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


SEED = 0  # seed of the shipped world
POOL = 2400
"""Human prompts, matched and off-target ones: six iterations of the profile's x."""

PAIRWISE = {
    "arena_hard": (texts.HARD, 2000),
    "alpaca_eval": (texts.GENERAL, 800),
    "validation": (texts.HARD, 1500),
}

PER_CATEGORY = 40  # two-turn items in each of the eight categories
TOLERANCE = 0.03
"""Largest difference to expect, on another processor, in the mean oracle score of θ0's answers to
the validation prompts."""

OnEvent = Callable[[str], None]


def build(output: Path, seed: int = SEED, on_event: OnEvent = print) -> Card:
    """Build the world into a folder and write its card.

    `on_event` is told in a line what is being done, every few seconds.
    """
    output.mkdir(parents=True, exist_ok=True)
    import torch

    on_event("prompts and benchmarks")
    write_texts(output, seed)
    machine = {  # what the bytes of a trained model depend on besides its settings
        "processor": cpu_model(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "compiled": shutil.which("g++") is not None,
        **{name: version(name) for name in ("torch", "transformers")},
    }
    notes: dict[str, Any] = {"seed": seed, "tolerance": TOLERANCE, "machine": machine}
    notes["theta0"] = build_policy(output, seed, on_event)
    for role in reward.REWARD_MODELS:
        notes[f"rm_{role}"] = build_reward_model(role, output, seed, on_event)
    return write_card(output, notes)


def write_texts(output: Path, seed: int) -> None:
    """Write the pools of prompts and the benchmarks; no text is in two of them."""
    human = texts.draw_prompts("human", texts.HUMAN, seed, POOL)
    matched = texts.draw_prompts("matched", texts.MATCHED, seed, POOL, human)
    off_target = texts.draw_prompts("off_target", texts.OFF_TARGET, seed, POOL, [*human, *matched])
    texts.write_prompts(human, output / "prompts.parquet")
    texts.write_prompts(matched, output / "matched.parquet")
    texts.write_prompts(off_target, output / "off_target.parquet")
    taken = {*human, *matched, *off_target}
    for name, (distribution, count) in PAIRWISE.items():
        items = texts.pairwise_items(name, distribution, seed, count, taken)
        texts.write_items(items, output / f"{name}.parquet")
    texts.write_items(texts.two_turn_items(seed, PER_CATEGORY, taken), output / "mt_bench.parquet")


def build_policy(output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train θ0 into `theta0/`; return what the world's card says of it."""
    config, folder = PretrainConfig(seed=seed), output / "theta0"
    losses, on_step = _curve("θ0", config.steps, on_event)
    pretrain(config, folder, lambda step, loss, model: on_step(step, loss))
    text = "Trained on demonstrations by a fallible demonstrator."
    write_model_card(folder, "Base policy θ0", text)
    loss = round(fmean(losses[-100:]), 4)
    return {"settings": asdict(config), "loss": loss}


def build_reward_model(role: str, output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train the reward model of a role into `rm_<role>/`; return what the world's card says."""
    config, folder = replace(reward.REWARD_MODELS[role], seed=seed), output / f"rm_{role}"
    _, on_step = _curve(f"reward model {role}", config.steps, on_event)
    reward.fit_reward_model(config, output / "theta0", folder, on_step)
    text = (
        f"θ0's body, with {config.layers} layers and a scalar head that reads {config.reads}, "
        "trained on noisy preferences between attempts by the demonstrator. It stands for "
        f"{STANDS_FOR[role]}."
    )
    write_model_card(folder, f"Reward model {role}", text)
    found = accuracy(folder, config)
    on_event(f"reward model {role}: accuracy on held-out pairs {found['held_out_accuracy']:.3f}")
    return {"settings": asdict(config), **found}


def _curve(
    what: str, steps: int, on_event: OnEvent
) -> tuple[list[float], Callable[[int, float], None]]:
    """Return a list of losses, and the function that fills it and reports every fiftieth step."""
    losses: list[float] = []

    def on_step(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 50 == 0:
            on_event(f"{what}: step {step} of {steps}, loss {sum(losses[-50:]) / 50:.3f}")

    return losses, on_step
