"""Computing the stages of a plan on this machine, whatever shows or tracks how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.runtime import LocalEngine, Outcome, Plan, Stage, Store

if TYPE_CHECKING:
    from harness.registry.profile import Profile
    from harness.runtime import Event

EXPECTED_S: Mapping[str, float] = {
    "prompts": 0.1,
    "generate": 4.0,
    "annotate": 3.0,
    "select": 0.1,
    "evolve": 0.3,
    "pair": 0.1,
    "mix": 0.1,
    "join": 0.1,
    "repeat": 0.1,
    "rewrite": 3.0,
    "train": 12.0,
    "online": 90.0,
    "answer": 1.0,
    "judge": 0.1,
    "rate": 0.1,
    "topics": 0.1,
    "reward_model": 60.0,
    "held_out": 10.0,
    "best_of_n": 0.5,
}
"""Seconds of a stage of each kind on one core of an ordinary machine, at the profile `micro`.

They order the work and estimate its time until a stage of the kind is done and was measured.
"""

NEEDED_MODULES = {
    "generate": "harness.models.policy",
    "annotate": "harness.models.reward_model",
    "answer": "harness.models.policy",
    "rewrite": "harness.models.policy",
    "reward_model": "harness.models.reward_model",
    "held_out": "harness.models.reward_model",
    "train": "harness.training.dpo",
    "online": "harness.trainer.online_steps",
}
"""What a kind of stage imports that takes seconds; workers import it before their first stage."""


def execute(
    plan: Plan,
    store: Store,
    profile: Profile,
    logs: Path,
    jobs: int,
    *,
    fail_fast: bool,
    on_event: Callable[[Event], None],
) -> Outcome:
    """Compute the stages of a plan that are not done.

    Args:
        plan: The plan.
        store: Where outputs go.
        profile: The profile it was made at.
        logs: Folder of the workers' output.
        jobs: Number of workers.
        fail_fast: Stop at the first failure.
        on_event: Takes the engine's events.

    Raises:
        Interrupted: Ctrl-C.
    """
    from harness.trainer import steps
    from harness.worlds.lookup import world_of

    engine = LocalEngine(
        store,
        steps.FUNCTIONS,
        logs,
        # Stages of large models use all devices at once.
        jobs=jobs if profile.hardware is None else 1,
        fail_fast=fail_fast,
        on_event=on_event,
        preload=needed_modules(plan.pending(store)),
        fallback=EXPECTED_S,
        threads=profile.threads,
        hardware=hardware_of(profile),
    )
    with world_of(profile).serving():
        return engine.run(plan)


def hardware_of(profile: Profile) -> dict[str, Any]:
    """Return how stages are to use this machine: what a profile says, and no part of a number."""
    if profile.hardware is None:
        return {}
    return {"training": profile.hardware.model_dump(mode="json")}


def needed_modules(stages: Sequence[Stage]) -> list[str]:
    """Return the slow modules that some stages import, in a fixed order."""
    kinds = {stage.kind for stage in stages}
    return sorted({module for kind, module in NEEDED_MODULES.items() if kind in kinds})
