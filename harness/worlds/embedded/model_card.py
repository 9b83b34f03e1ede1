"""The cards of the shipped models: what they are, how they were made, what they can do.

What a policy can do, by operation and by depth, is measured from six answers each when a world is
built, and written in the base policy's card, so that "competence is uneven across skills and falls
with depth" is a figure and not a hope.
"""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.runtime.provenance import cpu_model
from harness.worlds.embedded.demonstrations import word
from harness.worlds.embedded.language import MAX_DEPTH, Task, draw_items
from harness.worlds.embedded.operations import NAMES
from harness.worlds.embedded.oracle import score
from harness.worlds.embedded.pretrain import PretrainConfig
from harness.worlds.embedded.reward import RewardConfig
from harness.worlds.embedded.world import VERSION, digest

PROMPTS = 100
"""Prompts for each operation and for each depth."""

ANSWERS = 6
"""Answers sampled to each prompt, at temperature 1."""

Competence = dict[str, dict[str, dict[str, float]]]


def measure(policy: Path, seed: int) -> Competence:
    """Measure a policy.

    Args:
        policy: its folder.
        seed: seed of the prompts and of the answers.

    Returns:
        `operation` (single operations) and `depth` (1 to 4, operations drawn evenly), each with
        `exact` (share of answers that are wholly right), `score` (mean oracle score) and
        `best_of_6` (mean over prompts of the best score).
    """
    rng = random.Random(f"{seed}/competence")
    groups: dict[tuple[str, str], list[Task]] = {
        ("operation", name): [Task(draw_items(rng, 4, 8), (name,)) for _ in range(PROMPTS)]
        for name in NAMES
    }
    for depth in range(1, MAX_DEPTH + 1):
        groups["depth", str(depth)] = [
            Task(draw_items(rng, 4, 8), tuple(rng.choices(NAMES, k=depth))) for _ in range(PROMPTS)
        ]
    prompts = [word(task, rng) for tasks in groups.values() for task in tasks]
    scores = _oracle_scores(policy, prompts, seed).reshape(len(groups), PROMPTS, ANSWERS)
    found: Competence = {"operation": {}, "depth": {}}
    for (kind, name), block in zip(groups, scores, strict=True):
        found[kind][name] = {
            "exact": round(float((block == 1.0).mean()), 3),
            "score": round(float(block.mean()), 3),
            "best_of_6": round(float(block.max(axis=1).mean()), 3),
        }
    return found


def _oracle_scores(policy: Path, prompts: list[str], seed: int) -> NDArray[np.float64]:
    """Return the oracle scores of six answers to each prompt, shape (prompts, answers)."""
    from harness.models.policy import generate

    answers = generate(
        policy,
        [[{"role": "user", "content": prompt}] for prompt in prompts],
        n=ANSWERS,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=14,
        batch_size=256,
        seed=seed,
    )
    return np.array(
        [
            [score(prompt, answer.text) for answer in several]
            for prompt, several in zip(prompts, answers, strict=True)
        ]
    )


def as_lines(competence: Competence) -> str:
    """Return the figures as Markdown tables, for a model card."""
    lines: list[str] = []
    for kind, rows in competence.items():
        lines += [f"| {kind} | exact | score | best of 6 |", "|---|---:|---:|---:|"]
        lines += [
            f"| {name} | {row['exact']:.2f} | {row['score']:.2f} | {row['best_of_6']:.2f} |"
            for name, row in rows.items()
        ]
        lines.append("")
    return "\n".join(lines)


TEMPLATE = """---
license: apache-2.0
library_name: transformers
---

# {title} of the embedded world {version}

{text}

- architecture: Gemma-2, {parameters:,} parameters, one token a word
- made by: `harness micro build`, seed {seed}, in {seconds:.0f} s
- settings: {settings}
- digest: {digest}

{figures}

It speaks no human language and is of no use outside the harness.
"""

REWARD_MODELS = {
    "pointwise": (
        "Pointwise reward model",
        "θ0's body with a scalar head, trained on noisy preferences between attempts by the "
        "demonstrator. It stands for ArmoRM-8B.",
    ),
    "pointwise_large": (
        "Large pointwise reward model",
        "θ0's body, grown by copies of layers that start silent, with a scalar head, trained on "
        "noisy preferences between attempts by the demonstrator. It stands for Skywork-27B.",
    ),
    "pairwise": (
        "Pairwise reward model",
        "θ0's first layers with a scalar head that says how much better the first of two answers "
        "is than the second, trained on noisy preferences between attempts by the demonstrator. "
        "It stands for PairRM-0.4B.",
    ),
    "pairwise_large": (
        "Large pairwise reward model",
        "θ0's body with a scalar head that says how much better the first of two answers is than "
        "the second, trained on noisy preferences between attempts by the demonstrator. It stands "
        "for PairRM-8B.",
    ),
}
"""Title and description of the reward model of each role."""


def machine() -> dict[str, Any]:
    """Return what the bytes of a trained model depend on besides its settings."""
    import torch

    return {
        "processor": cpu_model(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "compiled": shutil.which("g++") is not None,
        **{name: version(name) for name in ("torch", "transformers")},
    }


def describe_policy(
    folder: Path, config: PretrainConfig, loss: float, seconds: float
) -> dict[str, Any]:
    """Measure θ0, write its model card, and return what the world's card says of it."""
    competence = measure(folder, config.seed)
    text = (
        "Trained on demonstrations by a fallible demonstrator. What it can do was measured on 100 "
        "prompts for each operation and depth, six answers each at temperature 1: `exact` is the "
        "share of wholly right answers, `score` the mean partial credit, `best of 6` the mean over "
        "prompts of the best of six."
    )
    figures = f"{as_lines(competence)}\nTraining loss at the end: {loss:.3f}"
    settings = asdict(config)
    _write(folder, "Base policy θ0", text, settings, figures, seconds)
    return {"settings": settings, "loss": round(loss, 4), "competence": competence}


def describe_reward_model(
    role: str, folder: Path, config: RewardConfig, accuracy: float, seconds: float
) -> dict[str, Any]:
    """Write a reward model's card, and return what the world's card says of it."""
    title, text = REWARD_MODELS[role]
    error = math.sqrt(accuracy * (1 - accuracy) / config.held_out)
    figures = (
        f"Accuracy on {config.held_out} held-out pairs with true labels: {accuracy:.3f}, standard "
        f"error {error:.3f} ({config.flipped:.0%} of the training labels were flipped)."
    )
    settings = asdict(config)
    _write(folder, title, text, settings, figures, seconds)
    return {
        "settings": settings,
        "held_out_accuracy": round(accuracy, 4),
        "standard_error": round(error, 4),
    }


def _write(
    folder: Path, title: str, text: str, settings: dict[str, Any], figures: str, seconds: float
) -> None:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    card = TEMPLATE.format(
        title=title,
        version=VERSION,
        text=text,
        parameters=sum(_size(shape) for shape in shapes),
        seed=settings["seed"],
        seconds=seconds,
        settings=", ".join(f"{key} {value}" for key, value in settings.items()),
        digest=digest(folder),
        figures=figures,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _size(shape: list[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size
