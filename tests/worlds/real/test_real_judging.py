"""Laws of real benchmarks as stages: what is asked, judged, written, and said not to be there.

A judge on loopback stands in for the real one, and small made-up files for the benchmarks'. Answers
are written by hand, so that no model is needed.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import completion, serving
from judge_stand_in import judge as answer
from staging import given, read_json, run_stage, scores_in

from harness.errors import UserError
from harness.evaluation.benchmarks.alpaca_package import installed
from harness.models.policy import Completion
from harness.pipeline import steps
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import rate_stage
from harness.registry.declared import load_tables
from harness.registry.profile import BenchmarkSettings, Profile
from harness.report.build import stored_results
from harness.report.controls import KnownControls
from harness.report.origin import origin_of
from harness.runtime import Store
from harness.runtime.manifest import collect_provenance
from harness.runtime.stage import Json
from harness.worlds.lookup import runtime_of
from harness.worlds.real.benchmarks import benchmark_identity, judging_settings
from harness.worlds.real.scoring import rating_settings, topic_settings, topics_stage
from harness.worlds.stage_io import Rows, read_rows, write_rows

MODEL = "stand-in/judge"


@pytest.fixture(scope="module")
def made(benchmarks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The benchmarks' folder, with two questions of Arena-Hard and of MT-Bench."""
    folder = tmp_path_factory.mktemp("made") / "benchmarks"
    shutil.copytree(benchmarks, folder)
    for name, kept in (("arena-hard", {"q0", "q1"}), ("mt-bench", {0, 30})):
        for path in (folder / name).glob("[!j]*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(x for x in lines if json.loads(x)["question_id"] in kept))
    return folder


@pytest.fixture(autouse=True)
def places(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(made))
    monkeypatch.setenv("HARNESS_JUDGE_URL", "http://127.0.0.1:9/v1")


def small(paper: Profile, name: str) -> BenchmarkSettings:
    return paper.benchmarks[name].model_copy(update={"items": 2})


def judging(paper: Profile, name: str) -> dict[str, Json]:
    """What the judging of a small benchmark is told, or of AlpacaEval, which is whole."""
    declared = paper.benchmarks[name] if name == "alpaca_eval" else small(paper, name)
    return {**judging_settings(benchmark_identity(name, declared), MODEL)}


def answered(tmp_path: Path, *answers: tuple[str, int, str]) -> dict[str, Path]:
    """Return what a judge is given: answers as (question, turn, text)."""
    rows: Rows = [
        {"prompt_id": prompt, "turn": turn, "completion": text, "n_tokens": 3}
        for prompt, turn, text in answers
    ]
    return {"answers": given(tmp_path / "answers", "answers", rows)}


def asking(asked: list[tuple[int, float | None, int]]) -> Any:
    """What has the policy answer: each answer repeats the last message; calls are kept."""

    @contextmanager
    def answering(_ctx: Any) -> Iterator[Any]:
        def ask(talks: Any, *, n: int, seed: int, temperature: float | None = None) -> Any:
            asked.append((len(talks), temperature, seed))
            return [[Completion(f"to {talk[-1]['content']}", 2)] * n for talk in talks]

        yield ask

    return answering


def test_each_category_of_mt_bench_is_answered_at_its_temperature(
    paper: Profile, benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten questions a category: 20 at 0.7, 40 at 0, 20 at 0.1, in both turns."""
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(benchmarks))
    asked: list[tuple[int, float | None, int]] = []
    monkeypatch.setattr(steps, "answering", asking(asked))
    mt_bench = paper.benchmarks["mt_bench"]
    settings: Any = {
        "benchmark": benchmark_identity("mt_bench", mt_bench),
        "temperature": dict(mt_bench.temperature),  # type: ignore[arg-type]
        "seed": 0,
    }
    out = run_stage(steps.answer_stage, tmp_path / "out", settings)
    first = min(seed for *_, seed in asked)
    assert sorted(asked) == [
        (count, temperature, first + turn)
        for count, temperature in ((20, 0.1), (20, 0.7), (40, 0.0))
        for turn in (0, 1)
    ]
    rows = read_rows(out / "answers.parquet")
    assert [(row["prompt_id"], row["turn"]) for row in rows] == [
        (str(i), turn) for turn in (1, 2) for i in range(80)
    ]
    second = json.loads(rows[81]["conversation"])
    assert [message["content"] for message in second] == ["1?", "to 1?", "and 1?"]
    with pytest.raises(UserError, match="no temperature for questions of the category `math`"):
        steps.temperature_of({"writing": 0.7}, "math")


def test_a_judge_that_answers_as_another_model_is_said_with_the_scores(
    paper: Profile, tmp_path: Path
) -> None:
    """In the stage's output, and with it in the report's sources."""
    two = {name: small(paper, name) for name in ("arena_hard", "mt_bench")}
    declared = {**paper.benchmarks, **two}
    profile = paper.model_copy(update={"benchmarks": declared})
    runs = plan_table(load_tables()["table4"], profile, [0], ["dpo-1"])
    stage = next(iter(runs.runs.values())).judged["mt_bench"]
    asked = str(stage.settings["judge"])
    said = [(name, turn, "a") for name in ("0", "30") for turn in (1, 2)]
    inputs = answered(tmp_path, *said)
    with serving(lambda body: {**completion("[[7]]"), "model": "another"}):
        out = run_stage(steps.judge_stage, tmp_path / "out", stage.settings, inputs)
    notes = read_json(out / "summary.json")["notes"]
    assert notes == {"judge": f"asked for {asked}, answered as another"}
    store = Store(tmp_path / "store")
    assert origin_of(runs, store, ["mt_bench"]).judges == {"mt_bench": asked}
    with store.writing(stage, collect_provenance()) as output:
        shutil.copytree(out, output, dirs_exist_ok=True)
    judge = f"{asked} (answered as another)"
    assert origin_of(runs, store, ["mt_bench"]).judges == {"mt_bench": judge}


def test_mt_bench_is_rated_turn_by_turn_and_goes_on_where_it_broke_off(
    paper: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratings 8 and 4 of one question, 6 and 2 of the other: averages 6 and 4, in all 5."""
    settings = judging(paper, "mt_bench")
    assert set(settings) == {"benchmark", "judge"}
    said = [("0", 1, "x8"), ("30", 1, "x6"), ("0", 2, "x4"), ("30", 2, "x2")]
    broken = {"now": True}

    def reply(body: Any) -> Any:
        rating = body["messages"][1]["content"].rpartition("x")[2]
        if broken["now"] and rating == "2":
            return 404, {"error": {"message": "gone"}}, {}
        return completion(f"Rating: [[{rating}]]")

    monkeypatch.setenv("HARNESS_JUDGE_CONCURRENCY", "1")
    inputs = answered(tmp_path, *said)
    with serving(reply) as server:
        with pytest.raises(UserError, match="has no model stand-in/judge"):
            run_stage(steps.judge_stage, tmp_path / "broken", settings, inputs)
        assert server.requests == 4
        broken["now"] = False
        out = run_stage(steps.judge_stage, tmp_path / "out", settings, inputs)
        assert server.requests == 5
    summary = read_json(out / "summary.json")
    assert scores_in(out) == {
        ("0", "mt_avg"): 6.0, ("30", "mt_avg"): 4.0, ("0", "mt_t1"): 8.0,
        ("30", "mt_t1"): 6.0, ("0", "mt_t2"): 4.0, ("30", "mt_t2"): 2.0,
    }  # fmt: skip
    assert summary["scores"] == {"mt_avg": 5.0, "mt_t1": 7.0, "mt_t2": 3.0}
    assert summary["not_available"] == {}
    judgments = read_rows(out / "judgments.parquet")
    assert {(j["prompt_id"], j["number"], j["category"]) for j in judgments} == {
        ("0", 1, "writing"), ("0", 2, "writing"), ("30", 1, "math"), ("30", 2, "math")
    }  # fmt: skip


def test_alpaca_eval_without_its_package_is_not_available_and_asks_nobody(
    paper: Profile, tmp_path: Path
) -> None:
    settings = {**judging(paper, "alpaca_eval"), "package": "not-installed"}
    inputs = answered(tmp_path, ("0", 1, "text"))
    with serving(lambda body: completion("m")) as server:
        out = run_stage(steps.judge_stage, tmp_path / "out", settings, inputs)
    summary, judgments = read_json(out / "summary.json"), read_rows(out / "judgments.parquet")
    assert (scores_in(out), judgments, server.requests) == ({}, [], 0)
    assert set(summary["not_available"]) == {"ae_wr", "ae_lc"}
    assert "extra `alpaca`" in summary["not_available"]["ae_lc"]


def test_the_data_of_the_length_control_are_part_of_the_judging(
    paper: Profile, benchmarks: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are there, the stage is another one, and its judge is asked nothing new."""
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(machine / "benchmarks"))
    data = shutil.copytree(benchmarks, machine / "benchmarks") / "alpaca-eval" / "df_gamed.csv"
    assert judging(paper, "alpaca_eval")["length_control"] is None
    data.write_text("difficulties")
    assert judging(paper, "alpaca_eval")["length_control"] is not None


def test_a_cell_says_not_available_and_why(
    paper: Profile, benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of table 4's columns AlpacaEval's two are said not to be there; the others have not run."""
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(benchmarks))
    table = load_tables()["table4"]
    runs = plan_table(table, paper, [0], ["dpo-1"])
    store = Store(tmp_path / "store")
    (run,) = runs.runs.values()
    with store.writing(run.judged["alpaca_eval"], collect_provenance()) as output:
        write_rows(output / "scores.parquet", [{"prompt_id": "", "column": "", "value": 0.0}])
        reasons = {"ae_lc": "no data", "ae_wr": "no data"}
        (output / "summary.json").write_text(json.dumps({"not_available": reasons}))
    cells = {
        cell.column: cell
        for cell in stored_results(runs, KnownControls(runs.profile, store)).report.cells
    }
    for column in table.columns:
        missing = column.reads.startswith("ae_")
        expected = ("not_available", "no data") if missing else ("not_run", None)
        assert (cells[column.id].state, cells[column.id].reason) == expected


def test_questions_come_in_the_benchmark_s_order(paper: Profile) -> None:
    arena = benchmark_identity("arena_hard", small(paper, "arena_hard"))
    items = runtime_of(arena).questions(arena)
    assert [(i.item_id, i.turn_1, i.turn_2) for i in items] == [
        ("q0", "0?", None),
        ("q1", "1?", None),
    ]


def of_prompts(tmp_path: Path) -> dict[str, Path]:
    texts = ["first", "second", "first"]
    rows: Rows = [{"prompt_id": f"p{i}", "prompt": text} for i, text in enumerate(texts)]
    return {"prompts": given(tmp_path / "prompts", "prompts", rows)}


def test_prompts_are_rated_and_what_cannot_be_read_is_left_out(
    paper: Profile, tmp_path: Path
) -> None:
    """`first` has complexity 2, twice; `second` gets no readable reply in three samples."""
    rater = paper.benchmarks["prompt_judge"]
    settings: dict[str, Json] = {"judge": rater.judge, **rating_settings(rater)}

    def reply(body: Any) -> Any:
        text = body["messages"][0]["content"]
        if "difficult and complex" not in text:
            return completion('{"score": 5}')
        return completion('{"score": 2}' if "\nfirst\n" in text else "hard to say")

    with serving(reply) as server:
        out = run_stage(rate_stage, tmp_path / "out", settings, of_prompts(tmp_path))
    summary = read_json(out / "summary.json")
    assert scores_in(out) == {
        ("p0", "complexity"): 2.0, ("p2", "complexity"): 2.0,
        ("p0", "quality"): 5.0, ("p1", "quality"): 5.0, ("p2", "quality"): 5.0,
    }  # fmt: skip
    assert (summary["judge"], summary["n"]) == ("gemini-1.5-flash", 3)
    assert summary["missing"]["complexity"] == {"prompts": 1, "refused": 0, "broken_replies": 3}
    assert {body["max_tokens"] for body in server.bodies} == {rater.max_new_tokens}


def test_prompts_are_sorted_by_topic(tmp_path: Path) -> None:
    def reply(body: Any) -> Any:
        topic = "math" if "\nfirst\n" in body["messages"][0]["content"] else "poetry"
        return completion(json.dumps({"topic": topic}))

    settings = topic_settings("stand-in/scorer")
    with serving(reply) as server:
        out = run_stage(topics_stage, tmp_path / "out", settings, of_prompts(tmp_path))
    rows = read_rows(out / "topics.parquet")
    assert [(row["prompt_id"], row["topic"]) for row in rows] == [
        ("p0", "math"), ("p1", None), ("p2", "math")
    ]  # fmt: skip
    assert server.requests == 4  # one for `first`, three for `second`


@pytest.mark.skipif(not installed(), reason="the extra `alpaca` is not installed")
def test_alpaca_eval_is_judged_through_its_package(paper: Profile, tmp_path: Path) -> None:
    """A judge that always ranks the second answer first: shown at random, it wins about half."""
    said = [(str(i), 1, f"mine {i}") for i in range(805)]
    settings, inputs = judging(paper, "alpaca_eval"), answered(tmp_path, *said)
    with serving(answer) as server:
        out = run_stage(steps.judge_stage, tmp_path / "out", settings, inputs)
    summary, scores = read_json(out / "summary.json"), scores_in(out)
    judgments = read_rows(out / "judgments.parquet")
    assert server.requests == len(scores) == len(judgments) == 805
    assert set(scores) == {(str(i), "ae_wr") for i in range(805)}
    mean = sum(scores.values()) / 805
    assert summary["scores"]["ae_wr"] == pytest.approx(mean)
    assert 40.0 < mean < 60.0
    assert "df_gamed.csv" in summary["not_available"]["ae_lc"]
    assert summary["filed_under"] == f"alpaca_eval_gpt4_turbo_fn/{MODEL}"
