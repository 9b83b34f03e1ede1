"""Reward models as stages: trained where no file holds them, and measured where a table asks.

    reward_model                                    a graded one, from θ0 and noisy preferences
    reward model -> held_out                        does it order held-out pairs rightly?
    validation prompts -> generate -> annotate -> best_of_n
                                                    how good are its best of n answers of θ0?

One reward model serves all seeds of a run: its own seed is fixed. Held-out pairs are the same for
all reward models, and so are, with each seed, the answers that they choose from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.registry.recipe import RewardRole, small
from harness.registry.schema import Row, Table
from harness.runtime.stage import Json, Stage
from harness.trainer.factory import SEED, StageFactory

HELD_OUT: Final = 2000
"""Held-out pairs; those that the shipped models' cards speak of."""


@dataclass(frozen=True)
class RewardStudy:
    """The stages that measure the reward models of a table's rows.

    Attributes:
        roles: the reward model of each row that has one, by the row's id.
        held_out: the stage that measures the accuracy of each reward model.
        best_of_n: the stage that scores what each reward model chooses, by model and seed.
        n: how many answers it chooses from.
    """

    roles: Mapping[str, RewardRole]
    held_out: Mapping[RewardRole, Stage]
    best_of_n: Mapping[tuple[RewardRole, int], Stage]
    n: int

    @property
    def targets(self) -> list[Stage]:
        """The stages that complete the study."""
        return [*self.held_out.values(), *self.best_of_n.values()]


def plan_study(
    planner: StageFactory, table: Table, rows: Sequence[Row], seeds: Sequence[int]
) -> RewardStudy:
    """Plan what measures the reward models of a table's rows; the base model's row has none."""
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
    # The answers' label would be that of whichever reward model comes first.
    _, rewards = planner.rollouts(f"seed {seed} · best by {role}", None, prompts, role)
    settings: dict[str, Json] = {"judge": planner.world.judge("oracle")}
    inputs = {"completions": completions, "rewards": rewards}
    return planner.stage("best_of_n", settings, inputs, f"seed {seed} · best by {role}")


def reward_models_named(stages: Sequence[Stage]) -> list[str]:
    """Return what the reward models behind some stages are called, each once, in order.

    Those that files hold are called by their identities, those that stages train by how.
    """
    names = []
    for stage in stages:
        s = stage.settings
        if stage.kind == "reward_model":
            wrong = f"{100 * float(str(s['flipped'])):g}%"
            names.append(
                f"trained from {s['policy']} in {s['steps']} steps on labels {wrong} of which are "
                f"wrong ({stage.fingerprint[:12]})"
            )
        elif s.get("reward_model") is not None:
            names.append(str(s["reward_model"]))
    return sorted(set(names))
