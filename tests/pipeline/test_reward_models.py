"""Laws of reward models as stages: how they are planned, trained, named and measured."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from computing import given, read_json, run_stage
from pydantic import ValidationError

from harness.pipeline.algorithm import Planner
from harness.pipeline.factory import TRAINING, reward_models_named
from harness.pipeline.runs import plan_table
from harness.pipeline.studies import plan_study
from harness.registry.profile import Profile
from harness.registry.profile import unsupported as lacking
from harness.registry.recipe import Online, Recipe
from harness.registry.schema import Table
from harness.report.build import assumptions_of
from harness.runtime import Plan
from harness.runtime.stage import Json
from harness.worlds.embedded import files
from harness.worlds.embedded.reward import (
    REWARD_MODELS,
    best_of_n_stage,
    held_out_pairs,
    held_out_stage,
    in_order,
    reward_model_stage,
)
from harness.worlds.embedded.world import EmbeddedWorld
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_rows

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture
def planner(micro: Profile) -> Planner:
    return Planner(world_of(micro))


def dpo(role: str, *chain: str) -> Recipe:
    return Recipe.model_validate(
        {"algorithm": "dpo", "chain": chain or ("human",), "reward_model": role}
    )


def test_a_graded_reward_model_is_an_input_of_what_it_annotates(planner: Planner) -> None:
    [iteration] = planner.run("graded", dpo("pointwise_brief_2"), 0).iterations
    [plain] = planner.run("plain", dpo("pointwise"), 0).iterations
    annotate = iteration.pairs.inputs["rewards"]
    model = annotate.inputs["reward_model"]
    assert annotate.settings == {}
    assert model.kind == "reward_model"
    assert model.inputs == {}
    assert model.settings == {
        **TRAINING,
        "policy": files.card().identity("theta0"),
        "steps": 120,
        "flipped": 0.1,
        "warmup_steps": 12,
    }
    # The same prompts, answered by the same policy.
    assert annotate.inputs["completions"] == plain.pairs.inputs["completions"]
    assert plain.pairs.inputs["rewards"].inputs.keys() == {"completions"}


def test_online_training_reads_reward_models_from_files(micro: Profile) -> None:
    recipe = Recipe(algorithm="rloo", online=Online(), reward_model="pointwise_brief_1")
    assert lacking(recipe, [], micro) == [
        "`micro` trains the reward model `pointwise_brief_1`, which no file holds"
    ]
    assert lacking(dpo("pointwise_brief_1"), [], micro) == []


def test_a_reward_model_is_named_or_trained_and_not_both(micro: Profile) -> None:
    declared = micro.model_dump(by_alias=True)
    declared["trained_reward_models"]["pointwise"] = {"steps": 3, "flipped": 0.1}
    with pytest.raises(ValidationError, match="`pointwise` is named and trained"):
        Profile.model_validate(declared)


def test_reports_list_the_settings_of_the_reward_models_that_are_used(
    tables: dict[str, Table], micro: Profile
) -> None:
    """Table 4 annotates with the shipped model, and says nothing of the graded ones."""

    def listed(table: str, row: str) -> set[str]:
        runs = plan_table(tables[table], micro, (0,), [row])
        return {a.name for a in assumptions_of(runs) if "reward_models" in a.name}

    assert listed("table4", "dpo-1") == {"reward_models.pointwise"}
    assert listed("reward-models", "brief-1") == {
        "trained_reward_models.pointwise_brief_1.steps",
        "trained_reward_models.pointwise_brief_1.flipped",
    }


def test_reward_models_are_named_by_their_identity_or_by_how_they_are_trained(
    planner: Planner,
) -> None:
    runs = [planner.run(role, dpo(role), 0) for role in ("pointwise", "pointwise_noisy_2")]
    stages = list(Plan([stage for run in runs for stage in run.targets]))
    [trained] = [stage for stage in stages if stage.kind == "reward_model"]
    card = files.card()
    assert reward_models_named(stages) == [
        card.identity("rm_pointwise"),
        f"trained from {card.identity('theta0')} in 500 steps on labels 25% of which are wrong "
        f"({trained.fingerprint[:12]})",
    ]


def test_a_study_measures_each_reward_model_once_on_the_same_pairs_and_answers(
    planner: Planner, tables: dict[str, Table]
) -> None:
    """Three of four rows have a reward model, two of them trained; the base model has none."""
    table = tables["reward-models"]
    rows = [table.row(name) for name in ("base", "brief-1", "noisy-1", "pointwise")]
    study = plan_study(planner, table, rows, (0, 1))
    assert dict(study.roles) == {
        "brief-1": "pointwise_brief_1",
        "noisy-1": "pointwise_noisy_1",
        "pointwise": "pointwise",
    }
    kinds = Counter(stage.kind for stage in Plan(study.targets))
    assert kinds == {
        "reward_model": 2,
        "held_out": 3,
        "prompts": 2,
        "generate": 2,
        "annotate": 6,
        "best_of_n": 6,
    }
    tested = [{**s.settings, "reward_model": None} for s in study.held_out.values()]
    asked = {"reads": "one answer", "held_out": 2000, "seed": 0, "reward_model": None}
    assert tested == [asked] * 3
    for seed in (0, 1):
        answers = {s.inputs["completions"] for (_, of), s in study.best_of_n.items() if of == seed}
        assert len(answers) == 1


def test_a_pairwise_reward_model_reads_two_answers(
    planner: Planner, tables: dict[str, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedWorld, "reward_model", lambda self, role: f"toy/rm_{role}")
    table = tables["reward-models"]
    study = plan_study(planner, table, [table.row("pairwise")], (0,))
    assert study.held_out["pairwise"].settings["reads"] == "two answers"
    rewards = study.best_of_n["pairwise", 0].inputs["rewards"]
    assert rewards.settings["rewards"] == "win_probability"


def settings(**changes: Any) -> dict[str, Json]:
    small: dict[str, Json] = {
        **TRAINING,
        "batch_size": 4,
        "pool_batches": 2,
        "policy": files.card().identity("theta0"),
        "steps": 3,
        "flipped": 0.1,
        "warmup_steps": 1,
    }
    return small | changes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stage(reward_model_stage, tmp_path_factory.mktemp("rm") / "a", settings(), {})


def test_a_reward_model_is_the_same_each_time_and_another_with_other_labels(
    trained: Path, tmp_path: Path
) -> None:
    """The stage's own seed plays no part: all that decides is in the settings."""
    again = run_stage(reward_model_stage, tmp_path / "b", settings(), {}, seed=7)
    noisy = run_stage(reward_model_stage, tmp_path / "c", settings(flipped=0.4), {})
    weights = [
        (folder / "model" / "model.safetensors").read_bytes() for folder in (trained, again, noisy)
    ]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]
    log = read_json(trained / "log.json")
    assert [point["step"] for point in log["history"]] == [1, 2, 3]
    assert log["summary"] == {"steps": 3, "loss_last": log["history"][-1]["loss"]}


def test_accuracy_is_the_mean_of_what_is_written_for_each_pair(
    trained: Path, tmp_path: Path
) -> None:
    asked: dict[str, Json] = {"reads": "one answer", "held_out": 70, "seed": 0}
    out = run_stage(held_out_stage, tmp_path / "graded", asked, {"reward_model": trained})
    rows = read_rows(out / "scores.parquet")
    assert len({row["prompt_id"] for row in rows}) == len(rows) == 70
    assert {row["column"] for row in rows} == {"rm_accuracy"}
    assert {row["value"] for row in rows} <= {0.0, 1.0}
    config = replace(REWARD_MODELS["pointwise"], held_out=70)
    right = in_order(trained / "model", config, held_out_pairs(config))
    assert [row["value"] for row in rows] == [float(one) for one in right]
    assert read_json(out / "summary.json") == {"pairs": 70, "right": sum(right)}


def test_the_best_of_n_is_the_answer_of_highest_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers say their own score.

    Prompt 0: rewards 1, 3, 2 choose 0.5; prompt 1: a tie at 2 chooses the first, 0.9. The mean of
    all six is 0.5, of the best 0.8 and 0.9 it is 0.85.
    """
    monkeypatch.setattr(
        "harness.worlds.embedded.language.score", lambda prompt, answer: float(answer)
    )
    said = {("p0", 0): ("0.2", 1.0), ("p0", 1): ("0.5", 3.0), ("p0", 2): ("0.8", 2.0),
            ("p1", 0): ("0.9", 2.0), ("p1", 1): ("0.0", 2.0), ("p1", 2): ("0.6", 1.0)}  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"prompt_id": name, "sample": i, "prompt": "now reverse-5", "completion": text, "reward": r}
        for (name, i), (text, r) in said.items()
    ]
    inputs = {name: given(tmp_path / name, name, rows) for name in ("completions", "rewards")}
    out = run_stage(best_of_n_stage, tmp_path / "out", {"judge": "toy-1/oracle"}, inputs)
    assert read_rows(out / "scores.parquet") == [
        {"prompt_id": "p0", "column": "best_of_n", "value": 0.5},
        {"prompt_id": "p1", "column": "best_of_n", "value": 0.9},
    ]
    assert read_json(out / "summary.json") == {
        "n": 3,
        "judge": "toy-1/oracle",
        "chosen": pytest.approx(0.7),
        "mean_answer": pytest.approx(0.5),
        "best_by_judge": pytest.approx(0.85),
    }
