"""Builds the embedded world from a seed: texts, θ0, the reward models and their cards.

The same seed, processor, thread count and library versions give the same bytes. Elsewhere rounding
differs, and the models' scores agree within `TOLERANCE`.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from harness.eva.evolving import Prompt, evolve
from harness.runtime.manifest import cpu_model
from harness.worlds.embedded import choosing, reward, texts
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.creator import EmbeddedCreator
from harness.worlds.embedded.files import VERSION, Card, digest, write_card
from harness.worlds.embedded.language import Task
from harness.worlds.embedded.pretrain import PretrainConfig, pretrain
from harness.worlds.embedded.reward import RewardConfig

PROMPTS, ANSWERS = 100, 6
"""Prompts per measured group, and answers sampled per prompt, at temperature 1."""

EIGHTHS = 8  # number of groups of names by rank

Competence = dict[str, dict[str, dict[str, float]]]


def measure(policy: Path, seed: int) -> Competence:
    """Evaluate a policy by the rank of names and by depth: exact, oracle score and best of 6."""
    rng = random.Random(f"{seed}/competence")
    size = len(texts.RANKED) // EIGHTHS
    names = {
        f"{at + 1} to {at + size}": texts.RANKED[at : at + size]
        for at in range(0, len(texts.RANKED), size)
    }
    groups = [("ranks", label, 1, some) for label, some in names.items()]
    groups += [("depth", str(depth), depth, texts.RANKED) for depth in range(1, lang.MAX_DEPTH + 1)]
    prompts = [
        texts.word(Task(lang.draw_items(rng, 4, 6), tuple(rng.choices(some, k=depth))), rng)
        for _, _, depth, some in groups
        for _ in range(PROMPTS)
    ]
    answers = zip(prompts, _answers(policy, prompts, seed), strict=True)
    scores = np.array([[lang.score(prompt, text) for text in own] for prompt, own in answers])
    found: Competence = {"ranks": {}, "depth": {}}
    for (kind, label, _, _), block in zip(groups, np.split(scores, len(groups)), strict=True):
        found[kind][label] = {
            "exact": round(float((block == 1.0).mean()), 3),
            "score": round(float(block.mean()), 3),
            "best_of_6": round(float(block.max(axis=1).mean()), 3),
        }
    return found


def _answers(policy: Path, prompts: Sequence[str], seed: int) -> list[list[str]]:
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
    return [[answer.text for answer in several] for several in answers]


def accuracy(folder: Path, config: RewardConfig) -> dict[str, float]:
    """Measure how often a reward model agrees with the oracle on held-out pairs."""
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
"""The published reward model that each role stands in for."""


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
"""Size of each of the human, matched and off-target pools: six iterations of the profile's x."""

PAIRWISE = {
    "arena_hard": (texts.HARD, 2000),
    "alpaca_eval": (texts.GENERAL, 800),
    "validation": (texts.HARD, 1500),
}

PER_CATEGORY = 40  # two-turn items in each of the eight categories
TOLERANCE = 0.03
"""Largest difference between processors in θ0's mean oracle score on the validation prompts."""

OnEvent = Callable[[str], None]


def build(output: Path, seed: int = SEED, on_event: OnEvent = print) -> Card:
    """Build the world into a folder and write its card."""
    output.mkdir(parents=True, exist_ok=True)
    import torch

    on_event("prompts and benchmarks")
    write_texts(output, seed)
    machine = {  # what a trained model's bytes depend on besides its settings
        "processor": cpu_model(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "compiled": shutil.which("g++") is not None,
        **{name: version(name) for name in ("torch", "transformers")},
    }
    notes: dict[str, Any] = {"seed": seed, "tolerance": TOLERANCE, "machine": machine}
    notes["theta0"] = build_policy(output, seed, on_event)
    notes["creator"] = measure_creator(output, seed)
    for role in reward.REWARD_MODELS:
        notes[f"rm_{role}"] = build_reward_model(role, output, seed, on_event)
    return write_card(output, notes)


def write_texts(output: Path, seed: int) -> None:
    """Write the prompt pools and the benchmarks; no text is in two of them."""
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
    """Train θ0 into `theta0/`; return its notes for the world's card."""
    config, folder = PretrainConfig(seed=seed), output / "theta0"
    losses, on_step = _curve("θ0", config.steps, on_event)
    pretrain(config, folder, on_step)
    text = "Trained on demonstrations by a fallible demonstrator."
    write_model_card(folder, "Base policy θ0", text)
    loss = round(fmean(losses[-100:]), 4)
    return {"settings": asdict(config), "loss": loss, "competence": measure(folder, config.seed)}


def build_reward_model(role: str, output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train a role's reward model into `rm_<role>/`; return its notes for the world's card."""
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


def measure_creator(output: Path, seed: int) -> dict[str, float]:
    """Measure how much rewrites keep of their parents, and how well a parent predicts them.

    Every human prompt is evolved once, as in an iteration of eva.

    Returns:
        `kept`: share of a rewrite's names that occur in the text it rewrote; `kept_or_topic`:
        those plus names from that text's topic; `kept_of_first`, `topic_of_first`: the same for
        the human prompt at the start of the chain. `names`: mean number of names per rewrite.
        `teaches_alike`: Spearman correlation between a human prompt's teachability (of its names,
        for θ0) and its rewrites' mean; `right_alike`: the same for the share of correct answers.
    """
    from scipy.stats import spearmanr

    human = {f"h{i}": text for i, text in enumerate(texts.read_prompts(output / "prompts.parquet"))}
    starts = [Prompt(key, text) for key, text in human.items()]
    made = evolve(starts, EmbeddedCreator(), evolutions=4, retries=2, seed=seed).prompts
    text_of = human | {child.prompt_id: child.prompt for child in made}
    counts: dict[str, list[float]] = {}
    for child in made:
        own = choosing.names_of(child.prompt)
        before = {"": child.parent_id or "", "_of_first": child.prompt_id.split(".")[0]}
        for suffix, key in before.items():
            task = lang.parse(text_of[key])
            assert task is not None
            kept = [name in task.names for name in own]
            topic = [texts.TOPIC_OF[name] == texts.topic_of(task) for name in own]
            counts.setdefault(f"kept{suffix}", []).extend(kept)
            label = "topic_of_first" if suffix else "kept_or_topic"
            counts.setdefault(label, []).extend(a or b for a, b in zip(kept, topic, strict=True))
        counts.setdefault("names", []).append(len(own))
    prompts = choosing.probe_prompts()
    right = choosing.right_by_name(prompts, _answers(output / "theta0", prompts, seed))
    taught = choosing.taught_by_name(right)
    alike = {}
    for label, value in (("teaches_alike", taught), ("right_alike", right)):
        children: dict[str, list[float]] = {}
        for child in made:
            mean = choosing.mean_taught(choosing.names_of(child.prompt), value)
            children.setdefault(child.prompt_id.split(".")[0], []).append(mean)
        parents = [choosing.mean_taught(choosing.names_of(human[key]), value) for key in children]
        alike[label] = float(spearmanr(parents, [fmean(own) for own in children.values()])[0])
    found = {label: fmean(values) for label, values in counts.items()} | alike
    return {label: round(value, 3) for label, value in found.items()}


def _curve(
    what: str, steps: int, on_event: OnEvent
) -> tuple[list[float], Callable[[int, float], None]]:
    """Return a list of losses, and a callback that fills it and reports every 50 steps."""
    losses: list[float] = []

    def on_step(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 50 == 0:
            on_event(f"{what}: step {step} of {steps}, loss {sum(losses[-50:]) / 50:.3f}")

    return losses, on_step
