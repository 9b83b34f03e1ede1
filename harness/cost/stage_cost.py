"""What one stage costs, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.cost.costing import Costing, StageCost
from harness.cost.judged_cost import answer_cost, judge_cost, rate_cost, topics_cost
from harness.cost.offline_cost import (
    annotate_cost,
    evolve_cost,
    generate_cost,
    rewrite_cost,
    rows_cost,
    train_cost,
)
from harness.cost.online_cost import online_cost
from harness.runtime.stage import Stage

BY_KIND: Mapping[str, Callable[[Costing, Stage], StageCost]] = {
    **dict.fromkeys(("prompts", "select", "pair", "mix", "join", "repeat"), rows_cost),
    "generate": generate_cost,
    "annotate": annotate_cost,
    "evolve": evolve_cost,
    "rewrite": rewrite_cost,
    "train": train_cost,
    "online": online_cost,
    "answer": answer_cost,
    "judge": judge_cost,
    "rate": rate_cost,
    "topics": topics_cost,
}
"""The cost of each kind of stage that a profile from outside the embedded world can have."""


def stage_cost(c: Costing, stage: Stage) -> StageCost:
    """Return what a stage costs.

    Raises:
        KeyError: it is of a kind that has no cost here.
    """
    return BY_KIND[stage.kind](c, stage)
