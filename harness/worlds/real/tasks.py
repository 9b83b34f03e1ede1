"""Table 9's tasks as stages, which lm-evaluation-harness runs and scores.

The package has questions, prompts and scoring in one; of it the version is what is known. So the
stage that answers runs all of it, on the policy's folder, and keeps the results as the package
gives them; the stage that judges reads them, document by document. Without the package there is no
score, and the summary says why.

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
from harness.evaluation import benchmark
from harness.registry.profile import Profile
from harness.runtime.stage import Json, StageContext
from harness.worlds.stage_io import SCORE_SCHEMA, Rows, read_rows, write_json, write_rows

if TYPE_CHECKING:
    from harness.evaluation.benchmarks.lm_eval import Task

DOWNSTREAM = "downstream"
"""Their name in a profile."""

LM_EVAL = "lm-eval"

ENGINE = "hf"
"""lm-eval's name for transformers, which runs the model."""

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


def identity() -> str:
    """Return the identity of the tasks: the package's version."""
    return f"{LM_EVAL}@{benchmark.version_of('lm_eval')}"


def are_meant(identity: str) -> bool:
    """Return whether an identity is that of the tasks."""
    return identity.partition("@")[0] == LM_EVAL


def answering_settings(identity: str, profile: Profile) -> dict[str, Json]:
    """Return the settings of the stage that runs the tasks, except for the policy."""
    from harness.evaluation.benchmarks.lm_eval import BATCH_SIZE

    return {
        "benchmark": identity,
        "engine": ENGINE,
        "batch_size": BATCH_SIZE,
        "dtype": profile.dtype,
    }


def judging_settings(identity: str) -> dict[str, Json]:
    """Return the settings of the stage that scores them: the package judges."""
    scorer = f"lm-evaluation-harness {identity.partition('@')[2]}"
    return {"benchmark": identity, "judge": scorer}


def gaps(identity: str) -> Iterator[str]:
    """Yield that there will be no scores without the package."""
    if identity.endswith(f"@{benchmark.NOT_INSTALLED}"):
        yield "table 9's tasks will not be available: install the extra `lm-eval`"


def run_tasks(ctx: StageContext, policy: Callable[[], Path]) -> None:
    """Run the tasks on a policy, of which a function returns the folder; writes `answers.parquet`.

    lm-eval's own results and samples are kept beside it.

    Raises:
        HarnessError: the model or a data set cannot be loaded, or the package kept no samples.
    """
    if str(ctx.settings["benchmark"]) == f"{LM_EVAL}@{benchmark.NOT_INSTALLED}":
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


def write_nothing(output: Path, said: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Write the files of a judge that could give no score, with the reason for each column."""
    write_rows(output / "judgments.parquet", [], JUDGMENT_SCHEMA)
    write_rows(output / "scores.parquet", [], SCORE_SCHEMA)
    none = {"scores": dict.fromkeys(reasons), "n": 0, "n_missing": 0}
    write_json(output / "summary.json", {**said, **none, "not_available": dict(reasons)})


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
