"""A policy pushed beyond what its reward model knows, measured on validation prompts.

A learned reward can be over-optimised. One run shows it on purpose: RLOO without a KL penalty at a
large learning rate on all human prompts. At each x of prompts the policy answers the validation
prompts several times, and both the reward model and the oracle score the answers: the first may go
on rising where the second falls.

Source: Gao et al. 2023, Scaling laws for reward model overoptimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from harness.errors import HarnessError
from harness.pipeline.algorithm import Planner
from harness.pipeline.steps import FUNCTIONS
from harness.registry.profile import find_profile, load_profiles
from harness.registry.recipe import Online, Recipe
from harness.runtime import Engine, Json, Plan, Stage, Store
from harness.runtime.plan import Event
from harness.worlds.embedded.language import score as oracle_score
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_prompts

LEARNING_RATE, SIZE, SEED = 8e-4, 6, 100
"""Learning rate, four times the tuned one; prompts, in multiples of x; seed, of no table."""


def push(store: Store, jobs: int, on_event: Callable[[Event], None]) -> dict[str, Any]:
    """Over-optimise a policy and measure it at each multiple of x, from 0.

    Args:
        store: where the stages go.
        jobs: worker processes.
        on_event: told of every stage.

    Returns:
        What `harness.report.measurements.Pushed` holds: the measurements, and what they are
        of: settings, reward model, commit and stages.
    """
    changes = {"learning_rate": LEARNING_RATE, "beta": 0.0}
    micro = find_profile(load_profiles(), "micro")
    hyper = micro.training.of("rloo").model_copy(update=changes)
    training = micro.training.model_copy(update={"rloo": hyper})
    planner = Planner(world_of(micro.model_copy(update={"training": training, "benchmarks": {}})))
    recipe = Recipe(algorithm="rloo", online=Online(prompts="human", size=SIZE))
    run = planner.run("rloo pushed", recipe, SEED)
    items: dict[str, Json] = {"benchmark": planner.world.benchmark("validation")}
    prompts = planner.stage("prompts", items, {}, "validation")
    policies: list[Stage | None] = [None, *run.training]
    sampled = [
        planner.rollouts(f"pushed {size}x", policy, prompts, "pointwise")
        for size, policy in enumerate(policies)
    ]
    logs = store.root.parent / "logs"
    engine = Engine(store, FUNCTIONS, logs, jobs=jobs, on_event=on_event)
    outcome = engine.run(Plan(stage for pair in sampled for stage in pair))
    if not outcome.ok:
        raise HarnessError(f"the policy could not be pushed: {dict(outcome.failed)}")
    points = []
    for size, pair in enumerate(sampled):
        reward, oracle = _mean_scores(store, *pair)
        points.append({"size": size, "reward": round(reward, 6), "oracle": round(oracle, 6)})
    commits = {
        store.manifest(stage.fingerprint)["provenance"]["commit"] or "unknown"
        for pair in sampled
        for stage in pair
    }
    setting = {
        **changes,
        "seed": SEED,
        "prompts": len(read_prompts(store.open(prompts.fingerprint))),
        "n": micro.generation.n,
        "reward_model": str(sampled[0][1].settings["reward_model"]),
        "commit": ", ".join(sorted(commit[:12] for commit in commits)),
        "stages": {f"{size}x": rewards.fingerprint for size, (_, rewards) in enumerate(sampled)},
    }
    return {"points": points, "setting": setting}


def _mean_scores(store: Store, completions: Stage, rewards: Stage) -> tuple[float, float]:
    given = pq.read_table(store.open(rewards.fingerprint) / "rewards.parquet").column("reward")
    answers = pq.read_table(store.open(completions.fingerprint) / "completions.parquet")
    texts = (answers.column(name).to_pylist() for name in ("prompt", "completion"))
    scores = [oracle_score(prompt, answer) for prompt, answer in zip(*texts, strict=True)]
    return float(np.mean(given.to_numpy())), float(np.mean(scores))
