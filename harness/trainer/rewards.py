"""Reward models behind stages: their names, and the seed of those that stages train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.runtime.stage import Stage

SEED: Final = 0
"""Seed of the reward models and of the held-out pairs; that of the shipped ones."""


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
