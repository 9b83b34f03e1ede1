"""Real small runs in which the oracle chooses: parents from a larger pool, and in the buffer."""

from __future__ import annotations

import numpy as np
import pytest
from computing import compute, evolve_of, online_rows, rows, small, summary

from harness.pipeline.algorithm import Planner, Run
from harness.registry.profile import Profile
from harness.registry.recipe import Creator, Online, Recipe
from harness.runtime import Store
from harness.worlds.embedded.choosing import mean_taught, names_of, taught_by_name
from harness.worlds.lookup import world_of

X = 16

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def runs(micro: Profile) -> dict[str, Run]:
    """Offline and online, with 16 prompts an iteration and two answers each."""
    planner = Planner(world_of(small(micro, X)))
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


def test_a_quarter_of_x_is_chosen_from_six_times_as_many(
    runs: dict[str, Run], store: Store
) -> None:
    """And as the probe of the policy has it, they teach more than the pool does."""
    choose = evolve_of(runs["offline"]).inputs["selected"]
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
