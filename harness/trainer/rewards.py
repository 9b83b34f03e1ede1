"""What stages say of rewards: where those of an iteration are, and which models gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from harness.store.stage import Stage

if TYPE_CHECKING:
    from harness.trainer.plan import Iteration

ACCURACY: Final = "rm_accuracy"
"""What a reward model's being right on a held-out pair is called among the scores: 1 or 0."""

BEST_OF_N: Final = "best_of_n"
"""What the oracle's score of the answer it chooses is called among them, from 0 to 1."""

SEED: Final = 0
"""Seed of the reward models and of the held-out pairs; that of the shipped ones."""


def rewards_stage(iteration: Iteration) -> Stage:
    """Return the stage with the rewards of the prompts that an offline iteration starts from.

    They are those behind the informativeness of the iteration's prompts where it chooses among
    them, else those its pairs are made of.
    """
    pairs = iteration.pairs
    while "pairs" in pairs.inputs:  # rewritten, or gone over again
        pairs = pairs.inputs["pairs"]
    if "evolved" in pairs.inputs:
        evolved = pairs.inputs["evolved"].inputs["completions"].inputs["prompts"]
        return evolved.inputs["selected"].inputs["rewards"]
    if "only" in pairs.inputs:
        return pairs.inputs["only"].inputs["rewards"]
    return pairs.inputs["rewards"]


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
