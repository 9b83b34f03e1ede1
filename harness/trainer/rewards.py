"""Which stage holds the rewards of the prompts that an offline iteration starts from."""

from __future__ import annotations

from harness.store.stage import Stage
from harness.trainer.plan import Iteration


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
