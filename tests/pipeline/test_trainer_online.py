"""Laws of online runs: shared segments, costs that add up, and an end that no cut changes."""

from pathlib import Path
from typing import Any

import pytest
from computing import compute, online_rows, small, summary

from harness.errors import UserError
from harness.pipeline.algorithm import Planner, Run, training_settings
from harness.pipeline.runs import plan_table
from harness.registry.profile import Profile
from harness.registry.recipe import Online, Recipe
from harness.registry.schema import Table
from harness.runtime import Plan
from harness.worlds.lookup import world_of

EVA = {"buffer": 0.5, "n_new": 2, "n_new_bootstrap": 1, "minibatch": 4}

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs, so that one that two tests ask for is trained once."""
    return tmp_path_factory.mktemp("online")


def planned(profile: Profile, algorithm: str = "rloo", **online: Any) -> Run:
    recipe = Recipe(algorithm=algorithm, online=Online(**EVA | online))  # type: ignore[arg-type]
    return Planner(world_of(profile)).run("run", recipe, 0)


def test_table_1_trains_thirteen_segments_a_seed_and_table_8_nine_others(
    tables: dict[str, Table], micro: Profile
) -> None:
    """RLOO: 6 on human prompts (1x is the first) and 3 of eva; OAIF: 1 and 3.

    Table 8's baseline and default settings are table 1's; it has 3 other settings of 3 segments.
    """

    def segments(name: str, *seeds: int) -> set[str]:
        plan = Plan(plan_table(tables[name], micro, seeds).targets)
        return {stage.fingerprint for stage in plan if stage.kind == "online"}

    assert len(segments("table1", 0, 1)) == 2 * 13
    assert len(segments("table8", 0) - segments("table1", 0)) == 3 * 3


def test_a_constant_schedule_is_the_same_for_every_size_and_a_falling_one_spans_the_run(
    micro: Profile,
) -> None:
    """X = 1000 in mini-batches of 8 is 125 steps; 3x is 375, 6x is 750; warm-up is 3%."""
    hyper = micro.training.rloo
    assert hyper is not None
    sizes = [Online(prompts="human", size=size) for size in (1, 6)]
    constant = [training_settings(hyper, online, 1000) for online in sizes]
    assert constant[0] == constant[1]
    assert (constant[0]["warmup_steps"], constant[0]["schedule_steps"]) == (11, 375)
    cosine = hyper.model_copy(update={"lr_scheduler": "cosine"})
    spans = [training_settings(cosine, online, 1000)["schedule_steps"] for online in sizes]
    assert spans == [375, 750]


@pytest.mark.parametrize(
    ("online", "words"),
    [
        ({"minibatch": 3, "ratio_evol": 0, "evolve_share": 1}, "no whole number of mini-batches"),
        ({"buffer": 0.1}, "enlarge the buffer"),
    ],
)
def test_impossible_settings_are_refused_before_anything_runs(
    micro: Profile, online: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        planned(small(micro), **online)


@pytest.mark.parametrize("algorithm", ["rloo", pytest.param("oaif", marks=pytest.mark.slow)])
def test_a_run_in_more_segments_ends_with_the_same_policy(
    algorithm: str, micro: Profile, work: Path
) -> None:
    """Two x in 2 and in 4 segments: the same prompts, costs and weights, to the last bit."""
    whole = planned(small(micro), algorithm, size=2)
    cut = planned(small(micro, segments=2), algorithm, size=2)
    store = compute(work, *whole.training, *cut.training)
    assert online_rows(store, whole) == online_rows(store, cut)
    ends = [summary(store, run.training[-1]) for run in (whole, cut)]
    for name in ("rollouts", "tokens", "gradient_steps", "creator_calls", "buffer"):
        assert ends[0][name] == ends[1][name]
    weights = [
        (store.open(run.training[-1].fingerprint) / "model/model.safetensors").read_bytes()
        for run in (whole, cut)
    ]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("repeats", [{"size": 2}, {"passes": 2}], ids=["size", "passes"])
def test_more_human_prompts_are_new_ones_and_another_pass_is_the_same_in_another_order(
    repeats: dict[str, Any], micro: Profile, work: Path
) -> None:
    run = planned(small(micro), prompts="human", **repeats)
    ids = [row["prompt_id"] for row in online_rows(compute(work, *run.training), run)]
    assert len(ids) == 32
    if "size" in repeats:
        assert len(set(ids)) == 32
    else:
        assert sorted(ids[:16]) == sorted(ids[16:])
        assert ids[:16] != ids[16:]


def test_costs_count_training_prompts_and_rewrites(micro: Profile, work: Path) -> None:
    """Mini-batches of 4, 6 rollouts each: 24 a step, and 6 for every rewrite that came in."""
    run = planned(small(micro), size=2)
    store = compute(work, *run.training)
    said = [summary(store, stage) for stage in run.training]
    rows = online_rows(store, run)
    assert said[-1]["gradient_steps"] == 8
    assert said[-1]["weights"] == "embedded"
    assert said[-1]["rollouts"] == 8 * 24 + 6 * sum(segment["children"] for segment in said)
    assert said[-1]["creator_calls"] >= sum(s["children"] + s["dropped"] for s in said)
    assert [row["step"] for row in rows] == [step for step in range(1, 9) for _ in range(4)]
    assert len({row["prompt_id"] for row in rows}) == 32
    assert {row["source"] for row in rows if row["generation"] == 0} == {"human"}
    points = [p for stage in run.training for p in store.progress(stage.fingerprint)]
    assert [point.step for point in points] == list(range(1, 9))
    assert all(0 <= point.metrics["buffer/size"] <= 8 for point in points)
