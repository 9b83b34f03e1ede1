"""The steps of an online run are counted by the phases of its buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.cost.price import PlanPrice
from harness.cost.work import Costing, count_steps
from harness.pipeline.algorithm import Planner
from harness.registry.recipe import Recipe
from harness.runtime import Plan
from harness.selectors.eva import StreamSettings

Priced = Callable[..., PlanPrice]
SMALL: dict[str, Any] = {"x": 120, "buffer": 64 / 120}


def test_rewrites_follow_the_phases_of_the_buffer() -> None:
    """16 rewrites a step fill 64 in 4 steps; 88 people's prompts then last 22 steps; 8 after that.

    The buffer of 64 is scored anew every fifth step, if at all.
    """
    s = StreamSettings(**SMALL)
    found = [count_steps(s, first, first + 9, evolves=True) for first in (1, 11, 21, 31)]
    assert [f.children for f in found] == [160, 160, 6 * 16 + 4 * 8, 80]
    assert [f.scored for f in found] == [f.children for f in found]
    anew = StreamSettings(**SMALL | {"rescore_every": 5, "child_score": "parent"})
    assert count_steps(anew, 11, 20, evolves=True).scored == 2 * 64


def test_human_prompts_alone_are_not_evolved() -> None:
    found = count_steps(StreamSettings(**SMALL), 1, 10, evolves=False)
    assert (found.trained, found.children, found.scored) == (80, 0, 0)


def test_a_tree_asks_for_its_levels_and_has_the_upper_ones_judged() -> None:
    """Depth 3: of each chosen prompt 4 + 4 + 4 rewrites, of which the first 8 are scored."""
    s = StreamSettings(**SMALL | {"method": "tree_bon", "tree_depth": 3})
    found = count_steps(s, 1, 1, evolves=True)
    assert (found.children, found.judged) == (48, 32)


def online_stages(planner: Planner, size: int, prompts: str = "eva", **online: Any) -> list[Any]:
    recipe = Recipe.model_validate(
        {"algorithm": "rloo", "chain": (), "online": {"prompts": prompts, "size": size} | online}
    )
    run = planner.run(f"rloo-{prompts}-{size}x", recipe, 0)
    return [stage for stage in Plan(run.targets) if stage.kind == "online"]


def test_the_creator_is_asked_about_48_000_times_to_3x(planner: Planner, priced: Priced) -> None:
    """Warm-up 200 steps and mix-up 2,100 with 16 rewrites each, bootstrap to 3,750 with 8.

    2,300 x 16 + 1,450 x 8 = 48,400 rewrites, and a tenth of them asked for again.
    """
    found = priced(online_stages(planner, 3))
    (call,) = found.usd.calls
    assert call.requests == pytest.approx(48_400 * 1.1)


def test_checkpoints_of_one_run_cost_what_the_longest_does(
    planner: Planner, priced: Priced
) -> None:
    one, three = online_stages(planner, 1), online_stages(planner, 3)
    together, alone = (priced(stages) for stages in (one + three, three))
    assert together.gpu_hours.known == pytest.approx(alone.gpu_hours.known)
    assert together.usd.known == alone.usd.known


def test_a_segment_keeps_policy_and_moments_and_asks_nobody_on_human_prompts(
    planner: Planner, costing: Costing
) -> None:
    """9.24 billion parameters at 2 + 8 bytes: 92 GB for each segment."""
    stage = online_stages(planner, 1, "human")[0]
    found = costing.cost(stage)
    assert found.calls == ()
    assert found.kept == 10 * 9_241_705_984
    evolving = costing.cost(online_stages(planner, 1)[0])
    rolled_out = [sum(load.tokens for load in of.loads) for of in (found, evolving)]
    assert rolled_out[0] < rolled_out[1]


@pytest.mark.parametrize("budget", ["steps", "rollouts", "tokens"])
def test_the_parts_of_a_budget_train_on_as_much_as_the_human_prompts_it_is_for(
    planner: Planner, costing: Costing, budget: str
) -> None:
    league = {"budget": budget, "visits": 1, "marks": 2}
    parts = online_stages(planner, 1, "pool", league=league)
    trained = [
        [load.tokens for of in map(costing.cost, stages) for load in of.loads
         if load.verb == "training"]
        for stages in (parts, online_stages(planner, 1, "human"))
    ]  # fmt: skip
    assert trained[0] == [sum(trained[1]) / 2] * 2


def test_a_tree_asks_the_creator_for_each_level_and_the_scorer_twice_about_the_upper_ones(
    planner: Planner, costing: Costing
) -> None:
    """48 rewrites a step, a tenth of them asked for again; 32 are judged by two questions."""
    stage = online_stages(planner, 1, method="tree_bon", tree_depth=3)[0]
    steps = stage.settings["last_step"]
    creator, scorer = costing.cost(stage).calls
    assert steps == 125
    assert creator.requests == pytest.approx(125 * 48 * 1.1)
    assert (scorer.role, scorer.requests) == ("scorer", 125 * 32 * 2)
