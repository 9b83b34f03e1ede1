"""Who has this machine's GPU at which stage of a run, where the harness serves models itself.

A stage asks servers of some roles, or has the GPU to itself: to train, or to read with a reward
model. Stages are done turn by turn, each turn with what it wants loaded (`harness.serving.turns`).
On one GPU all stages that the same policy answers are one turn, with one server; where there are
several GPUs, all stages in which policies answer are, each with a server of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.pipeline.factory import KINDS
from harness.registry.profile import REWARD_JUDGE, Profile
from harness.registry.serving import Role
from harness.runtime.stage import Stage
from harness.serving.servers import VARIABLES
from harness.serving.turns import Turn, turns
from harness.worlds.needs import asked_by, policy_of, served_here


@dataclass(frozen=True)
class Turns:
    """What the stages of a profile want loaded; `gpus` that there are."""

    profile: Profile
    gpus: int = 1

    def roles(self, stage: Stage) -> tuple[Role, ...]:
        """Return the roles whose servers a stage asks, of those that are started for the run."""
        asked = [
            role.lower()
            for role, model in asked_by(stage)
            if served_here(self.profile, role, model) is not None
        ]
        if self._is_answered(stage) and self.gpus <= 1:
            asked.append("policy")
        return tuple(sorted(set(asked)))  # type: ignore[arg-type]

    def wanted(self, stage: Stage) -> str | None:
        """Return what a stage wants loaded, None for one that loads nothing."""
        if (roles := self.roles(stage)) != ():
            each = (policy_of(stage) if role == "policy" else role for role in roles)
            return " and ".join(each)
        loads = KINDS[stage.kind].imports is not None
        reads = str(stage.settings.get("judge", "")).startswith(REWARD_JUDGE)
        return stage.kind if loads or reads else None

    def order(self, stages: Sequence[Stage]) -> list[Turn[Stage]]:
        return turns(stages, lambda stage: stage.inputs.values(), self.wanted)

    def starts(self, stages: Sequence[Stage]) -> Counter[Role]:
        """Return how often the server of each role is started for some stages."""
        found: Counter[Role] = Counter()
        before: str | None = None
        for turn in self.order(stages):
            if turn.role is None:
                continue
            if turn.role != before:
                found.update(self.roles(turn.stages[0]))
            before = turn.role
            if self.gpus > 1:
                found["policy"] += sum(map(self._is_answered, turn.stages))
        return Counter({role: number for role, number in found.items() if number})

    def _is_answered(self, stage: Stage) -> bool:
        """Return whether the profile's server of the policy answers in a stage."""
        serving = self.profile.serving
        return (
            serving is not None
            and serving.policy is not None
            and VARIABLES["policy"] not in os.environ
            and "engine" in stage.settings
            and "max_length" in stage.settings
        )
