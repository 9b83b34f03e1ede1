"""Real small runs in which the oracle chooses: parents from a larger pool, and in the buffer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from computing import compute

from harness.pipeline.algorithm import Planner, Run
from harness.registry.profile import Profile
from harness.registry.recipe import Creator, Online, Recipe
from harness.runtime import Stage, Store
from harness.worlds.embedded.choosing import mean_taught, names_of, taught_by_name
from harness.worlds.embedded.language import parse
from harness.worlds.embedded.texts import TOPIC_OF
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import Rows, read_rows

X = 16

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def runs(micro: Profile) -> dict[str, Run]:
    """Offline and online, with 16 prompts an iteration and two answers each."""
    generation = micro.generation.model_copy(update={"n": 2})
    profile = micro.model_copy(update={"x": X, "benchmarks": {}, "generation": generation})
    planner = Planner(world_of(profile))
    creator = Creator(
        metric="uniform", oracle="best", parents=6, reach="even", evolutions=6, evolved_share=0.5
    )
    online = Online(size=2, minibatch=4, buffer=0.5, n_new=2, oracle="worst", shuffled=True)
    return {
        "offline": planner.run(
            "offline", Recipe(algorithm="dpo", chain=("human", "eva"), creator=creator), 0
        ),
        "online": planner.run("online", Recipe(algorithm="rloo", online=online), 0),
    }


@pytest.fixture(scope="module")
def store(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Store:
    stages = (stage for run in runs.values() for stage in run.training)
    return compute(tmp_path_factory.mktemp("work"), *stages)


def rows_of(store: Store, stage: Stage, file: str) -> Rows:
    return read_rows(store.open(stage.fingerprint) / f"{file}.parquet")


def evolve_of(runs: dict[str, Run]) -> Stage:
    evolved = runs["offline"].iterations[1].pairs.inputs["evolved"]
    return evolved.inputs["completions"].inputs["prompts"]


def test_a_quarter_of_x_is_chosen_from_six_times_as_many(
    runs: dict[str, Run], store: Store
) -> None:
    """And as the probe of the policy has it, they teach more than the pool does."""
    choose = evolve_of(runs).inputs["selected"]
    chosen = rows_of(store, choose, "selected")
    pool = [row["prompt"] for row in rows_of(store, choose.inputs["prompts"], "prompts")]
    assert len(pool) == len(set(pool)) == 6 * X
    assert len({row["prompt"] for row in chosen} & set(pool)) == len(chosen) == X // 4
    measured = rows_of(store, choose.inputs["probe"], "names")
    taught = taught_by_name({row["name"]: row["right"] for row in measured})
    means = [mean_taught(names_of(row["prompt"]), taught) for row in chosen]
    assert means == [row["informativeness"] for row in chosen]
    assert np.mean(means) > np.mean([mean_taught(names_of(text), taught) for text in pool])


def test_the_base_policy_answers_about_half_of_all_names_and_commoner_ones_better(
    runs: dict[str, Run], store: Store
) -> None:
    """As its card says: 84% right among the 30 best known names, 22% among the 30 least known."""
    probe = runs["online"].training[0].inputs["probe"]
    right = [row["right"] for row in rows_of(store, probe, "names")]
    assert len(right) == 240
    assert np.mean(right) == pytest.approx(0.5, abs=0.06)
    assert np.mean(right[:30]) == pytest.approx(0.84, abs=0.12)
    assert np.mean(right[-30:]) == pytest.approx(0.22, abs=0.12)


def test_a_creator_that_reaches_evenly_adds_names_of_many_topics(
    runs: dict[str, Run], store: Store
) -> None:
    evolve = evolve_of(runs)
    texts = [row["prompt"] for row in rows_of(store, evolve, "prompts")]
    parents = rows_of(store, evolve.inputs["selected"], "selected")
    tasks = [parse(text) for text in texts]
    topics = {TOPIC_OF[name] for task in tasks if task for name in task.names}
    assert len(topics) > 2 * len({TOPIC_OF[n] for row in parents for n in names_of(row["prompt"])})


def test_an_online_run_goes_to_its_end_with_the_oracle_in_place_of_the_metric(
    runs: dict[str, Run], store: Store
) -> None:
    """Rewrites are valued by their text, so that nothing is rolled out but what is trained on."""
    training = runs["online"].training
    rows = [row for stage in training for row in rows_of(store, stage, "trained")]
    assert len(rows) == 2 * X
    assert sum(row["generation"] > 0 for row in rows) > 0
    path = store.open(training[-1].fingerprint) / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    assert summary["children"] > 0
    assert summary["rollouts"] == 6 * 2 * X
