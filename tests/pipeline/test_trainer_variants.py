"""Laws of training from scratch, of the rewriter and of evolving methods, on real small runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import computing
import pytest
from computing import compute, evolve_of, rows

from harness.pipeline import steps
from harness.pipeline.algorithm import Planner, Run
from harness.registry.profile import Profile, find_profile, load_profiles
from harness.registry.recipe import Creator, Recipe
from harness.runtime import StageContext, Store
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.stage_io import read_rows

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def small() -> Profile:
    """The embedded profile with 16 prompts an iteration, two answers each, and no benchmarks."""
    return computing.small(find_profile(load_profiles(), "micro"))


def planned(profile: Profile, **changes: Any) -> Run:
    creator = Creator(method=changes.pop("method", "evol_instruct"), metric="uniform")
    recipe = Recipe(algorithm="dpo", chain=("human", "eva"), creator=creator, **changes)
    return Planner(world_of(profile)).run("run", recipe, 0)


@pytest.fixture(scope="module")
def runs(small: Profile) -> dict[str, Run]:
    return {
        "plain": planned(small),
        "scratch": planned(small, train="scratch"),
        "rewriter": planned(small, rewriter=True),
        "self_instruct": planned(small, method="self_instruct"),
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
    path = store.open(after.fingerprint) / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    same = [one["chosen"] == other["chosen"] for one, other in zip(old, new, strict=True)]
    assert summary["unchanged"] == sum(same)
    mean = sum(row["reward_chosen"] for row in new) / len(new)
    assert summary["reward_after"] == pytest.approx(mean)
    assert runs["rewriter"].training[-1].inputs["policy"] == runs["plain"].training[0]


def test_self_instruct_children_are_all_of_the_sampled_prompt(
    runs: dict[str, Run], store: Store
) -> None:
    stage = evolve_of(runs["self_instruct"])
    children = read_rows(store.open(stage.fingerprint) / "prompts.parquet")
    assert {child["generation"] for child in children} == {1}
    assert {child["method"] for child in children} == {"new"}
    assert stage.settings["shape"] == "independent"


def test_prompts_of_a_benchmark_are_its_first_turns(small: Profile, tmp_path: Path) -> None:
    identity = world_of(small).benchmark("validation")
    steps.prompts_stage(StageContext({"benchmark": identity}, {}, tmp_path, 0))
    rows = read_rows(tmp_path / "prompts.parquet")
    items = runtime_of(identity).questions(identity)
    assert [(row["prompt_id"], row["prompt"]) for row in rows] == [
        (item.item_id, item.turn_1) for item in items
    ]
    assert {row["source"] for row in rows} == {"benchmark"}


def test_pairs_are_gone_over_again_until_they_are_as_many(
    runs: dict[str, Run], store: Store, tmp_path: Path
) -> None:
    stage = runs["plain"].iterations[0].pairs
    before = rows(store, stage, "pairs")
    inputs = {"pairs": store.open(stage.fingerprint)}
    size = 2 * len(before) + 3
    steps.repeat_stage(StageContext({"size": size}, inputs, tmp_path, 7))
    found = [row["prompt_id"] for row in read_rows(tmp_path / "pairs.parquet")]
    ids = sorted(row["prompt_id"] for row in before)
    assert len(found) == size
    assert [sorted(found[i : i + len(ids)]) for i in (0, len(ids))] == [ids, ids]
