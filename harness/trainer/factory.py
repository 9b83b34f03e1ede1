"""Stages by kind: what a profile says of each, at the version that its numbers have now.

The plans of offline and online runs, of judging and of reward models are made of these. Nothing
here runs a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from harness.errors import UserError
from harness.registry.profile import Profile, RewardTraining
from harness.registry.recipe import RewardRole
from harness.runtime.stage import Json, Stage
from harness.worlds.protocol import World


class Kind(NamedTuple):
    """What is said of a kind of stage.

    Attributes:
        seconds: of one on one core of an ordinary machine, at the profile `micro`. They order the
            work and estimate its time until a stage of the kind is done and was measured.
        imports: what it imports that takes seconds; workers import it before their first stage.
        version: what the kind means; bumped by hand when its numbers change.
    """

    seconds: float
    imports: str | None = None
    version: int = 1


KINDS: Mapping[str, Kind] = {
    "prompts": Kind(0.1),
    "generate": Kind(4.0, "harness.models.policy"),
    "annotate": Kind(3.0, "harness.models.reward_model"),
    "select": Kind(0.1),
    "evolve": Kind(0.3),
    "pair": Kind(0.1),
    "mix": Kind(0.1),
    "join": Kind(0.1),
    "rewrite": Kind(3.0, "harness.models.policy"),
    "repeat": Kind(0.1),
    "train": Kind(12.0, "harness.training.dpo"),
    "online": Kind(90.0, "harness.trainer.online_steps"),
    "answer": Kind(1.0, "harness.models.policy"),
    "judge": Kind(0.1),
    "rate": Kind(0.1),
    "topics": Kind(0.1),
    "reward_model": Kind(60.0, "harness.models.reward_model"),
    "held_out": Kind(10.0, "harness.models.reward_model"),
    "best_of_n": Kind(0.5),
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


def needed_modules(stages: Iterable[Stage]) -> list[str]:
    """Return the slow modules that some stages import, in a fixed order."""
    return sorted({name for stage in stages if (name := KINDS[stage.kind].imports) is not None})


def hardware_of(profile: Profile) -> dict[str, Any]:
    """Return how stages are to use this machine: what a profile says, and no part of a number."""
    if profile.hardware is None:
        return {}
    return {"training": profile.hardware.model_dump(mode="json")}


class StageFactory:
    """Makes the stages of runs on one profile, of which the world says what its names mean."""

    def __init__(self, world: World) -> None:
        """Make stages for the profile of a world.

        Raises:
            HarnessError: What the world makes on this machine cannot be made.
        """
        world.prepare()
        self.world = world
        self.profile = world.profile
        self._creators: dict[str, dict[str, Json]] = {}

    @cached_property
    def human_prompts(self) -> dict[str, Json]:
        """The settings that identify the profile's human prompts; a file is read once."""
        return self.world.prompts()

    @cached_property
    def matched_prompts(self) -> dict[str, Json]:
        """The settings that identify the prompts matched to the hard benchmark; looked up once."""
        found = self.world.matched_prompts()
        if found is None:
            name = self.profile.name
            raise UserError(
                f"the profile `{name}` has no prompts matched to the hard benchmark; name some in "
                "`prompts.matched`"
            )
        return found

    def new_prompts(self, arm: str, seed: int, first: int, size: int) -> dict[str, Json]:
        """Return the settings of a stage with new prompts; `first` and `size` in multiples of x.

        Raises:
            UserError: the profile has no such prompts.
        """
        source = self.matched_prompts if arm == "matched" else self.human_prompts
        x = self.profile.x
        return {**source, "seed": seed, "first": first * x, "count": size * x}

    @cached_property
    def engine(self) -> dict[str, Json]:
        """The settings that identify what gives the policy's answers; looked up once."""
        return self.world.engine()

    def creator(self, scheme: str) -> dict[str, Json]:
        """Return the settings that identify the profile's creator with an evolving scheme."""
        if scheme not in self._creators:
            self._creators[scheme] = self.world.creator(scheme)
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
        """Return a stage of a kind at its present version."""
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
