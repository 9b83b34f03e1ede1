"""Judging answers to the benchmarks of real models, as a stage.

The judge is asked through the benchmark's own code (`harness.evaluation`), at the endpoint that the
environment names for `JUDGE` (`harness.worlds.real.access`); its replies are kept, so that a stage
that broke off goes on where it was and nothing is paid twice. What is written is what the embedded
world's judge writes: judgments, per-prompt values whose mean is the score, and a summary.

A score that cannot be had is not there, and the summary says why. It is never replaced by another
number under its name: AlpacaEval's length control needs its package and data, Arena-Hard's lengths
its tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.runtime import StageContext
from harness.worlds.real.access import access_to
from harness.worlds.real.benchmarks import NOT_INSTALLED, benchmark_of_identity, kind_of
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
