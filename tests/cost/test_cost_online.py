"""The steps of an online run are counted as the stream itself takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.cost.assumptions import Hardware
from harness.cost.pricing import price
from harness.cost.work import Costing, count_steps, stage_cost
from harness.eva.evolving import Prompt, Rewrite
from harness.eva.stream import PromptStream, StreamSettings
from harness.pipeline.algorithm import Planner
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.runtime import Plan

SMALL: dict[str, Any] = {"x": 120, "buffer": 64 / 120}


class Willing:
    """A creator that always rewrites."""

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        return Rewrite(f"{prompt} {rng.integers(10**9)}", "deepening")


def simulated(s: StreamSettings, steps: int) -> list[tuple[int, int]]:
    """Return children and scored prompts of each step of a real stream."""
    rng = np.random.default_rng(0)
    human = [Prompt(f"h{i}", f"human {i}") for i in range(s.x)]
    stream = PromptStream(s, human, Willing(), 0, quality=len)
    found = []
    for _ in range(steps):
        batch = stream.draw()
        fed = stream.feed(rng.random((len(batch.prompts), 2)), lambda p: rng.random((len(p), 2)))
        found.append((len(fed.children), fed.scored))
    return found


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ratio_evol": 0.25},
        {"n_new": 8, "n_new_bootstrap": 4},
        {"warm_up": 6 * 8 / 120},
        {"child_score": "parent"},
        {"rescore_every": 5},
        {"buffer_holds": "evolved_and_human"},
        {"evolve_share": 0.25},
    ],
)
def test_steps_are_counted_as_the_stream_takes_them(changed: dict[str, Any]) -> None:
    """In every segment of 10 steps, over warm-up, mix-up and bootstrap."""
    s = StreamSettings(**SMALL | changed)
    steps = simulated(s, 60)
    for first in range(1, 60, 10):
        children, scored = (
            sum(column) for column in zip(*steps[first - 1 : first + 9], strict=True)
        )
        found = count_steps(s, first, first + 9, evolves=True)
        assert (found.children, found.scored) == (children, scored)
        assert (found.steps, found.trained, found.judged) == (10, 80, 0)


def test_human_prompts_alone_are_not_evolved() -> None:
    found = count_steps(StreamSettings(**SMALL), 1, 10, evolves=False)
    assert (found.trained, found.children, found.scored) == (80, 0, 0)


def test_a_tree_asks_for_its_levels_and_has_the_upper_ones_judged() -> None:
    """Depth 3: of each chosen prompt 4 + 4 + 4 rewrites, of which the first 8 are scored."""
    s = StreamSettings(**SMALL | {"method": "tree_bon", "tree_depth": 3})
    found = count_steps(s, 1, 1, evolves=True)
    assert (found.children, found.judged) == (48, 32)


def online_stages(planner: Planner, size: int, prompts: str = "eva") -> list[Any]:
    recipe = Recipe.model_validate(
        {"algorithm": "rloo", "chain": (), "online": {"prompts": prompts, "size": size}}
    )
    run = planner.run(f"rloo-{prompts}-{size}x", recipe, 0)
    return [stage for stage in Plan(run.targets) if stage.kind == "online"]


def test_the_creator_is_asked_about_48_000_times_to_3x(
    planner: Planner, paper: Profile, h100s: Hardware
) -> None:
    """Warm-up 200 steps and mix-up 2,100 with 16 rewrites each, bootstrap to 3,750 with 8.

    2,300 x 16 + 1,450 x 8 = 48,400 rewrites, and a tenth of them asked for again.
    """
    found = price(online_stages(planner, 3), paper, h100s)
    (call,) = found.usd.calls
    assert call.requests == pytest.approx(48_400 * 1.1)


def test_checkpoints_of_one_run_cost_what_the_longest_does(
    planner: Planner, paper: Profile, h100s: Hardware
) -> None:
    one, three = online_stages(planner, 1), online_stages(planner, 3)
    together, alone = (price(stages, paper, h100s) for stages in (one + three, three))
    assert together.gpu_hours.known == pytest.approx(alone.gpu_hours.known)
    assert together.usd.known == alone.usd.known


def test_a_segment_keeps_policy_and_moments_and_asks_nobody_on_human_prompts(
    planner: Planner, costing: Costing
) -> None:
    """9.24 billion parameters at 2 + 8 bytes: 92 GB for each segment."""
    stage = online_stages(planner, 1, "human")[0]
    found = stage_cost(costing, stage)
    assert found.calls == ()
    assert found.kept == 10 * 9_241_705_984
    evolving = stage_cost(costing, online_stages(planner, 1)[0])
    rolled_out = [sum(load.tokens for load in of.loads) for of in (found, evolving)]
    assert rolled_out[0] < rolled_out[1]
