"""Builds stages by kind, with a profile's settings and the kind's current version.

All seeds of a run share one reward model: if a stage trains it, its seed is fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.extensions import BENCHMARKS, benchmark_name
from harness.registry.profile import REWARD_JUDGE, Profile
from harness.registry.recipe import RewardRole, small
from harness.registry.serving import ServedRole, address
from harness.runtime import Engine, EngineOptions, Plan, Store
from harness.runtime.crew import Need, Needs, visible_gpus
from harness.runtime.manifest import available_cores
from harness.runtime.plan import Schedule
from harness.runtime.stage import Json, Stage
from harness.worlds import World
from harness.worlds.needs import TRAINING_KINDS, asked_by, policy_of, served_here


class StageKind(NamedTuple):
    """Properties of a kind of stage; `version` is bumped by hand when its numbers change.

    `imports` is the module of those that run or train a model. `seconds` are on one core with the
    profile `micro`, used until a stage of the kind was measured.
    """

    seconds: float
    imports: str | None = None
    version: int = 1


KINDS: Mapping[str, StageKind] = {
    "prompts": StageKind(0.1),
    "generate": StageKind(1.3, "harness.models.policy"),
    "annotate": StageKind(1.2, "harness.models.reward_model"),
    "select": StageKind(0.1),
    "probe": StageKind(1.2, "harness.models.policy"),
    "choose": StageKind(0.2),
    "evolve": StageKind(0.3),
    "pair": StageKind(0.1),
    "mix": StageKind(0.1),
    "join": StageKind(0.1),
    "rewrite": StageKind(1.2, "harness.models.policy"),
    "repeat": StageKind(0.1),
    "train": StageKind(3.5, "harness.training.offline_losses"),
    "online": StageKind(8.0, "harness.pipeline.online_steps"),
    "answer": StageKind(1.2, "harness.models.policy", version=2),
    "judge": StageKind(0.1),
    "rate": StageKind(0.1),
    "topics": StageKind(0.1),
    "reward_model": StageKind(60.0, "harness.models.reward_model"),
    "held_out": StageKind(10.0, "harness.models.reward_model"),
    "best_of_n": StageKind(0.5),
}

SEED: Final = 0
"""Seed of reward models trained by stages and of held-out pairs, as for the shipped models."""

TRAINING: Final[Mapping[str, Json]] = {
    "seed": SEED,
    "batch_size": 64,
    "learning_rate": 5e-4,
    "pool_batches": 16,
    "pairs": "preferences",
    "layers": 4,
    "reads": "one answer",
}
"""Settings of graded reward models and, but for the pools, of the shipped pointwise one (ours)."""

WARM_UP: Final = 10  # warm-up is a tenth of the steps (ours)


def needed_modules(stages: Iterable[Stage]) -> list[str]:
    return sorted({name for stage in stages if (name := KINDS[stage.kind].imports) is not None})


def runs_a_model(stage: Stage) -> bool:
    """Return whether a stage runs or trains a model in its own process."""
    judge = str(stage.settings.get("judge", ""))
    return KINDS[stage.kind].imports is not None or judge.startswith(REWARD_JUDGE)


# What stages need of a machine; this affects no number.

_ASKING = ("evolve", "rate", "judge", "topics")
"""Kinds that query the creator, scorer or judge; a judge may also be a reward model."""


def needs_of(profile: Profile) -> Needs:
    hardware, threads = profile.hardware, profile.threads
    if hardware is None:
        return Needs(other=Need(threads))
    judged = (it for name, it in profile.benchmarks.items() if benchmark_name(name) in BENCHMARKS)
    by_reward = [it.judge.startswith(REWARD_JUDGE) for it in judged]
    models = {kind for kind, known in KINDS.items() if known.imports is not None}
    models |= {"judge"} if any(by_reward) else set()
    asking = {*_ASKING} - ({"judge"} if by_reward and all(by_reward) else set())

    def need(kind: str) -> Need:
        if kind not in models:
            return Need(uses_endpoint=kind in asking)
        gpus = hardware.devices if kind in TRAINING_KINDS else 1
        return Need(threads, 0 if hardware.on_cpu else gpus, kind in asking)

    return Needs({kind: need(kind) for kind in KINDS}, Need(threads))


def stage_hardware(profile: Profile) -> dict[str, Any]:
    """Return a profile's settings for how stages use this machine."""
    said = {"training": profile.hardware, "served": profile.served.get("policy")}
    return {name: it.model_dump(mode="json") for name, it in said.items() if it is not None}


def workers_of(profile: Profile, jobs: int | None = None) -> int:
    """Return how many stages run at once: `jobs`, else what this machine has GPUs or cores for."""
    there = len(visible_gpus()) if profile.on_gpus else available_cores() // profile.threads
    return jobs or max(1, there)


def engine_of(
    profile: Profile,
    store: Store,
    log_dir: Path,
    stages: Iterable[Stage],
    *,
    jobs: int | None,
    where: EngineOptions,
    **more: Any,
) -> Engine:
    """Return an engine for a profile's stages; workers preload what these import."""
    from harness.pipeline.steps import FUNCTIONS

    if where.engine == "local" and not profile.on_gpus:  # else GPUs or the cluster are the limit
        jobs = workers_of(profile, jobs)
    return Engine(
        store,
        FUNCTIONS,
        log_dir,
        preload=needed_modules(stages),
        threads=profile.threads,
        hardware=stage_hardware(profile),
        needs=needs_of(profile),
        jobs=jobs,
        where=where,
        **more,
    )


class Turn(NamedTuple):
    """Consecutive stages that need the same thing loaded; `role` is None if they need nothing."""

    role: str | None
    stages: list[Stage]


@dataclass(frozen=True)
class Turns:
    """Which servers or models use this machine's GPUs at which stage.

    Stages run in turns, each with what it needs loaded. On one GPU, a turn is the stages that one
    policy's server answers; on several, all stages in which policies answer.
    """

    profile: Profile
    gpus: int = 1

    def roles(self, stage: Stage) -> tuple[ServedRole, ...]:
        """Return the roles whose servers a stage queries, of those started for the run."""
        asked: set[ServedRole] = {
            role
            for role, model in asked_by(stage)
            if served_here(self.profile, role, model) is not None
        }
        if self._is_answered(stage) and self.gpus <= 1:
            asked.add("policy")
        return tuple(sorted(asked))

    def wanted(self, stage: Stage) -> str | None:
        if (roles := self.roles(stage)) != ():
            each = (policy_of(stage) if role == "policy" else role for role in roles)
            return " and ".join(each)
        return stage.kind if runs_a_model(stage) else None

    def order(self, stages: Sequence[Stage]) -> list[Turn]:
        """Order stages, inputs first, so that what is loaded changes rarely.

        What the ready stage with the longest remaining chain needs is loaded next, so a run's
        judgments wait.
        """
        plan = Plan(stages)
        schedule = Schedule(plan, stages, lambda stage: 1.0)
        wanted = {stage: self.wanted(stage) for stage in stages}
        loaded: str | None = None
        order: list[Stage] = []
        while schedule.left:
            stage = (
                schedule.take(lambda it: wanted[it] is None)
                or schedule.take(lambda it, role=loaded: wanted[it] == role)  # type: ignore[misc]
                or schedule.take()
            )
            assert stage is not None
            loaded = wanted[stage] or loaded
            order.append(stage)
            schedule.finish(stage)
        return [Turn(role, list(own)) for role, own in groupby(order, wanted.__getitem__)]

    def _is_answered(self, stage: Stage) -> bool:
        """Return whether a stage's answers come from the profile's policy server."""
        return (
            "policy" in self.profile.served
            and address("policy") is None
            and "engine" in stage.settings
            and "max_length" in stage.settings
        )


class StageFactory:
    """Makes the stages of runs on one profile, whose names the world resolves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.profile = world.profile
        # Cached: they read files and look up engines.
        self.creator = cache(world.creator)
        self._human_prompts = cache(world.prompts.identity)

    @cached_property
    def engine(self) -> dict[str, Json]:
        """The settings that identify the engine behind the policy's answers."""
        return self.world.engine()

    def new_prompts(self, arm: str, seed: int, first: int, size: int) -> dict[str, Json]:
        """Return the settings of a `prompts` stage; `first` and `size` are in multiples of x."""
        x = self.profile.x
        cut: dict[str, Json] = {"seed": seed, "first": first * x, "count": size * x}
        if arm == "off_target":
            cut |= {"off_target": self.world.prompts.off_target(), "on_target": x}
        own = self.world.prompts.matched() if arm == "matched" else self._human_prompts()
        return own | cut

    def with_policy(self, settings: dict[str, Json], policy: Stage | None) -> dict[str, Stage]:
        """Return the policy as an input; if it is None, add θ0 to the settings instead."""
        if policy is None:
            settings["policy"] = self.world.policy()
            return {}
        return {"policy": policy}

    def with_reward_model(self, settings: dict[str, Json], role: RewardRole) -> dict[str, Stage]:
        """Return a role's reward model as an input if a stage trains it, else in the settings."""
        training = self.profile.trained_reward_models.get(role)
        if training is None:
            settings["reward_model"] = self.world.reward_model(role)
            return {}
        own: dict[str, Json] = {
            **TRAINING,
            "policy": self.world.policy(),
            "steps": training.steps,
            "flipped": training.flipped,
            "warmup_steps": max(1, training.steps // WARM_UP),
        }
        return {"reward_model": self.stage("reward_model", own, {}, f"reward model {role}")}

    def rollouts(
        self,
        label: str,
        policy: Stage | None,
        prompts: Stage,
        role: RewardRole,
        n: int | None = None,
    ) -> tuple[Stage, Stage]:
        """Return the stages with a policy's answers to prompts, `n` each, and their rewards."""
        settings: dict[str, Json] = {**self.profile.generation.model_dump(), **self.engine}
        settings["n"] = n or settings["n"]
        inputs = {"prompts": prompts, **self.with_policy(settings, policy)}
        completions = self.stage("generate", settings, inputs, label)
        annotating: dict[str, Json] = {}
        if small(role) == "pairwise":
            annotating["rewards"] = "win_probability"
        if self.profile.dtype != "float32":
            annotating["dtype"] = self.profile.dtype
        inputs = {"completions": completions, **self.with_reward_model(annotating, role)}
        return completions, self.stage("annotate", annotating, inputs, label)

    def stage(
        self, kind: str, settings: Mapping[str, Json], inputs: Mapping[str, Stage], label: str
    ) -> Stage:
        return Stage(kind, KINDS[kind].version, settings, inputs, f"{label} · {kind}")


def reward_models_named(stages: Sequence[Stage]) -> list[str]:
    """Return the distinct names of the reward models of some stages, sorted."""
    names = []
    for stage in stages:
        s = stage.settings
        if stage.kind == "reward_model":
            wrong = f"{100 * s['flipped']:g}%"
            names.append(
                f"trained from {s['policy']} in {s['steps']} steps on labels {wrong} of which are "
                f"wrong ({stage.fingerprint[:12]})"
            )
        elif s.get("reward_model") is not None:
            names.append(s["reward_model"])
    return sorted(set(names))
