"""Building the embedded world from a seed: texts, θ0, the reward models and their cards.

The same seed on the same processor, thread count and library versions gives the same bytes;
elsewhere rounding differs, and the models' scores agree within `TOLERANCE`.

What a policy can do, by operation and by depth, is measured from six answers each when a world is
built, and written in the base policy's card, so that "competence is uneven across skills and falls
with depth" is a figure and not a hope.
"""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import HarnessError
from harness.runtime.provenance import cpu_model
from harness.worlds.embedded.files import VERSION, Card, digest, read_card, write_card
from harness.worlds.embedded.language import MAX_DEPTH, NAMES, Task, draw_items, score
from harness.worlds.embedded.pretrain import PretrainConfig, pretrain
from harness.worlds.embedded.reward import REWARD_MODELS, RewardConfig, train_reward_model
from harness.worlds.embedded.texts import (
    GENERAL,
    HARD,
    human_prompts,
    pairwise_items,
    two_turn_items,
    word,
    write_items,
    write_prompts,
)

SEED = 0
"""Seed of the shipped world."""

POOL = 6000
"""Human prompts: six iterations of the profile's x."""

PAIRWISE = {"arena_hard": (HARD, 500), "alpaca_eval": (GENERAL, 400), "validation": (HARD, 1500)}
"""Distribution and number of items of each pairwise benchmark."""

PER_CATEGORY = 20
"""Two-turn items in each of the eight categories."""

TOLERANCE = 0.03
"""Largest difference to expect, on another processor, in the mean oracle score of θ0's answers to
the validation prompts (`mean_answer` of the gates)."""

OnEvent = Callable[[str], None]


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
    notes: dict[str, Any] = {"seed": seed, "tolerance": TOLERANCE, "machine": machine()}
    notes["theta0"] = build_policy(output, seed, on_event)
    for role in REWARD_MODELS:
        notes[f"rm_{role}"] = build_reward_model(role, output, seed, on_event)
    return write_card(output, notes)


def add_reward_models(
    folder: Path, roles: Iterable[str] = (), seed: int = SEED, on_event: OnEvent = print
) -> Card:
    """Train reward models of a world that is there, and write its card anew.

    Args:
        folder: folder of the world, with θ0 and its card; no other file of it is changed.
        roles: reward models to train; none named, those that its card does not have.
        seed: seed of the trainings.
        on_event: told in a line what is being done, every few seconds.

    Raises:
        HarnessError: the folder has no card, or one of another version.
        KeyError: no such role.
    """
    card = read_card(folder)
    if card.version != VERSION:
        raise HarnessError(
            f"the world in {folder} is {card.version} and this code is that of {VERSION}; "
            "build it anew with `harness micro build`"
        )
    missing = [role for role in REWARD_MODELS if f"rm_{role}" not in card.assets]
    notes, names = dict(card.notes), set(card.assets)
    for role in tuple(roles) or missing:
        notes[f"rm_{role}"] = build_reward_model(role, folder, seed, on_event)
        names.add(f"rm_{role}")
    return write_card(folder, notes, names)


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

    folder = output / "theta0"
    pretrain(config, folder, on_step)
    loss = sum(losses[-100:]) / 100
    return describe_policy(folder, config, loss, time.monotonic() - start)


def build_reward_model(role: str, output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train the reward model of a role into `rm_<role>/` and return what its card says."""
    config = replace(REWARD_MODELS[role], seed=seed)
    losses: list[float] = []
    start = time.monotonic()

    def on_step(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 50 == 0:
            mean = sum(losses[-50:]) / 50
            on_event(f"reward model {role}: step {step} of {config.steps}, loss {mean:.3f}")

    target = output / f"rm_{role}"
    accuracy = train_reward_model(config, output / "theta0", target, on_step)
    on_event(f"reward model {role}: accuracy on held-out pairs {accuracy:.3f}")
    return describe_reward_model(role, target, config, accuracy, time.monotonic() - start)


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

DESCRIPTIONS = {
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
    title, text = DESCRIPTIONS[role]
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
