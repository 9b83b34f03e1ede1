"""Building the embedded world from a seed: texts, θ0, the reward models and their cards.

The same seed on the same processor, thread count and library versions gives the same bytes;
elsewhere rounding differs, and the models' scores agree within `TOLERANCE`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.errors import HarnessError
from harness.worlds.embedded.cards import describe_policy, describe_reward_model, machine
from harness.worlds.embedded.files import VERSION, Card, read_card, write_card
from harness.worlds.embedded.pretrain import PretrainConfig, pretrain
from harness.worlds.embedded.reward import REWARD_MODELS, fit_reward_model
from harness.worlds.embedded.texts import (
    GENERAL,
    HARD,
    HUMAN,
    MATCHED,
    draw_prompts,
    pairwise_items,
    two_turn_items,
    write_items,
    write_prompts,
)

SEED = 0
"""Seed of the shipped world."""

POOL = 2400
"""Human prompts, and matched ones: six iterations of the profile's x."""

PAIRWISE = {"arena_hard": (HARD, 2000), "alpaca_eval": (GENERAL, 800), "validation": (HARD, 1500)}
"""Distribution and number of items of each pairwise benchmark."""

PER_CATEGORY = 40
"""Two-turn items in each of the eight categories."""

TOLERANCE = 0.03
"""Largest difference to expect, on another processor, in the mean oracle score of θ0's answers to
the validation prompts."""

OnEvent = Callable[[str], None]


def build(output: Path, seed: int = SEED, on_event: OnEvent = print) -> Card:
    """Build the world into a folder and write its card.

    `on_event` is told in a line what is being done, every few seconds.
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

    Without roles, those that its card does not have; no other file of the folder is changed.

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
    """Write both pools of prompts and the benchmarks; no text is in two of them."""
    human = draw_prompts("human", HUMAN, seed, POOL)
    matched = draw_prompts("matched", MATCHED, seed, POOL, human)
    write_prompts(human, output / "prompts.parquet")
    write_prompts(matched, output / "matched.parquet")
    taken = {*human, *matched}
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
    loss = fmean(losses[-100:])
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
    fit_reward_model(config, output / "theta0", target, on_step)
    noted = describe_reward_model(role, target, config, time.monotonic() - start)
    on_event(f"reward model {role}: accuracy on held-out pairs {noted['held_out_accuracy']:.3f}")
    return noted
