"""Building the embedded world from a seed: prompts, benchmarks, θ0 and the reward model.

The same seed on the same processor, thread count and library versions gives the same bytes;
elsewhere rounding differs, and the models' scores agree within `TOLERANCE`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.micro.benchmarks import write_items, write_prompts
from harness.micro.pretrain import PretrainConfig, pretrain
from harness.micro.reward import RewardConfig, train_reward_model
from harness.micro.sources import GENERAL, HARD, human_prompts, pairwise_items, two_turn_items
from harness.micro.world import VERSION, Card, write_card

SEED = 0
"""Seed of the shipped world."""

POOL = 6000
"""Human prompts: six iterations of the profile's x."""

PAIRWISE = {"arena_hard": (HARD, 500), "alpaca_eval": (GENERAL, 400), "validation": (HARD, 500)}
"""Distribution and number of items of each pairwise benchmark."""

PER_CATEGORY = 20
"""Two-turn items in each of the eight categories."""

TOLERANCE = 0.03
"""Largest difference in mean oracle score to expect of a θ0 rebuilt on another processor."""

OnEvent = Callable[[str], None]

MODEL_CARD = """---
license: apache-2.0
library_name: transformers
---

# {title} of the embedded world {version}

{text}

- architecture: Gemma-2, {parameters:,} parameters, one token a word
- made by: `harness micro build`, seed {seed}, {seconds:.0f} s
- settings: {settings}
{figures}
It speaks no human language and is of no use outside the harness.
"""


def build(output: Path, seed: int = SEED, on_event: OnEvent = print) -> Card:
    """Build the world into a folder and write its card (without the gates' measurements).

    Args:
        output: folder to write to, made if need be.
        seed: seed of everything.
        on_event: told in a line what is being done, every few seconds.
    """
    output.mkdir(parents=True, exist_ok=True)
    on_event("prompts and benchmarks")
    write_texts(output, seed)
    notes: dict[str, Any] = {"seed": seed, "tolerance": TOLERANCE}
    notes["theta0"] = build_policy(output, seed, on_event)
    notes["rm_pointwise"] = build_reward_model(output, seed, on_event)
    return write_card(output, notes)


def write_texts(output: Path, seed: int) -> None:
    """Write the pool of human prompts and the benchmarks; no text is in two of them."""
    pool = human_prompts(seed, POOL)
    write_prompts(pool, output / "prompts.parquet")
    taken = set(pool)
    for name, (distribution, count) in PAIRWISE.items():
        items = pairwise_items(name, distribution, seed, count, taken)
        write_items(items, output / f"{name}.parquet")
    write_items(two_turn_items(seed, PER_CATEGORY, taken), output / "mt_bench.parquet")


def build_policy(output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train θ0 into `theta0/` and return what its card says."""
    config = PretrainConfig(seed=seed)
    losses: list[float] = []
    start = time.monotonic()

    def on_step(step: int, loss: float, model: Any) -> None:
        losses.append(loss)
        if step % 50 == 0:
            on_event(f"θ0: step {step} of {config.steps}, loss {sum(losses[-50:]) / 50:.3f}")

    pretrain(config, output / "theta0", on_step)
    notes = {"settings": asdict(config), "loss": round(sum(losses[-100:]) / 100, 4)}
    _write_model_card(
        output / "theta0",
        "Base policy θ0",
        "Trained on demonstrations by a fallible demonstrator, its competence is uneven across "
        "skills and falls with depth.",
        notes,
        f"- training loss at the end: {notes['loss']}\n",
        time.monotonic() - start,
    )
    return notes


def build_reward_model(output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train the pointwise reward model into `rm_pointwise/` and return what its card says."""
    config = RewardConfig(seed=seed)
    start = time.monotonic()

    def on_step(step: int, loss: float) -> None:
        if step % 50 == 0:
            on_event(f"reward model: step {step} of {config.steps}, loss {loss:.3f}")

    target = output / "rm_pointwise"
    accuracy = train_reward_model(config, output / "theta0", target, on_step)
    notes = {"settings": asdict(config), "held_out_accuracy": round(accuracy, 4)}
    _write_model_card(
        target,
        "Pointwise reward model",
        "θ0's body with a scalar head, trained on noisy preferences; it stands for ArmoRM-8B.",
        notes,
        f"- accuracy on {config.held_out} held-out pairs with true labels: {accuracy:.3f}\n",
        time.monotonic() - start,
    )
    return notes


def _write_model_card(
    folder: Path, title: str, text: str, notes: dict[str, Any], figures: str, seconds: float
) -> None:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    settings = notes["settings"]
    card = MODEL_CARD.format(
        title=title,
        version=VERSION,
        text=text,
        parameters=sum(_size(shape) for shape in shapes),
        seed=settings["seed"],
        seconds=seconds,
        settings=", ".join(f"{key} {value}" for key, value in settings.items()),
        figures=figures,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _size(shape: list[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size
