"""Reward model quality, measured by stages, and reward over-optimization.

    reward_model                                    a graded one, from θ0 and noisy preferences
    reward model -> held_out                        its accuracy on held-out pairs
    validation prompts -> generate -> annotate -> best_of_n
                                                    the quality of its best-of-n answers from θ0

All reward models share the held-out pairs and, for each seed, the answers to choose from.

*Over-optimization* is provoked: RLOO without a KL penalty at a high learning rate on all human
prompts. At each x of prompts the policy answers the validation prompts several times, and both the
reward model and the oracle score the answers: the former may keep rising while the latter falls
(Gao et al. 2023, Scaling laws for reward model overoptimization).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from harness.errors import HarnessError
from harness.pipeline.algorithm import Planner
from harness.pipeline.factory import SEED, StageFactory
from harness.registry.profile import find_profile, load_profiles
from harness.registry.recipe import Online, Recipe, RewardRole, small
from harness.registry.schema import Row, Table
from harness.runtime import Engine, Json, Plan, Stage, Store
from harness.runtime.plan import Event
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_prompts, read_rewards, read_rows

HELD_OUT: Final = 2000  # held-out pairs, the ones on the shipped models' cards


@dataclass(frozen=True)
class RewardStudy:
    """The stages that measure the reward models of a table's rows.

    `roles` has the reward model of each row that has one, by row id; `held_out` the accuracy stage
    of each model; `best_of_n` the stage that scores its picks out of `n` answers, by model and
    seed.
    """

    roles: Mapping[str, RewardRole]
    held_out: Mapping[RewardRole, Stage]
    best_of_n: Mapping[tuple[RewardRole, int], Stage]
    n: int

    @property
    def targets(self) -> list[Stage]:
        return [*self.held_out.values(), *self.best_of_n.values()]


def plan_study(
    planner: StageFactory, table: Table, rows: Sequence[Row], seeds: Sequence[int]
) -> RewardStudy:
    recipes = {row.id: table.recipe_of(row, table.columns[0]) for row in rows}
    roles = {name: r.reward_model for name, r in recipes.items() if not r.is_base}
    distinct = list(dict.fromkeys(roles.values()))
    return RewardStudy(
        roles=roles,
        held_out={role: _held_out(planner, role) for role in distinct},
        best_of_n={
            (role, seed): _best_of_n(planner, role, seed) for role in distinct for seed in seeds
        },
        n=planner.profile.generation.n,
    )


def _held_out(planner: StageFactory, role: RewardRole) -> Stage:
    both = small(role) == "pairwise"
    settings: dict[str, Json] = {
        "reads": "two answers" if both else "one answer",
        "held_out": HELD_OUT,
        "seed": SEED,
    }
    inputs = planner.with_reward_model(settings, role)
    return planner.stage("held_out", settings, inputs, f"reward model {role}")


def _best_of_n(planner: StageFactory, role: RewardRole, seed: int) -> Stage:
    items: dict[str, Json] = {"benchmark": planner.world.benchmark("validation"), "seed": seed}
    prompts = planner.stage("prompts", items, {}, f"seed {seed} · validation")
    completions, _ = planner.rollouts(f"seed {seed} · validation", None, prompts, role)
    # Called again for the label: the shared answers must not be named after one reward model.
    _, rewards = planner.rollouts(f"seed {seed} · best by {role}", None, prompts, role)
    settings: dict[str, Json] = {"judge": planner.world.judge("oracle")}
    inputs = {"completions": completions, "rewards": rewards}
    return planner.stage("best_of_n", settings, inputs, f"seed {seed} · best by {role}")


LEARNING_RATE, SIZE, PUSHED_SEED = 8e-4, 6, 100
"""Learning rate, 4 times the tuned one; prompts in multiples of x; a seed that no table uses."""


def push(store: Store, jobs: int, on_event: Callable[[Event], None]) -> dict[str, Any]:
    """Over-optimize a policy and measure it at each multiple of x, from 0.

    Returns:
        The content of `harness.report.over_optimisation.Pushed`: the measurements, and their
        settings, reward model, commit and stages.
    """
    from harness.pipeline.steps import FUNCTIONS

    changes = {"learning_rate": LEARNING_RATE, "beta": 0.0}
    micro = find_profile(load_profiles(), "micro")
    hyper = micro.training.of("rloo").model_copy(update=changes)
    training = micro.training.model_copy(update={"rloo": hyper})
    planner = Planner(world_of(micro.model_copy(update={"training": training, "benchmarks": {}})))
    recipe = Recipe(algorithm="rloo", online=Online(prompts="human", size=SIZE))
    run = planner.run("rloo pushed", recipe, PUSHED_SEED)
    asked: dict[str, Json] = {"benchmark": planner.world.benchmark("validation")}
    prompts = planner.stage("prompts", asked, {}, "validation")
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
        "seed": PUSHED_SEED,
        "prompts": len(read_prompts(store.open(prompts.fingerprint))),
        "n": micro.generation.n,
        "reward_model": str(sampled[0][1].settings["reward_model"]),
        "commit": ", ".join(sorted(commit[:12] for commit in commits)),
        "stages": {f"{size}x": rewards.fingerprint for size, (_, rewards) in enumerate(sampled)},
    }
    return {"points": points, "setting": setting}


def _mean_scores(store: Store, completions: Stage, rewards: Stage) -> tuple[float, float]:
    from harness.worlds.embedded.language import score

    _, given = read_rewards(store.open(rewards.fingerprint))
    answers = read_rows(store.open(completions.fingerprint) / "completions.parquet")
    scores = [score(row["prompt"], row["completion"]) for row in answers]
    return float(given.mean()), fmean(scores)
