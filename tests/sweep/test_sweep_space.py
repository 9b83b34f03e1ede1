"""From points to recipes and profiles, and the points that are impossible."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_sweep import METRIC, SHARE, choice, micro, order_of, toy

from harness.errors import UserError
from harness.pipeline.algorithm import Iteration, Run
from harness.registry.profile import load_profiles
from harness.registry.recipe import Recipe
from harness.runtime import EngineOptions, Plan, Stage, Store
from harness.sweep.conduct import Order, shared_stages, stored_report
from harness.sweep.declaration import load_sweeps
from harness.sweep.space import (
    BASE,
    VALIDATION,
    base_candidate,
    candidate,
    grid,
    objective_value,
    point_text,
    points,
    validation_runs,
)

ONLINE = {"algorithm": "rloo", "online": {"prompts": "eva"}}
RATIO = "recipe.online.ratio_evol"


def test_a_point_is_laid_over_recipe_and_profile() -> None:
    known = micro()
    sweep = toy(space={SHARE: choice(0.2, 0.4), "profile.training.dpo.beta": choice(0.1, 0.5)})
    found = candidate(sweep, micro(), {SHARE: 0.4, "profile.training.dpo.beta": 0.5})
    assert found.recipe.creator.evolved_share == 0.4
    assert found.recipe.chain == ("human", "eva")
    assert found.profile.training.dpo is not None
    assert found.profile.training.dpo.beta == 0.5
    assert micro() == known


@pytest.mark.parametrize(
    ("recipe", "space", "words"),
    [
        (ONLINE, {RATIO: choice(0.5, 1.5)}, "less than or equal to 1"),
        (ONLINE, {RATIO: choice(0.5, 0.3)}, "of a mini-batch of 8 is 2.4 prompts"),
        (ONLINE, {RATIO: {"suggest_float": {"low": 0.0, "high": 1.0}}}, "not a whole number"),
        (ONLINE, {"recipe.online.n_new": {"suggest_int": {"low": 0, "high": 4}}}, "n_new 0"),
        (ONLINE, {"recipe.online.buffer": choice(0.001, 0.32)}, "buffer 0.001"),
        (ONLINE, {"recipe.online.minibatch": choice(8, 24)}, "minibatch 24"),
        (None, {"recipe.creator.fraction": choice(0.1, 0.25)}, "40% of the mix"),
        (None, {"profile.training.dpo.beta": choice(0.1, -1.0)}, "greater than 0"),
    ],
)
def test_an_impossible_point_is_found_before_anything_runs(
    recipe: dict[str, Any] | None, space: dict[str, Any], words: str
) -> None:
    """Each is impossible for a reason of its own.

    Among them: a buffer of 0.001 x 1000 = 1 prompt for mini-batches of 8; mini-batches of 24,
    which do not divide 1000; 0.1 x 4 = 40% of the mix evolved where 80% are asked for.
    """
    sweep = toy(space=space, **({} if recipe is None else {"recipe": recipe}))
    with pytest.raises(UserError) as raised:
        shared_stages(sweep, micro())
    assert words in str(raised.value)
    assert "impossible" in str(raised.value)


def test_what_is_measured_after_more_training_than_a_point_has_is_impossible() -> None:
    """1x and 3x, one objective after 3x."""
    after = {"name": "win_rate", "measure": "val_wr", "direction": "maximize", "after": 3}
    recipe = {"algorithm": "rloo", "online": {"prompts": "eva", "size": 3}}
    sweep = toy(recipe=recipe, space={"recipe.online.size": choice(1, 3)}, objectives=[after])
    with pytest.raises(UserError, match=r"size 1, which is impossible: .* 3 of a training of 1"):
        shared_stages(sweep, micro())


def test_a_setting_the_profile_lacks_is_answered_with_the_nearest() -> None:
    """Only algorithms that a profile lists have settings there."""
    laptop = load_profiles()["laptop"]
    sweep = toy(space={"profile.training.simpo.beta": choice(0.1, 0.2)})
    with pytest.raises(UserError, match=r"does not have; did you mean `profile.training.dpo.beta"):
        shared_stages(sweep, laptop)


def test_a_grid_has_every_point_once_in_an_order_of_its_seed() -> None:
    one, other = (toy(sampler={"kind": "grid", "seed": seed}) for seed in (0, 1))
    key = repr
    assert sorted(grid(one), key=key) == sorted(points(one), key=key)
    assert grid(one) == grid(one)
    assert grid(one) != grid(other)


def test_a_point_is_shown_by_the_last_parts_of_its_paths() -> None:
    assert point_text({SHARE: 0.4, METRIC: "var"}) == "evolved_share 0.4, metric var"


def test_real_models_are_searched_by_reward_on_prompts_that_are_held_back() -> None:
    """Of six multiples of x at `paper` a trial trains on the first and is measured on the last."""
    paper = load_profiles()["paper"]
    sweep = toy()
    found = base_candidate(sweep, paper)
    run, *_ = validation_runs(sweep, found, "trial")
    assert {stage.kind for stage in run.judged.values()} == {"annotate"}
    assert not any(stage.kind == "judge" for stage in Plan(run.targets))
    drawn = {
        (stage.settings["first"], stage.settings["count"])
        for stage in Plan(run.targets)
        if stage.kind == "prompts"
    }
    assert drawn == {(0, paper.x), (5 * paper.x, paper.x)}


def test_what_only_the_embedded_world_measures_is_refused_elsewhere() -> None:
    paper = load_profiles()["paper"]
    exact = {"name": "exact", "measure": "val_exact", "direction": "maximize"}
    with pytest.raises(UserError, match="measures `val_exact`, which only the embedded world has"):
        shared_stages(toy(objectives=[exact]), paper)


def test_a_win_rate_by_reward_counts_prompts_and_half_of_ties(tmp_path: Path) -> None:
    """Means of 2, 1 and 3 against 1, 1 and 4: a win, a tie and a loss are 50 of 100."""
    rewards = {"own": [[2.0, 2.0], [0.0, 2.0], [3.0, 3.0]], "base": [[1.0], [1.0], [4.0]]}
    own, base = (Stage("annotate", 1, {"of": name}, {}) for name in rewards)
    run = Run("t", Recipe(), "p", 0, (), {VALIDATION: own, BASE: base}, (VALIDATION, BASE))
    store = Store(tmp_path)
    for stage, rows in zip((own, base), rewards.values(), strict=True):
        with store.writing(stage) as folder:
            table = [
                {"prompt_id": f"p{i}", "sample": j, "reward": value}
                for i, row in enumerate(rows)
                for j, value in enumerate(row)
            ]
            pq.write_table(pa.Table.from_pylist(table), folder / "rewards.parquet")
    assert objective_value("val_wr", run, store) == 50.0
    assert objective_value("val_score", run, store) == 2.0


def test_a_sweep_without_a_judge_needs_the_reward_model_that_compares() -> None:
    paper = load_profiles()["paper"]
    pairwise = {"pairwise": paper.reward_models["pairwise"]}
    sweep = toy(
        recipe={"algorithm": "sppo", "chain": ["human"], "reward_model": "pairwise"},
        space={"recipe.size": choice(1, 2)},
    )
    with pytest.raises(UserError, match="the reward model `pointwise`, which the profile"):
        shared_stages(sweep, paper.model_copy(update={"reward_models": pairwise}))


@pytest.mark.parametrize("name", ["micro", "paper"])
def test_the_online_sweep_can_be_planned_where_online_training_runs(name: str) -> None:
    sweep, profile = load_sweeps()["online-evolve"], load_profiles()[name]
    asked = points(sweep)
    assert len(asked) == sweep.trials == 12
    for point in asked:
        found = candidate(sweep, profile, point)
        assert found.recipe.online is not None
        (run,) = validation_runs(sweep, found, "trial")
        assert {"online"} <= {stage.kind for stage in Plan(run.targets)}


def test_what_the_trials_and_the_winner_need_is_known_before_the_first_stage() -> None:
    """At `paper` the trials ask a creator and the winner a judge; what all share asks neither."""
    sweep, paper = load_sweeps()["offline-evolve"], load_profiles()["paper"]
    kinds, without = (
        {stage.kind for stage in Order(sweep, paper, final=final).sample} for final in (True, False)
    )
    assert kinds - without == {"answer", "judge"}
    assert without - {stage.kind for stage in shared_stages(sweep, paper)} >= {"evolve"}


def test_a_profile_without_online_training_says_so() -> None:
    sweep = load_sweeps()["online-evolve"]
    with pytest.raises(UserError, match="`single-gpu` has no algorithm `rloo`"):
        candidate(sweep, load_profiles()["single-gpu"], points(sweep)[0])


def test_without_a_judge_a_policy_is_compared_with_the_base_model() -> None:
    paper = load_profiles()["paper"]
    run, *_ = validation_runs(toy(), base_candidate(toy(), paper), "trial")
    own, base = (run.judged[name].inputs["completions"] for name in (VALIDATION, BASE))
    assert own.inputs["policy"] == run.training[-1]
    assert "policy" not in base.inputs


def test_what_a_run_costs_is_what_its_last_segment_says(tmp_path: Path) -> None:
    """Counts go on from segment to segment."""
    first = Stage("online", 1, {"segment": 1}, {})
    last = Stage("online", 1, {"segment": 2}, {"before": first})
    store = Store(tmp_path)
    for stage, rollouts in ((first, 60), (last, 120)):
        with store.writing(stage) as folder:
            (folder / "summary.json").write_text(json.dumps({"rollouts": rollouts}))
    run = Run("t", Recipe(), "p", 0, tuple(Iteration(s, s, s) for s in (first, last)), {}, ())
    assert objective_value("rollouts", run, store) == 120.0


def test_jobs_are_workers_on_this_machine_and_a_cluster_packs_by_itself() -> None:
    assert order_of(toy(), jobs=3).engine().jobs == 3
    ray = EngineOptions(engine="ray")
    assert order_of(toy(), jobs=3, where=ray).engine().jobs == 3
    assert order_of(toy(), where=ray).engine().jobs is None


@pytest.mark.parametrize(("name", "held_out"), [("micro", False), ("paper", True)])
def test_a_report_knows_which_prompts_its_trials_are_measured_on(name: str, held_out: bool) -> None:
    assert stored_report(Order(toy(), load_profiles()[name])).held_out is held_out
