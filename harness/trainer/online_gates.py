"""The gate of online training, and what happens beyond it.

*The gate* decides RLOO's learning rate and KL coefficient, with which OAIF trains as well. RLOO 1x
on human prompts is run over a small grid, on validation prompts and over seeds that no table uses,
and its gain in mean oracle score over the base policy is measured. Of the pairs that gain within
one standard error of the best, the most careful one is taken: the largest KL coefficient, then the
smallest learning rate. No run of eva is looked at.

*Over-optimisation.* A learned reward can be pushed beyond what it knows. One run shows it on
purpose: RLOO without a KL penalty at a large learning rate on all human prompts. At each x of
prompts the policy answers the validation prompts six times, and both the reward model and the
oracle score the answers: the first goes on rising where the second falls.

Source: paper appendix A names neither number; Gao et al. 2023 on over-optimisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from harness.catalogue.recipe import Online, Recipe
from harness.store import Json, Stage, Store
from harness.trainer.assets import assets_of
from harness.trainer.gates import OnEvent, compute, validation_profile
from harness.trainer.grid import Point, as_good_as_the_best, measure_grid, unlike, with_training
from harness.trainer.plan import Planner
from harness.worlds.embedded.oracle import score as oracle_score
from harness.worlds.stage_io import read_prompts

LEARNING_RATES = (3e-5, 1e-4, 3e-4)
BETAS = (0.05, 0.2)
PUSHED_LEARNING_RATE, PUSHED_SIZE, PUSHED_SEED = 3e-4, 6, 100


@dataclass(frozen=True)
class Pushed:
    """The over-optimised policy after some multiples of x: mean reward and mean oracle score."""

    size: int
    reward: float
    oracle: float

    def as_json(self) -> dict[str, Any]:
        """Return the measurements, rounded for the card."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def rloo(size: int) -> Recipe:
    """Return RLOO on human prompts."""
    return Recipe(algorithm="rloo", online=Online(prompts="human", size=size))


def measure_online(store: Store, jobs: int, on_event: OnEvent) -> list[Point]:
    """Run RLOO 1x over the grid and measure it; the best pair first.

    Raises:
        HarnessError: a stage failed.
    """
    grid = [{"learning_rate": lr, "beta": beta} for lr in LEARNING_RATES for beta in BETAS]
    points = measure_grid({"rloo": rloo(1)}, {"rloo": grid}, store, jobs, on_event)
    return sorted(points, key=lambda point: -point.gain)


def chosen(points: Sequence[Point]) -> Point:
    """Return the most careful pair that gains within one standard error of the best."""
    near = as_good_as_the_best(points)
    return min(near, key=lambda point: (-point.changes["beta"], point.changes["learning_rate"]))


def failures(points: Sequence[Point]) -> list[str]:
    """Return where the profile's settings do not follow from the gate, each as a sentence."""
    best = chosen(points)
    return [line for name in ("rloo", "oaif") for line in unlike(name, best)]


def measure_pushed(
    store: Store, jobs: int, on_event: OnEvent
) -> tuple[list[Pushed], dict[str, Any]]:
    """Over-optimise a policy and measure it at each multiple of x, from 0.

    Returns:
        The measurements, and what they are of: settings, reward model, commit and stages.

    Raises:
        HarnessError: a stage failed.
    """
    changes = {"learning_rate": PUSHED_LEARNING_RATE, "beta": 0.0}
    base = validation_profile()
    profile = with_training(base, "rloo", changes)
    planner = Planner(profile, assets_of(profile))
    run = planner.run("rloo pushed", rloo(PUSHED_SIZE), PUSHED_SEED)
    items: dict[str, Json] = {"benchmark": planner.assets.benchmark("validation")}
    prompts = planner.stage("prompts", items, {}, "validation")
    policies: list[Stage | None] = [None, *run.training]
    sampled = [
        planner.rollouts(f"pushed {size}x", policy, prompts, "pointwise")
        for size, policy in enumerate(policies)
    ]
    compute([stage for pair in sampled for stage in pair], store, jobs, on_event)
    found = [Pushed(size, *_mean_scores(store, *pair)) for size, pair in enumerate(sampled)]
    commits = {
        store.manifest(stage.fingerprint)["provenance"]["commit"] or "unknown"
        for pair in sampled
        for stage in pair
    }
    return found, {
        **changes,
        "seed": PUSHED_SEED,
        "prompts": len(read_prompts(store.open(prompts.fingerprint))),
        "n": profile.generation.n,
        "reward_model": str(sampled[0][1].settings["reward_model"]),
        "commit": ", ".join(sorted(commit[:12] for commit in commits)),
        "stages": {f"{size}x": rewards.fingerprint for size, (_, rewards) in enumerate(sampled)},
    }


def _mean_scores(store: Store, completions: Stage, rewards: Stage) -> tuple[float, float]:
    """Return the mean reward and the mean oracle score of the same answers."""
    given = pq.read_table(store.open(rewards.fingerprint) / "rewards.parquet").column("reward")
    answers = pq.read_table(store.open(completions.fingerprint) / "completions.parquet")
    texts = (answers.column(name).to_pylist() for name in ("prompt", "completion"))
    scores = [oracle_score(prompt, answer) for prompt, answer in zip(*texts, strict=True)]
    return float(np.mean(given.to_numpy())), float(np.mean(scores))
