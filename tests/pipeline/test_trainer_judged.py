"""Laws of what is judged: a table's own benchmarks, prompts themselves, the downstream tasks."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from computing import read_json, run_stage
from staging import scores_in

from harness.pipeline.algorithm import Planner
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import answer_seed, answer_stage, judge_stage
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.runtime import Plan, Stage
from harness.runtime.stage import Json
from harness.worlds.embedded import texts
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_rows

pytestmark = pytest.mark.usefixtures("shipped_world")


ANSWERING: dict[str, Json] = {
    "benchmark": texts.downstream_identity(),
    "top_p": 1.0,
    "max_new_tokens": 14,
    "batch_size": 256,
}


def kinds(targets: Iterable[Stage]) -> Counter[str]:
    return Counter(stage.kind for stage in Plan(targets))


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
    assert kinds(asked["table12"].targets)["answer"] == 1


def test_the_prompts_scored_are_those_the_chains_last_iteration_would_train_on(
    tables: dict[str, Table], micro: Profile
) -> None:
    table = tables["table7"]
    runs = plan_table(table, micro, (0,)).runs
    recipe = table.recipe_of(table.row("eva-iter-3"), table.columns[0])
    chain = Planner(world_of(micro)).run("trained", recipe, 0)
    for number in (1, 2, 3):
        run = runs[f"prompts-eva-{number}", 0]
        [rate] = run.judged.values()
        assert rate.inputs == {"prompts": chain.iterations[number].pairs}
        assert run.last_prompts == chain.iterations[number].pairs
        assert run.training == chain.training[:number]
    assert runs["prompts-seed", 0].last_prompts == chain.iterations[0].prompts


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
    settings = ANSWERING | {"temperature": 0.0, "seed": 0}
    return run_stage(answer_stage, tmp_path / "answers", settings, {"policy": tmp_path})


def test_downstream_answers_are_right_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 55 sums the 28 at even places are left unanswered: 27 right."""
    settings = {"benchmark": texts.downstream_identity(), "judge": "micro-4/exact_match"}
    answers = {"answers": answered(tmp_path, monkeypatch)}
    output = run_stage(judge_stage, tmp_path / "judge", settings, answers)
    values: dict[str, list[float]] = {}
    for row in read_rows(output / "scores.parquet"):
        assert row["prompt_id"].startswith(row["column"])
        values.setdefault(row["column"], []).append(row["value"])
    wanted = {task: count for task, (count, _) in texts.QUESTIONS.items()}
    assert {task: len(found) for task, found in values.items()} == wanted
    assert (values["gsm8k"].count(100.0), values["gsm8k"].count(0.0)) == (27, 28)
    assert all(set(found) == {100.0} for task, found in values.items() if task != "gsm8k")
    summary = read_json(output / "summary.json")
    assert summary["scores"]["gsm8k"] == pytest.approx(2700 / 55)
    assert summary["n"] == len(texts.downstream_items())


def test_a_question_too_long_for_the_policy_gets_an_empty_answer_that_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one does; all others are answered rightly."""
    long, *others = texts.downstream_items()
    right = [[SimpleNamespace(text=item.reference, n_tokens=1)] for item in others]
    monkeypatch.setattr("harness.models.policy.generate", lambda *_, **__: [[], *right])
    settings = ANSWERING | {"temperature": 0.0, "seed": 0}
    answers = run_stage(answer_stage, tmp_path / "answers", settings, {"policy": tmp_path})
    first = read_rows(answers / "answers.parquet")[0]
    assert (first["prompt_id"], first["completion"], first["n_tokens"]) == (long.item_id, "", 0)
    asked = {"benchmark": texts.downstream_identity(), "judge": "micro-4/exact_match"}
    found = scores_in(run_stage(judge_stage, tmp_path / "judge", asked, {"answers": answers}))
    assert len(found) == 1 + len(others)
    assert [name for (name, _), value in found.items() if value == 0.0] == [long.item_id]


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
    settings = ANSWERING | {"temperature": 0.7, "seed": 3}
    for own in (1, 2):
        run_stage(answer_stage, tmp_path / str(own), settings, {"policy": tmp_path}, own)
    assert seeds == [answer_seed(settings) + 1] * 2
