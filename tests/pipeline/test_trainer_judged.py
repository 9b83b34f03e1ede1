"""Laws of what is judged: a table's own benchmarks, prompts themselves, the downstream tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_trainer_plan import distinct, fill

from harness.errors import HarnessError
from harness.pipeline.algorithm import Planner
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import answer_seed, answer_stage, judge_stage, rate_stage
from harness.registry.profile import Profile, load_profiles
from harness.registry.recipe import Recipe
from harness.registry.schema import Table
from harness.runtime import Json, Plan, Stage, StageContext
from harness.worlds.embedded import texts
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.stage_io import Rows, read_rows, write_rows


@pytest.fixture(scope="module", autouse=True)
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A world of a few bytes, in use by every test here."""
    with pytest.MonkeyPatch.context() as patch:
        folder = fill(tmp_path_factory.mktemp("small") / "world")
        patch.setenv("HARNESS_WORLD", str(folder))
        yield


@pytest.fixture(scope="module")
def micro() -> Profile:
    return load_profiles()["micro"].model_copy(update={"x": 20})


def kinds(stages: Iterator[Stage] | list[Stage]) -> Counter[str]:
    return Counter(stage.kind for stage in stages)


# Which benchmarks.


def test_a_run_is_judged_on_the_benchmarks_of_its_tables_columns(
    tables: dict[str, Table], micro: Profile
) -> None:
    """One run stands in all three tables; equal steps of it are one stage."""
    asked = {
        name: plan_table(tables[name], micro, (0,), ["dpo-1"]).runs["dpo-h1", 0]
        for name in ("table4", "table9", "table12")
    }
    assert {name: set(run.asked) for name, run in asked.items()} == {
        "table4": {"arena_hard", "alpaca_eval", "mt_bench"},
        "table9": {"downstream"},
        "table12": {"arena_hard"},
    }
    assert asked["table4"].judges == asked["table9"].judges == asked["table12"].judges
    assert kinds(list(Plan(asked["table12"].targets)))["answer"] == 1


def test_what_is_asked_changes_no_stage(tables: dict[str, Table], micro: Profile) -> None:
    planner = Planner(world_of(micro))
    whole = planner.run("h", Recipe(algorithm="dpo", chain=("human",)), 0)
    assert set(whole.asked) == {"arena_hard", "alpaca_eval", "mt_bench", "downstream"}
    one = whole.asking({"mt_bench", "unknown"})
    assert one.asked == ("mt_bench",)
    assert one.targets == (whole.judged["mt_bench"], *whole.training)
    assert one.judges == whole.judges


# Prompts.


def test_table_7_trains_no_policy_on_the_prompts_it_scores(
    tables: dict[str, Table], micro: Profile
) -> None:
    """Counted by hand for a seed.

    The seed prompts are cut and rated. Each of three eva iterations needs the policy trained on the
    prompts before (3 train), its answers to them, scored and paired (3 generate, annotate, pair),
    of which some are selected and evolved (3 select, evolve), and the evolved ones answered, scored
    and paired for the mix (3 more of each, 3 mix); the first policy is trained on answers of the
    base policy (1 generate, annotate, pair).

        prompts 1   rate 4   generate 7   annotate 7   pair 7
        select 3    evolve 3   mix 3   train 3
    """
    runs = plan_table(tables["table7"], micro, (0,))
    assert kinds(list(distinct(runs).values())) == {
        "prompts": 1, "rate": 4, "generate": 7, "annotate": 7, "pair": 7, "select": 3,
        "evolve": 3, "mix": 3, "train": 3,
    }  # fmt: skip
    seed = runs.runs["prompts-seed", 0]
    assert kinds(list(Plan(seed.targets))) == {"prompts": 1, "rate": 1}
    assert (seed.kind, seed.training, seed.asked) == ("prompts", (), ("prompt_judge",))


def test_the_prompts_scored_are_those_the_chains_last_iteration_would_train_on(
    tables: dict[str, Table], micro: Profile
) -> None:
    runs = plan_table(tables["table7"], micro, (0,)).runs
    chain = Planner(world_of(micro)).run(
        "trained", tables["table7"].recipe_of(*_place(tables["table7"])), 0
    )
    for number in (1, 2, 3):
        run = runs[f"prompts-eva-{number}", 0]
        [rate] = run.judged.values()
        assert rate.inputs == {"prompts": chain.iterations[number].pairs}
        assert run.last_prompts == chain.iterations[number].pairs
        assert run.training == chain.training[:number]
    assert runs["prompts-seed", 0].last_prompts == chain.iterations[0].prompts


def _place(table: Table) -> tuple[Any, Any]:
    return table.row("eva-iter-3"), table.columns[0]


def rated(tmp_path: Path, judge: str = "micro-4/rules") -> StageContext:
    prompts = tmp_path / "prompts"
    output = tmp_path / "output"
    prompts.mkdir()
    output.mkdir()
    texts = ["reverse-1 : 1 2 3", "reverse-1 , then swap-1 : 1 2 3 4 5 6", "hello"]
    rows: Rows = [{"prompt_id": f"p{i}", "prompt": text} for i, text in enumerate(texts)]
    write_rows(prompts / "pairs.parquet", rows)
    return StageContext({"judge": judge}, {"prompts": prompts}, output, 0)


def test_prompts_are_rated_one_by_one(tmp_path: Path) -> None:
    ctx = rated(tmp_path)
    rate_stage(ctx)
    rows = read_rows(ctx.output / "scores.parquet")
    assert [(row["prompt_id"], row["column"]) for row in rows] == [
        (f"p{i}", column) for column in ("complexity", "quality") for i in range(3)
    ]
    assert all(1.0 <= row["value"] <= 5.0 for row in rows)
    assert rows[2]["value"] == rows[5]["value"] == 1.0  # it cannot be read
    summary = json.loads((ctx.output / "summary.json").read_text(encoding="utf-8"))
    assert summary == {"judge": "micro-4/rules", "n": 3}


def test_a_judge_of_prompts_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no such judge `micro-4/oracle`; use `rules`"):
        rate_stage(rated(tmp_path, "micro-4/oracle"))


# Downstream tasks.


def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Answer the downstream tasks: rightly, but for every second sum."""
    items = texts.downstream_items()
    right = {item.turn_1: item.reference for item in items}
    sums = [item.turn_1 for item in items if item.category == "gsm8k"]
    wrong = set(sums[::2])

    def generate(policy: Path, asked: list[Any], **settings: Any) -> list[Any]:
        assert settings["temperature"] == 0.0
        texts = [conversation[0]["content"] for conversation in asked]
        said = ["" if text in wrong else right[text] for text in texts]
        return [[SimpleNamespace(text=text, n_tokens=1)] for text in said]

    monkeypatch.setattr("harness.models.policy.generate", generate)
    output = tmp_path / "answers"
    output.mkdir()
    settings: Any = {"benchmark": texts.downstream_identity(), "temperature": 0.0, "top_p": 1.0,
                "max_new_tokens": 14, "batch_size": 256, "seed": 0}  # fmt: skip
    policy = {"policy": tmp_path}
    answer_stage(StageContext(settings, policy, output, 0))
    return output


def test_downstream_answers_are_right_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 55 sums the 28 at even places are left unanswered: 27 right."""
    answers, output = answered(tmp_path, monkeypatch), tmp_path / "judge"
    output.mkdir()
    settings: Any = {"benchmark": texts.downstream_identity(), "judge": "micro-4/exact_match"}
    judge_stage(StageContext(settings, {"answers": answers}, output, 0))
    values: dict[str, list[float]] = {}
    for row in read_rows(output / "scores.parquet"):
        assert row["prompt_id"].startswith(row["column"])
        values.setdefault(row["column"], []).append(row["value"])
    assert {task: len(found) for task, found in values.items()} == texts.ITEMS_OF_TASKS
    assert (values["gsm8k"].count(100.0), values["gsm8k"].count(0.0)) == (27, 28)
    assert all(set(found) == {100.0} for task, found in values.items() if task != "gsm8k")
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert summary["scores"]["gsm8k"] == pytest.approx(2700 / 55)
    assert summary["n"] == len(texts.downstream_items())


@pytest.mark.parametrize("change", [{"seed": 1}, {"benchmark": "micro-4/arena_hard@0"}])
def test_all_policies_of_a_seed_answer_a_benchmark_by_the_same_random_numbers(
    change: dict[str, Json],
) -> None:
    settings: dict[str, Json] = {"benchmark": "micro-4/validation@0", "seed": 0, "policy": "one"}
    seed = answer_seed(settings)
    assert 0 <= seed < 2**31
    assert answer_seed({**settings, "policy": "other", "max_new_tokens": 99}) == seed
    assert answer_seed({**settings, **change}) != seed


def test_answers_are_drawn_by_the_runs_seed_whatever_the_stages_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage's own is of its fingerprint, so of its policy too."""
    seeds: list[int] = []

    def generate(policy: Path, asked: list[Any], **settings: Any) -> list[Any]:
        seeds.append(settings["seed"])
        return [[SimpleNamespace(text="", n_tokens=1)] for _ in asked]

    monkeypatch.setattr("harness.models.policy.generate", generate)
    settings: dict[str, Json] = {
        "benchmark": texts.downstream_identity(),
        "temperature": 0.7, "top_p": 1.0, "max_new_tokens": 14, "batch_size": 256, "seed": 3,
    }  # fmt: skip
    for own in (1, 2):
        answer_stage(StageContext(settings, {"policy": tmp_path}, tmp_path, own))
    assert seeds == [answer_seed(settings) + 1] * 2


def test_another_judge_or_other_items_are_refused(tmp_path: Path) -> None:
    settings: Any = {"benchmark": texts.downstream_identity(), "judge": "micro-4/oracle"}
    with pytest.raises(HarnessError, match="no such judge `micro-4/oracle`; use `exact_match`"):
        judge_stage(StageContext(settings, {}, tmp_path, 0))
    with pytest.raises(HarnessError, match="are not those of this code"):
        runtime_of("micro-4/downstream@0123456789abcdef").questions(
            "micro-4/downstream@0123456789abcdef"
        )
