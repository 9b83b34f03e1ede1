"""Judging answers to the benchmarks of real models, and table 9's tasks, as stages.

A judge is asked through the benchmark's own code (`harness.evaluation`), at the endpoint that the
environment names for `JUDGE` (`harness.worlds.real.asking`); its replies are kept, so that a stage
that broke off goes on where it was and nothing is paid twice. What is written is what the embedded
world's judge writes: judgments, per-prompt values whose mean is the score, and a summary.

Of table 9's tasks lm-evaluation-harness has questions, prompts and scoring in one. So the stage
that answers runs all of it, on the policy's folder, and keeps the results as the package gives
them; the stage that judges reads them, document by document.

A score that cannot be had is not there, and the summary says why. It is never replaced by another
number under its name: AlpacaEval's length control needs its package and data, Arena-Hard's lengths
its tokenizer, table 9's tasks their package. Once that is installed the stages are others.

Source: lm-eval 0.4.13, `evaluator.evaluate` (what a sample holds).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.errors import HarnessError
from harness.runtime import StageContext
from harness.worlds.real.asking import access_to
from harness.worlds.real.benchmarks import LM_EVAL, NOT_INSTALLED, benchmark_of_identity, kind_of
from harness.worlds.stage_io import (
    SCORE_SCHEMA,
    Rows,
    progress_callback,
    read_rows,
    write_json,
    write_rows,
)

if TYPE_CHECKING:
    from harness.endpoint.client import Receipt
    from harness.evaluation.benchmark import Benchmark
    from harness.evaluation.benchmarks.lm_eval import Task
    from harness.evaluation.files import Answers
    from harness.evaluation.scores import Evaluation

MODEL = "policy"
"""What the judged model is called in requests and judgments; no judge is told."""

JUDGMENT_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("category", pa.string()),
        ("number", pa.int64()),
        ("reply", pa.string()),
        ("verdict", pa.string()),
    ]
)
"""Columns of `judgments.parquet`: the number of a game or turn, the judge's reply, what it says."""

LACKING_PACKAGE = (
    "the package alpaca-eval (extra `alpaca`), which has the judge's prompts, was absent"
)


def judge_answers(ctx: StageContext) -> None:
    """Judge a policy's answers; writes `judgments.parquet`, `scores.parquet`, `summary.json`.

    Raises:
        UserError: nothing says where the judge is served, or the benchmark's files are others.
        HarnessError: the judge does not answer, or the budget is used up.
    """
    identity, model = str(ctx.settings["benchmark"]), str(ctx.settings["judge"])
    benchmark, kind = benchmark_of_identity(identity), kind_of(identity)
    said: dict[str, Any] = {"benchmark": identity, "judge": model}
    if kind.name == "alpaca-eval" and ctx.settings.get("package") == NOT_INSTALLED:
        write_nothing(ctx.output, said, dict.fromkeys(kind.columns.values(), LACKING_PACKAGE))
        return
    from harness.evaluation.benchmark import Judge

    access = access_to("JUDGE", model)
    client = access.client()
    judged = benchmark.judge(
        _answers(ctx, benchmark),
        Judge(client, model),
        access.concurrency,
        progress_callback(ctx, "judged"),
    )
    evaluation = judged.evaluation
    judgments = _judgments(benchmark, judged.records)
    write_rows(ctx.output / "judgments.parquet", judgments, JUDGMENT_SCHEMA)
    scores = _scores(benchmark, evaluation, kind.columns)
    write_rows(ctx.output / "scores.parquet", scores, SCORE_SCHEMA)
    said |= _summary(evaluation, kind.columns)
    write_json(ctx.output / "summary.json", {**said, "cost": cost_of(client.receipt)})


def write_nothing(output: Path, said: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Write the files of a judge that could give no score, with the reason for each column."""
    write_rows(output / "judgments.parquet", [], JUDGMENT_SCHEMA)
    write_rows(output / "scores.parquet", [], SCORE_SCHEMA)
    none = {"scores": dict.fromkeys(reasons), "n": 0, "n_missing": 0}
    write_json(output / "summary.json", {**said, **none, "not_available": dict(reasons)})


def cost_of(receipt: Receipt) -> dict[str, float | None]:
    """Return tokens and dollars of the replies behind an output, whenever they were paid."""
    return {
        "replies": len(receipt.addresses),
        "prompt_tokens": receipt.prompt_tokens,
        "completion_tokens": receipt.completion_tokens,
        "usd": receipt.usd,
    }


def _answers(ctx: StageContext, benchmark: Benchmark) -> Answers:
    """Return the answers of the stage before, turns in order."""
    from harness.evaluation.files import Answer, Answers

    turns: dict[str, dict[int, str]] = {}
    for row in read_rows(ctx.inputs["answers"] / "answers.parquet"):
        turns.setdefault(row["prompt_id"], {})[row["turn"]] = row["completion"]
    # The stage's `n_tokens` count the policy's tokens; a benchmark has a tokenizer of its own.
    said = {p: Answer(tuple(texts[turn] for turn in sorted(texts))) for p, texts in turns.items()}
    answers = Answers(MODEL, said)
    answers.to(benchmark.questions)
    return answers


def _scores(benchmark: Benchmark, found: Evaluation, columns: Mapping[str, str]) -> Rows:
    """Return per-prompt values under the registry's columns and the questions' own ids."""
    # AlpacaEval's annotations number nothing; they are in the order of the questions.
    ids = dict(zip(found.score.prompts, (q.prompt_id for q in benchmark.questions), strict=True))
    return [
        {"prompt_id": ids[prompt], "column": columns[score], "value": float(value)}
        for prompt, score, value in found.score.rows()
    ]


def _summary(found: Evaluation, columns: Mapping[str, str]) -> dict[str, Any]:
    from harness.evaluation.scores import NOT_AVAILABLE

    score = found.score
    notes = {columns[name]: note for name, note in score.notes.items()}
    lacking = {column: note for column, note in notes.items() if note.startswith(NOT_AVAILABLE)}
    return {
        "filed_under": found.judge,
        "scores": {columns[name]: value for name, value in score.scores.items()},
        "n": score.n,
        "n_missing": score.n_missing,
        "per_category": dict(score.per_category),
        "notes": notes,
        "not_available": {c: n.removeprefix(f"{NOT_AVAILABLE}: ") for c, n in lacking.items()},
    }


def _judgments(benchmark: Benchmark, records: list[dict[str, Any]]) -> Rows:
    """Return one row for each judgment: the prompt, its category, the game or turn, the reply."""
    categories = {q.prompt_id: q.category for q in benchmark.questions}
    by_text = {q.turns[0]: q.prompt_id for q in benchmark.questions}
    rows: Rows = []
    for record in records:
        prompt = str(record.get("question_id", by_text.get(str(record.get("instruction")))))
        games = record.get("games")
        if isinstance(games, list):  # Arena-Hard: two games of one question
            said = [(number, g["judgment"], g["score"]) for number, g in enumerate(games, start=1)]
        elif "turn" in record:  # MT-Bench
            said = [(record["turn"], record["judgment"], record["score"])]
        else:  # AlpacaEval keeps no text: the judge calls a function
            said = [(1, f"preference {record['preference']}", record["preference"])]
        for number, reply, verdict in said:
            rows.append(
                {
                    "prompt_id": prompt,
                    "category": categories[prompt],
                    "number": number,
                    "reply": reply,
                    "verdict": None if verdict is None else str(verdict),
                }
            )
    return rows


ANSWER_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("turn", pa.int64()),
        ("conversation", pa.string()),
        ("completion", pa.string()),
        ("n_tokens", pa.int64()),
        ("column", pa.string()),
        ("value", pa.float64()),
    ]
)
"""Columns of `answers.parquet`: those of every benchmark (the package counts no tokens), and the
task's column with the document's value, from 0 to 1."""

ABSENT = "the package lm-eval (extra `lm-eval`), which has the tasks, was not installed"


def run_tasks(ctx: StageContext, policy: Callable[[], Path]) -> None:
    """Run the tasks on a policy, of which a function returns the folder; writes `answers.parquet`.

    lm-eval's own results and samples are kept beside it.

    Raises:
        HarnessError: the model or a data set cannot be loaded, or the package kept no samples.
    """
    if str(ctx.settings["benchmark"]) == f"{LM_EVAL}@{NOT_INSTALLED}":
        write_rows(ctx.output / "answers.parquet", [], ANSWER_SCHEMA)
        return
    from harness.evaluation.benchmarks.lm_eval import Measurement, keep_results, measure
    from harness.models.loading import fastest_device

    asked = Measurement(
        str(policy()),
        engine=str(ctx.settings["engine"]),
        arguments={"dtype": ctx.settings["dtype"]},
        batch_size=str(ctx.settings["batch_size"]),
        device=fastest_device(),
    )
    results = measure(asked)
    keep_results(results, ctx.output)
    rows = [row for task in asked.tasks for row in _documents(results, task)]
    write_rows(ctx.output / "answers.parquet", rows, ANSWER_SCHEMA)


def score_tasks(ctx: StageContext) -> None:
    """Score the tasks; writes `judgments.parquet`, `scores.parquet` and `summary.json`.

    Raises:
        HarnessError: the values of a task's documents do not give the package's score.
    """
    from harness.evaluation.benchmarks.lm_eval import RESULTS, TASKS, evaluate_results, read_results

    said = {name: str(ctx.settings[name]) for name in ("benchmark", "judge")}
    file = ctx.inputs["answers"] / RESULTS
    if not file.exists():
        write_nothing(ctx.output, said, {task.column: ABSENT for task in TASKS})
        return
    found = evaluate_results(read_results(file), "policy")
    rows = read_rows(ctx.inputs["answers"] / "answers.parquet")
    scores: Rows = [
        {"prompt_id": row["prompt_id"], "column": row["column"], "value": 100.0 * row["value"]}
        for row in rows
    ]
    for column, score in found.score.scores.items():
        _check(column, score, [row["value"] for row in scores if row["column"] == column])
    write_rows(
        ctx.output / "judgments.parquet",
        [{name: row[name] for name in ("prompt_id", "column", "value")} for row in rows],
    )
    write_rows(ctx.output / "scores.parquet", scores, SCORE_SCHEMA)
    notes = dict(found.score.notes)
    summary = {
        "scores": dict(found.score.scores),
        "n": found.score.n,
        "n_missing": found.score.n_missing,
        "notes": notes,
        "not_available": {c: notes[c] for c, score in found.score.scores.items() if score is None},
        "tasks": {column: dict(facts) for column, facts in found.tasks.items()},
    }
    write_json(ctx.output / "summary.json", {**said, **summary})


def _documents(results: Mapping[str, Any], task: Task) -> Iterator[dict[str, Any]]:
    """Yield a row for each document of a task, or of the tasks of a group."""
    groups, samples = results.get("group_subtasks") or {}, results.get("samples") or {}
    for name in groups.get(task.name) or [task.name]:
        for sample in samples.get(name, ()):
            if sample.get("filter", task.filter) != task.filter:
                continue
            if task.metric not in sample:
                raise HarnessError(
                    f"lm-eval kept no {task.metric} of the documents of {name}; use the version "
                    "that this project names"
                )
            message = {"role": "user", "content": _first_text(sample.get("arguments"))}
            yield {
                "prompt_id": f"{name}/{sample['doc_id']}",
                "turn": 1,
                "conversation": json.dumps([message]),
                "completion": _first_text(sample.get("filtered_resps")),
                "n_tokens": None,
                "column": task.column,
                "value": float(sample[task.metric]),
            }


def _check(column: str, score: float | None, values: list[float]) -> None:
    mean = math.fsum(values) / len(values) if values else None
    agree = mean is None if score is None else mean is not None and math.isclose(
        mean, score, abs_tol=1e-6
    )  # fmt: skip
    if not agree:
        raise HarnessError(
            f"lm-eval's score of `{column}` is {score} and the mean over its documents {mean}; its "
            "results and samples are not of one run"
        )


def _first_text(value: Any) -> str:
    """Return the first text in nested lists; a number, as of multiple choice, as it is written."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value:
        return _first_text(value[0])
    return "" if value is None else str(value)
