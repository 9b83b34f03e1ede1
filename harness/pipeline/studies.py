"""Reward model quality, measured by stages.

    reward_model                                    a graded one, from θ0 and noisy preferences
    reward model -> held_out                        its accuracy on held-out pairs
    validation prompts -> generate -> annotate -> best_of_n

All reward models share the held-out pairs and, for each seed, the answers to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.pipeline.factory import SEED, StageFactory
from harness.registry.recipe import RewardRole, small
from harness.registry.schema import Row, Table
from harness.runtime import Stage
from harness.runtime.stage import Json

HELD_OUT: Final = 2000  # held-out pairs, the ones on the shipped models' cards


@dataclass(frozen=True)
class RewardStudy:
    """The stages that measure the reward models of a table's rows, by role (and seed)."""

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
