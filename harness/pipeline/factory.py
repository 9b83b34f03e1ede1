"""Stages by kind: what a profile says of each, at the version that its numbers have now.

The plans of offline and online runs and of judging are made of these. Nothing here runs a model.

Reward models are stages too, trained where no file holds them, and measured where a table asks:

    reward_model                                    a graded one, from θ0 and noisy preferences
    reward model -> held_out                        does it order held-out pairs rightly?
    validation prompts -> generate -> annotate -> best_of_n
                                                    how good are its best of n answers of θ0?

One reward model serves all seeds of a run: its own seed is fixed. Held-out pairs are the same for
all reward models, and so are, with each seed, the answers that they choose from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from harness.errors import UserError
from harness.registry.profile import Profile, RewardTraining
from harness.registry.recipe import RewardRole, small
from harness.registry.schema import Row, Table
from harness.runtime import Need, Needs
from harness.runtime.stage import Json, Stage
from harness.worlds.real.world import World


class StageKind(NamedTuple):
    """What is said of a kind of stage.

    Attributes:
        seconds: of one on one core at the profile `micro`; they order the work and estimate its
            time until a stage of the kind was measured.
        imports: what it imports that takes seconds; workers import it before their first stage.
        version: what the kind means; bumped by hand when its numbers change.
    """

    seconds: float
    imports: str | None = None
    version: int = 1


KINDS: Mapping[str, StageKind] = {
    "prompts": StageKind(0.1),
    "generate": StageKind(4.0, "harness.models.policy"),
    "annotate": StageKind(3.0, "harness.models.reward_model"),
    "select": StageKind(0.1),
    "probe": StageKind(3.0, "harness.models.policy"),
    "choose": StageKind(0.2),
    "evolve": StageKind(0.3),
    "pair": StageKind(0.1),
    "mix": StageKind(0.1),
    "join": StageKind(0.1),
    "rewrite": StageKind(3.0, "harness.models.policy"),
    "repeat": StageKind(0.1),
    "train": StageKind(6.0, "harness.training.dpo"),
    "online": StageKind(20.0, "harness.pipeline.online_steps"),
    "answer": StageKind(5.0, "harness.models.policy", version=2),
    "judge": StageKind(0.1),
    "rate": StageKind(0.1),
    "topics": StageKind(0.1),
    "reward_model": StageKind(60.0, "harness.models.reward_model"),
    "held_out": StageKind(10.0, "harness.models.reward_model"),
    "best_of_n": StageKind(0.5),
}
"""The kinds of stages there are."""

EXPECTED_S: Mapping[str, float] = {kind: known.seconds for kind, known in KINDS.items()}

SEED: Final = 0
"""Seed of the reward models that stages train, and of held-out pairs; that of the shipped ones."""

TRAINING: Final[Mapping[str, Json]] = {
    "seed": SEED,
    "batch_size": 64,
    "learning_rate": 5e-4,
    "pool_batches": 16,
    "pairs": "preferences",
    "layers": 4,
    "reads": "one answer",
}
"""What graded reward models have in common with one another, and but for the pools with the shipped
pointwise one (ours)."""

WARM_UP: Final = 10
"""A tenth of the steps is warm-up (ours)."""

HELD_OUT: Final = 2000
"""Held-out pairs; those that the shipped models' cards speak of."""


def needed_modules(stages: Iterable[Stage]) -> list[str]:
    return sorted({name for stage in stages if (name := KINDS[stage.kind].imports) is not None})


_ASKING = ("evolve", "rate", "judge", "topics")
"""What asks creator, scorer or judge and runs no model."""

_RUNNING = ("generate", "annotate", "answer", "rewrite", "reward_model", "held_out", "probe")
"""What runs a model without training it, or trains a small one."""

TRAINING_KINDS = ("train", "online")
"""What trains a policy."""


def needs_of(profile: Profile) -> Needs:
    """Return what the stages of a profile need of a machine: no part of a number."""
    hardware, threads = profile.hardware, profile.threads
    if hardware is None:
        return Needs(other=Need(threads))
    on_gpus = profile.priced_for is not None
    kinds = {kind: Need(asks=kind in _ASKING) for kind in KINDS}
    for kind in (*_RUNNING, *TRAINING_KINDS):
        gpus = hardware.devices if kind in TRAINING_KINDS else 1
        kinds[kind] = Need(threads, gpus if on_gpus else 0)
    for kind, said in hardware.stages.items():
        if kind not in kinds:
            raise UserError(
                f"`hardware.stages` of the profile `{profile.name}` names `{kind}`, which is no "
                f"kind of stage: use {', '.join(kinds)}"
            )
        usual = kinds[kind]
        gpus = usual.gpus if said.gpus is None else said.gpus
        kinds[kind] = Need(said.cpus or usual.cpus, gpus, usual.asks)
    return Needs(kinds, Need(threads), hardware.asking)


def hardware_of(profile: Profile) -> dict[str, Any]:
    """Return how stages are to use this machine: what a profile says, and no part of a number."""
    policy = None if profile.serving is None else profile.serving.policy
    said = {"training": profile.hardware, "served": policy}
    return {name: it.model_dump(mode="json") for name, it in said.items() if it is not None}


class StageFactory:
    """Makes the stages of runs on one profile, of which the world says what its names mean."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.profile = world.profile
        self._creators: dict[str, dict[str, Json]] = {}

    @cached_property
    def human_prompts(self) -> dict[str, Json]:
        """The settings that identify the profile's human prompts; a file is read once."""
        return self.world.prompts.identity()

    @cached_property
    def matched_prompts(self) -> dict[str, Json]:
        """The settings that identify the prompts matched to the hard benchmark; looked up once."""
        found = self.world.prompts.matched()
        if found is None:
            name = self.profile.name
            raise UserError(
                f"the profile `{name}` has no prompts matched to the hard benchmark; name some in "
                "`prompts.matched`"
            )
        return found

    def new_prompts(self, arm: str, seed: int, first: int, size: int) -> dict[str, Json]:
        """Return the settings of a stage with new prompts; `first` and `size` in multiples of x."""
        source = self.matched_prompts if arm == "matched" else self.human_prompts
        x = self.profile.x
        settings: dict[str, Json] = {**source, "seed": seed, "first": first * x, "count": size * x}
        if arm == "off_target":
            settings["off_target"] = self.world.prompts.off_target()
            settings["on_target"] = x
        return settings

    @cached_property
    def engine(self) -> dict[str, Json]:
        """The settings that identify what gives the policy's answers; looked up once."""
        return self.world.engine()

    def creator(self, scheme: str) -> dict[str, Json]:
        """Return the settings that identify the profile's creator with an evolving scheme."""
        if scheme not in self._creators:
            self._creators[scheme] = self.world.creator.identity(scheme)
        return self._creators[scheme]

    def with_policy(self, settings: dict[str, Json], policy: Stage | None) -> dict[str, Stage]:
        """Return the input that is the policy; without one, add θ0 to the settings instead."""
        if policy is None:
            settings["policy"] = self.world.policy()
            return {}
        return {"policy": policy}

    def rollouts(
        self, label: str, policy: Stage | None, prompts: Stage, role: RewardRole
    ) -> tuple[Stage, Stage]:
        """Return the stages of a policy's answers to prompts, and of their rewards.

        A pairwise reward model's reward of an answer is its mean win probability over the
        prompt's answers.
        """
        settings: dict[str, Json] = {**self.profile.generation.model_dump(), **self.engine}
        inputs = {"prompts": prompts, **self.with_policy(settings, policy)}
        completions = self.stage("generate", settings, inputs, label)
        annotating: dict[str, Json] = {}
        if role in ("pairwise", "pairwise_large"):
            annotating["rewards"] = "win_probability"
        if self.profile.dtype != "float32":
            annotating["dtype"] = self.profile.dtype
        inputs = {"completions": completions, **self.with_reward_model(annotating, role)}
        return completions, self.stage("annotate", annotating, inputs, label)

    def with_reward_model(self, settings: dict[str, Json], role: RewardRole) -> dict[str, Stage]:
        """Return the input that is the reward model of a role, where a stage trains it.

        Of one that a file holds, add its identity to the settings instead.
        """
        training = self.profile.trained_reward_models.get(role)
        if training is not None:
            return {"reward_model": self._trained_reward_model(role, training)}
        settings["reward_model"] = self.world.reward_model(role)
        return {}

    def stage(
        self, kind: str, settings: Mapping[str, Json], inputs: Mapping[str, Stage], label: str
    ) -> Stage:
        return Stage(kind, KINDS[kind].version, settings, inputs, f"{label} · {kind}")

    def _trained_reward_model(self, role: RewardRole, training: RewardTraining) -> Stage:
        settings: dict[str, Json] = {
            **TRAINING,
            "policy": self.world.policy(),
            "steps": training.steps,
            "flipped": training.flipped,
            "warmup_steps": max(1, training.steps // WARM_UP),
        }
        return self.stage("reward_model", settings, {}, f"reward model {role}")


@dataclass(frozen=True)
class RewardStudy:
    """The stages that measure the reward models of a table's rows.

    They are the reward model of each row that has one, by the row's id; the accuracy of each; by
    model and seed the score of what it chooses; and of how many answers it chooses.
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
