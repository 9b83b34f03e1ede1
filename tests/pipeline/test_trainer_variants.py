"""Laws of what recipes vary, from scratch training to shuffled values, on real small runs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import computing
import numpy as np
import pytest
from computing import compute, evolve_of, online_rows, rows, run_stage, summary

from harness.eva.informativeness import informativeness
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.steps import prompts_stage
from harness.registry.profile import Profile
from harness.registry.recipe import Creator, Online, Recipe
from harness.runtime import Plan, Store
from harness.worlds.embedded.choosing import mean_taught, names_of, taught_by_name
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.stage_io import read_rewards, read_rows

X = 16

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def small(micro: Profile) -> Profile:
    """The embedded profile with 16 prompts an iteration, two answers each, and no benchmarks."""
    return computing.small(micro, X)


@pytest.fixture(scope="module")
def runs(small: Profile) -> dict[str, Run]:
    def planned(recipe: Recipe) -> Run:
        return Planner(world_of(small)).run("run", recipe, 0)

    def offline(creator: Any = None, **changes: Any) -> Run:
        settings = Creator(**{"metric": "uniform"} | (creator or {}))
        chain = {"algorithm": "dpo", "chain": ("human", "eva"), "creator": settings}
        return planned(Recipe.model_validate(chain | changes))

    chooses = {"oracle": "best", "parents": 6, "reach": "even", "evolutions": 6}
    online = Online(size=2, minibatch=4, buffer=0.5, n_new=2, oracle="worst", shuffled=True)
    return {
        "plain": offline(),
        "scratch": offline(train="scratch"),
        "rewriter": offline(rewriter=True),
        "self_instruct": offline({"method": "self_instruct"}),
        "shuffled": offline({"metric": "a_min", "shuffled": True}),
        "matched": offline(chain=("human", "select"), step_matched=True),
        "oracle": offline({**chooses, "evolved_share": 0.5}),
        "online": planned(Recipe(algorithm="rloo", online=online)),
    }


@pytest.fixture(scope="module")
def store(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Store:
    stages = (stage for run in runs.values() for stage in run.training)
    return compute(tmp_path_factory.mktemp("work"), *stages)


def test_scratch_trains_on_all_original_and_all_evolved_pairs(
    runs: dict[str, Run], store: Store
) -> None:
    joined = runs["scratch"].iterations[1].pairs
    parts = [rows(store, joined.inputs[name], "pairs") for name in ("base", "evolved")]
    assert joined.inputs["base"] == runs["scratch"].iterations[0].pairs
    found = sorted(json.dumps(row) for row in rows(store, joined, "pairs"))
    assert found == sorted(json.dumps(row) for part in parts for row in part)


def test_the_rewriter_changes_chosen_answers_alone_and_records_what_became_of_them(
    runs: dict[str, Run], store: Store
) -> None:
    after = runs["rewriter"].iterations[1].pairs
    before = after.inputs["pairs"]
    assert before == runs["plain"].iterations[1].pairs
    old, new = rows(store, before, "pairs"), rows(store, after, "pairs")
    touched = {"chosen", "reward_chosen"}
    for one, other in zip(old, new, strict=True):
        assert {k: v for k, v in one.items() if k not in touched} == {
            k: v for k, v in other.items() if k not in touched
        }
    said = summary(store, after)
    same = [one["chosen"] == other["chosen"] for one, other in zip(old, new, strict=True)]
    assert said["unchanged"] == sum(same) < len(same)
    mean = sum(row["reward_chosen"] for row in new) / len(new)
    assert said["reward_after"] == pytest.approx(mean)
    assert runs["rewriter"].training[-1].inputs["policy"] == runs["plain"].training[0]


def test_self_instruct_children_are_all_of_the_sampled_prompt(
    runs: dict[str, Run], store: Store
) -> None:
    stage = evolve_of(runs["self_instruct"])
    children = rows(store, stage, "prompts")
    assert {child["generation"] for child in children} == {1}
    assert {child["method"] for child in children} == {"new"}
    assert stage.settings["shape"] == "independent"


def test_a_shuffled_choice_has_the_values_of_the_metric_for_other_prompts(
    runs: dict[str, Run], store: Store
) -> None:
    """Each value drawn is one of the gaps, and as often at most as it stands among them.

    But hardly one is the gap of the prompt that is drawn by it.
    """
    [select] = [stage for stage in Plan(runs["shuffled"].training) if stage.kind == "select"]
    ids, rewards = read_rewards(store.open(select.inputs["rewards"].fingerprint))
    gaps = dict(zip(ids, informativeness(rewards, "a_min"), strict=True))
    drawn = rows(store, select, "selected")
    assert len(drawn) == X // 4
    assert Counter(row["informativeness"] for row in drawn) <= Counter(gaps.values())
    assert sum(row["informativeness"] == gaps[row["prompt_id"]] for row in drawn) <= 1


def test_a_step_matched_quarter_is_gone_over_four_times(runs: dict[str, Run], store: Store) -> None:
    repeated = rows(store, runs["matched"].iterations[1].pairs, "pairs")
    assert [*Counter(row["prompt_id"] for row in repeated).values()] == [4] * (X // 4)


def test_a_quarter_of_x_is_chosen_from_six_times_as_many(
    runs: dict[str, Run], store: Store
) -> None:
    """And as the probe of the policy has it, they teach more than the pool does."""
    choose = evolve_of(runs["oracle"]).inputs["selected"]
    chosen = rows(store, choose, "selected")
    pool = [row["prompt"] for row in rows(store, choose.inputs["prompts"], "prompts")]
    assert len(pool) == len(set(pool)) == 6 * X
    assert len({row["prompt"] for row in chosen} & set(pool)) == len(chosen) == X // 4
    measured = rows(store, choose.inputs["probe"], "names")
    taught = taught_by_name({row["name"]: row["right"] for row in measured})
    means = [mean_taught(names_of(row["prompt"]), taught) for row in chosen]
    assert means == [row["informativeness"] for row in chosen]
    assert np.mean(means) > np.mean([mean_taught(names_of(text), taught) for text in pool])


def test_an_online_run_goes_to_its_end_with_the_oracle_in_place_of_the_metric(
    runs: dict[str, Run], store: Store
) -> None:
    """Rewrites are valued by their text, so that nothing is rolled out but what is trained on."""
    trained = online_rows(store, runs["online"])
    assert len(trained) == 2 * X
    assert sum(row["generation"] > 0 for row in trained) > 0
    said = summary(store, runs["online"].training[-1])
    assert said["children"] > 0
    assert said["rollouts"] == 6 * 2 * X


def test_prompts_of_a_benchmark_are_its_first_turns(small: Profile, tmp_path: Path) -> None:
    identity = world_of(small).benchmark("validation")
    out = run_stage(prompts_stage, tmp_path / "out", {"benchmark": identity})
    asked = read_rows(out / "prompts.parquet")
    items = runtime_of(identity).questions(identity)
    assert [(row["prompt_id"], row["prompt"]) for row in asked] == [
        (item.item_id, item.turn_1) for item in items
    ]
    assert {row["source"] for row in asked} == {"benchmark"}
