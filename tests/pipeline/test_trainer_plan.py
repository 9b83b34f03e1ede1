"""Laws of the plan: which stages a table needs, and which of them rows and seeds share."""

import json
from collections import Counter
from pathlib import Path

import pytest
from computing import evolve_of, run_stage
from world_of_names import write_world

from harness.errors import UserError
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.factory import KINDS
from harness.pipeline.runs import TableRuns, plan_table
from harness.pipeline.steps import FUNCTIONS, prompts_stage
from harness.registry.profile import Profile
from harness.registry.recipe import Creator, Recipe
from harness.registry.schema import Table
from harness.runtime import Plan, Stage
from harness.worlds.embedded import files
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_rows

SEEDS = (0, 1, 2)
X = 400

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def table4(tables: dict[str, Table]) -> Table:
    return tables["table4"]


@pytest.fixture(scope="module")
def planned(table4: Table, micro: Profile) -> TableRuns:
    return plan_table(table4, micro, SEEDS)


@pytest.fixture
def planner(micro: Profile) -> Planner:
    return Planner(world_of(micro))


def chain(planner: Planner, *arms: str, seed: int = 0) -> Run:
    """Plan a DPO chain with the default creator."""
    return planner.run("-".join(arms), Recipe(algorithm="dpo", chain=arms), seed)  # type: ignore[arg-type]


def distinct(runs: TableRuns | Run) -> dict[str, Stage]:
    """The distinct stages behind runs, by fingerprint."""
    return {stage.fingerprint: stage for stage in Plan(runs.targets)}


def test_table_4_over_three_seeds_takes_27_trainings_and_354_stages(planned: TableRuns) -> None:
    """Counted by hand, for each seed; seeds share no stage.

    dpo-1 cuts X_1 (1 prompts), answers and scores it with θ_0 (1 generate, 1 annotate), pairs and
    trains (1 pair, 1 train). All eight eva rows start from θ_1's answers to X_1, shared: 1
    generate, 1 annotate, and 1 pair for the unevolved part of the mix. Each of the eight then has
    its own 1 select, 1 evolve, 1 generate, 1 annotate, 1 pair, 1 mix and 1 train. Each of the nine
    policies answers three benchmarks (3 answer, 3 judge).

        prompts 1    generate 1 + 1 + 8 = 10    annotate 10    pair 10    select 8
        evolve 8     mix 8                      train 9        answer 27  judge 27    in all 118
    """
    kinds = Counter(stage.kind for stage in distinct(planned).values())
    by_hand = {
        "prompts": 1,
        "generate": 10,
        "annotate": 10,
        "pair": 10,
        "select": 8,
        "evolve": 8,
        "mix": 8,
        "train": 9,
        "answer": 27,
        "judge": 27,
    }
    assert sum(by_hand.values()) == 118
    assert kinds == {kind: 3 * count for kind, count in by_hand.items()}
    assert kinds["train"] == 9 * 3
    assert kinds.total() == 354
    selections = [s for s in distinct(planned).values() if s.kind == "select"]
    upstream = [{**s.settings, "metric": None, "in": s.record["inputs"]} for s in selections]
    assert len({json.dumps(one, sort_keys=True) for one in upstream}) == 3


def test_every_kind_of_stage_has_a_version_and_a_function() -> None:
    assert set(KINDS) == set(FUNCTIONS)


def test_asking_for_a_row_adds_its_baseline(table4: Table, micro: Profile) -> None:
    runs = plan_table(table4, micro, (0,), ["eva-a_min", "eva-var"])
    assert [row.id for row in runs.rows] == ["dpo-1", "eva-var", "eva-a_min"]


def test_what_cannot_be_planned_is_the_users_mistake(table4: Table, micro: Profile) -> None:
    two_arms = micro.model_copy(update={"arms": ("human",)})
    with pytest.raises(UserError, match=r"`table4` cannot run on the profile `micro`: .*eva"):
        plan_table(table4, two_arms, (0,))


def test_new_human_prompts_are_new_in_each_iteration(planner: Planner, tmp_path: Path) -> None:
    """Three iterations cut [0, X), [X, 2 X) and [2 X, 3 X) out of the seed's order of the pool."""
    run = chain(planner, "human", "human", "human", seed=4)
    cuts = [iteration.prompts for iteration in run.iterations]
    assert [(s.settings["first"], s.settings["count"]) for s in cuts] == [
        (0, X),
        (X, X),
        (2 * X, X),
    ]
    texts: list[str] = []
    for number, stage in enumerate(cuts):
        output = run_stage(prompts_stage, tmp_path / str(number), stage.settings)
        rows = read_rows(output / "prompts.parquet")
        assert {(row["source"], row["generation"], row["parent_id"]) for row in rows} == {
            ("human", 0, None)
        }
        texts += [row["prompt"] for row in rows]
    assert len(texts) == len(set(texts)) == 3 * X


def evolving(planner: Planner, seed: int = 0, size: int = 1, **creator: object) -> Run:
    """Plan one evolving iteration after a human one."""
    settings = Creator.model_validate({"metric": "uniform"} | creator)
    recipe = Recipe(algorithm="dpo", chain=("human", "eva"), size=size, creator=settings)
    return planner.run("evolving", recipe, seed)


def test_too_few_prompts_to_mix_after_a_selection_are_refused(planner: Planner) -> None:
    """A quarter is left of all, and a quarter of that evolves into four each: half, not all.

    Of six times as many parents, there are enough for 80% beside the quarter.
    """
    with pytest.raises(UserError, match="25% of the prompts left and evolves 25%, too few"):
        chain(planner, "human", "select", "eva")
    halves = Creator.model_validate({"metric": "uniform", "fraction": 0.5})
    twice = Recipe(algorithm="dpo", chain=("human", "select", "select", "eva"), creator=halves)
    with pytest.raises(UserError, match="25% of the prompts left and evolves 50%, too few"):
        planner.run("halves", twice, 0)
    settings = Creator.model_validate({"metric": "uniform", "parents": 6})
    recipe = Recipe(algorithm="dpo", chain=("human", "select", "eva"), creator=settings)
    assert planner.run("parents", recipe, 0).iterations[-1].prompts.kind == "mix"


def test_only_eva_iterations_are_rewritten(planner: Planner) -> None:
    recipe = Recipe(algorithm="dpo", chain=("human", "eva", "same", "eva"), rewriter=True)
    run = planner.run("revised", recipe, 0)
    assert [it.pairs.kind for it in run.iterations] == ["pair", "rewrite", "pair", "rewrite"]


def test_the_oracle_chooses_parents_by_what_the_policy_before_them_can_do(planner: Planner) -> None:
    """In place of the metric's choice, and of nothing else: no rewards are asked for."""
    run, uniform = evolving(planner, oracle="best"), evolving(planner)
    first = run.iterations[0]
    choose = evolve_of(run).inputs["selected"]
    assert (choose.kind, evolve_of(uniform).inputs["selected"].kind) == ("choose", "select")
    assert choose.settings == {"oracle": "best", "fraction": 0.25, "seed": 0}
    assert set(choose.inputs) == {"prompts", "probe"}
    assert choose.inputs["prompts"] == first.prompts
    probe = choose.inputs["probe"]
    assert probe.kind == "probe"
    assert probe.inputs == {"policy": first.policy}
    assert probe.settings == planner.profile.generation.model_dump()
    assert evolve_of(run).settings == evolve_of(uniform).settings
    assert first == uniform.iterations[0]


def test_labels_say_what_a_stage_is_and_are_not_identity(planner: Planner) -> None:
    one, other = chain(planner, "human"), planner.run(
        "another name", Recipe(algorithm="dpo", chain=("human",)), 0
    )  # fmt: skip
    assert one.targets == other.targets
    assert one.training[0].label == "seed 0 · human · 1 · train"
    assert other.training[0].label == "seed 0 · another name · 1 · train"


def test_the_same_world_elsewhere_is_the_same_and_another_policy_keeps_the_prompts_alone(
    table4: Table, micro: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning reads identities from the card alone, so that worlds of a few bytes will do."""

    def planned_in(name: str) -> dict[str, Stage]:
        monkeypatch.setenv("HARNESS_WORLD", str(tmp_path / name))
        return distinct(plan_table(table4, micro, (0,)))

    for name in ("here", "elsewhere", "other"):
        write_world(tmp_path / name)
    (tmp_path / "other" / "theta0" / "model.safetensors").write_bytes(b"other weights")
    files.write_card(tmp_path / "other", {})
    here, other = planned_in("here"), planned_in("other")
    assert here.keys() == planned_in("elsewhere").keys()
    assert {here[f].kind for f in here.keys() & other.keys()} == {"prompts"}
