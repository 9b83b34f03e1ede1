"""Benchmarks of real models as stages: identities by their files, and judging of answers.

A benchmark's identity is the digest of its questions and its judge's instructions; without the
files it ends in `not-downloaded`. Table 9's tasks are all in one package, lm-evaluation-harness,
and are identified by its version: the answering stage runs it on the policy's folder, the judging
stage averages over the documents.

An unavailable score is left out, with the reason in the summary, and never replaced by another
number under its name. When what was missing becomes available, the stages' settings change.

Source: lm-eval 0.4.13, `evaluator.evaluate` (what a sample holds).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness.endpoint.client import cost_of
from harness.errors import UserError
from harness.evaluation import benchmark as packages
from harness.evaluation.benchmark import Benchmark, benchmark_class
from harness.evaluation.files import Answer, Answers
from harness.extensions import BENCHMARKS, JUDGES, benchmark_name, benchmark_place
from harness.project import benchmarks_dir
from harness.registry.profile import BASE, REWARD_JUDGE, Profile
from harness.registry.profile import BenchmarkSettings as Declared
from harness.runtime.stage import Json, StageContext
from harness.worlds import DOWNSTREAM, Item, stage_io
from harness.worlds.real.models import DIGITS, NOT_DOWNLOADED, policy_folder
from harness.worlds.stage_io import Rows

if TYPE_CHECKING:
    from harness.evaluation.benchmarks.lm_eval import LmEvalTask

MODEL = "policy"
"""The judged model's name in requests and judgments; judges do not see it."""

LM_EVAL = "lm-eval"
NO_TASKS = f"{LM_EVAL}@{packages.NOT_INSTALLED}"

JUDGMENT_SCHEMA = stage_io.schema_of(
    "prompt_id", "category", ("number", stage_io.INT), "reply", "verdict"
)
"""Columns of `judgments.parquet`; `number` is that of the game or turn."""

TASK_ANSWER_SCHEMA = stage_io.schema_of(
    *("prompt_id", ("turn", stage_io.INT), "conversation", "completion"),
    *(("n_tokens", stage_io.INT), "column", ("value", stage_io.REAL)),
)
"""Columns of the tasks' `answers.parquet`; `value` is the document's, from 0 to 1."""


def benchmark_identity(name: str, declared: Declared) -> str:
    """Return the identity of a benchmark from its name and settings in a profile."""
    if name == DOWNSTREAM:
        return f"{LM_EVAL}@{packages.version_of('lm_eval')}"
    known = benchmark_name(name)
    if known not in BENCHMARKS:
        names = [*BENCHMARKS, DOWNSTREAM]
        raise UserError(
            f"no benchmark of real models is called `{name}`; call it one of {', '.join(names)}"
        )
    kind, place, setting = benchmark_class(known), benchmark_place(known), f"benchmarks.{name}"
    foreign = [score for score in declared.columns if score not in kind.columns.values()]
    if foreign:
        raise UserError(
            f"{known} yields no score `{foreign[0]}`; let `{setting}.columns` be among "
            f"{', '.join(kind.columns.values()) or 'none: it has no `columns`'}"
        )
    if not folder_of(place).is_dir():
        return f"{place}@{NOT_DOWNLOADED}"
    benchmark, digest = _read(folder_of(place))
    there, said = len(benchmark.questions), declared.items
    if there != said:
        raise UserError(
            f"{folder_of(place)} has {there} questions and the profile says {said}; give the "
            f"whole benchmark, or correct `{setting}.items`"
        )
    compares = kind.against is not None or declared.judge.startswith(REWARD_JUDGE)
    allowed = [it for it in (kind.against, BASE) if it is not None] if compares else [None]
    if declared.against not in allowed:
        raise UserError(
            f"{known} judged by {declared.judge} compares with "
            f"{' or '.join(it or 'nobody' for it in allowed)} and the profile says "
            f"{declared.against or 'nobody'}; correct `{setting}.against`"
        )
    return f"{place}@{digest}"


def is_benchmark(identity: str) -> bool:
    """Return whether an identity is of a benchmark whose answers are rated by a judge."""
    return name_in(identity) in BENCHMARKS


def are_tasks(identity: str) -> bool:
    return identity.partition("@")[0] == LM_EVAL


def class_of(identity: str) -> type[Benchmark]:
    return benchmark_class(name_in(identity))


def benchmark_of_identity(identity: str) -> Benchmark:
    """Load a benchmark, after checking its files against the identity."""
    place, _, digest = identity.partition("@")
    if digest == NOT_DOWNLOADED or not folder_of(identity).is_dir():
        raise UserError(
            f"the files of {place} are not on this machine; type {fetch_line(place)}, and plan the "
            "run again"
        )
    benchmark, found = _read(folder_of(place))
    if found != digest:
        raise UserError(
            f"the files in {folder_of(place)} are not those that this run was planned with; put "
            "them back, or plan the run again"
        )
    return benchmark


def questions_of(identity: str) -> list[Item]:
    return [
        Item(q.prompt_id, q.category, q.turns[0], q.turns[1] if len(q.turns) > 1 else None)
        for q in benchmark_of_identity(identity).questions
    ]


def folder_of(identity: str) -> Path:
    return benchmarks_dir() / identity.partition("@")[0]


def fetch_line(place: str) -> str:
    name = name_in(place)
    if name not in BENCHMARKS.shipped:
        return f"nothing for {place}: put its files at {folder_of(place)}"
    return (
        f"`harness evaluate fetch {name}` (or put its files at {folder_of(place)}; "
        "HARNESS_BENCHMARKS names the folder of all benchmarks)"
    )


def name_in(identity: str) -> str:
    return benchmark_name(identity.partition("@")[0])


def _read(folder: Path) -> tuple[Benchmark, str]:
    """Return the benchmark in a folder and its digest."""
    found = class_of(folder.name).load(folder)
    return found, found.digest[:DIGITS]


def task_settings(identity: str, profile: Profile) -> dict[str, Json]:
    """Return the settings of the stage that runs the tasks, except for the policy."""
    from harness.evaluation.benchmarks.lm_eval import BATCH_SIZE

    # `hf` is lm-eval's name for the transformers backend.
    engine: dict[str, Json] = {"engine": "hf", "batch_size": BATCH_SIZE, "dtype": profile.dtype}
    return {"benchmark": identity, **engine}


def judging_settings(identity: str, judge: str) -> dict[str, Json]:
    """Return the settings of the stage that scores the answers to a benchmark."""
    if are_tasks(identity):
        version = identity.partition("@")[2]
        return {"benchmark": identity, "judge": f"lm-evaluation-harness {version}"}
    found: dict[str, Json] = {"benchmark": identity, "judge": judge, **JUDGES.identity(judge)}
    if is_benchmark(identity):
        found |= class_of(identity).scored_with(folder_of(identity), judge)
    return found


def is_asked(identity: str, settings: Mapping[str, Json]) -> bool:
    """Return whether a stage with these settings queries a judge."""
    if str(settings.get("judge")).startswith(REWARD_JUDGE):
        return False
    return is_benchmark(identity) and not _all_missing(class_of(identity), settings)


def _all_missing(kind: type[Benchmark], settings: Mapping[str, Json]) -> dict[str, str]:
    """Return the reason per column if no score at all is available, else {}."""
    why = kind.missing(settings)
    if len(why) < len(kind.columns):
        return {}
    return {kind.columns[score]: text for score, text in why.items()}


def gaps(identity: str, settings: Mapping[str, Json]) -> Iterator[str]:
    """Yield the scores that a judging stage will not have, and why."""
    if identity == NO_TASKS:
        yield "table 9's tasks will not be available: install the extra `lm-eval`"
    if is_benchmark(identity):
        kind = class_of(identity)
        for score, why in kind.missing(settings).items():
            yield f"{kind.columns[score]} will not be available: {why}"


def judge_answers(ctx: StageContext) -> None:
    """Judge a policy's answers; writes `judgments.parquet`, `scores.parquet`, `summary.json`."""
    from harness.worlds.real.evaluating import judge_of

    identity, model = str(ctx.settings["benchmark"]), str(ctx.settings["judge"])
    if are_tasks(identity):
        _score_tasks(ctx)
        return
    benchmark = benchmark_of_identity(identity)
    columns = benchmark.columns
    if missing := _all_missing(type(benchmark), ctx.settings):
        _write_nothing(ctx, missing)
        return
    JUDGES.check(model, ctx.settings.get("plugin"))
    answers = _answers(ctx, benchmark)
    if "anchor" in ctx.inputs:
        benchmark = benchmark.compared_with(_answers(ctx, benchmark, "anchor"))
    judge = judge_of(model, str(ctx.settings.get("dtype", "float32")))
    found, records = benchmark.judge(answers, judge, stage_io.progress_callback(ctx, "judged"))
    categories = {q.prompt_id: q.category for q in benchmark.questions}
    judgments: Rows = [
        {
            "prompt_id": prompt,
            "category": categories[prompt],
            "number": number,
            "reply": reply,
            "verdict": None if verdict is None else str(verdict),
        }
        for prompt, number, reply, verdict in benchmark.judgments(records)
    ]
    # AlpacaEval's annotations have no ids; they are in the order of the questions.
    ids = dict(zip(found.prompts, (q.prompt_id for q in benchmark.questions), strict=True))
    scores = [{**row, "prompt_id": ids[row["prompt_id"]]} for row in found.rows(columns)]
    summary = {**found.by_column(columns), "filed_under": found.judge}
    summary["cost"] = cost_of(judge.clients)
    stage_io.write_judged(ctx, judgments, scores, summary, JUDGMENT_SCHEMA)


def _answers(ctx: StageContext, benchmark: Benchmark, of: str = "answers") -> Answers:
    # The stage counted the policy's tokens; a benchmark has its own tokenizer.
    said = {p: Answer(own.turns) for p, own in stage_io.read_answers(ctx.inputs[of]).items()}
    answers = Answers(MODEL if of == "answers" else BASE, said)
    answers.to(benchmark.questions)
    return answers


def _write_nothing(ctx: StageContext, reasons: Mapping[str, str]) -> None:
    """Write the files of a judging stage without any score, with the reason for each column."""
    none = {"scores": dict.fromkeys(reasons), "n": 0, "n_missing": 0, "not_available": reasons}
    stage_io.write_judged(ctx, [], [], none, JUDGMENT_SCHEMA)


def run_tasks(ctx: StageContext) -> None:
    """Run the tasks on a policy; writes `answers.parquet`, and lm-eval's own results beside it."""
    if str(ctx.settings["benchmark"]) == NO_TASKS:
        stage_io.write_rows(ctx.output / "answers.parquet", [], TASK_ANSWER_SCHEMA)
        return
    from harness.evaluation.benchmarks.lm_eval import TASKS, keep_results, measure
    from harness.models.loading import fastest_device

    results = measure(
        str(ctx.settings["engine"]),
        {"pretrained": str(policy_folder(ctx)), "dtype": ctx.settings["dtype"]},
        batch_size=str(ctx.settings["batch_size"]),
        device=fastest_device(),
    )
    keep_results(results, ctx.output)
    rows = [row for task in TASKS for row in documents_of(task, results)]
    stage_io.write_rows(ctx.output / "answers.parquet", rows, TASK_ANSWER_SCHEMA)


def documents_of(task: LmEvalTask, results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a task's documents from lm-eval's results."""
    groups, samples = results.get("group_subtasks") or {}, results.get("samples") or {}
    for name in groups.get(task.name) or [task.name]:
        for sample in samples.get(name, ()):
            if sample.get("filter", task.filter) != task.filter:
                continue
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


def _first_text(value: Any) -> str:
    """Return the first leaf of nested lists as a string (multiple choice has numbers)."""
    if isinstance(value, list | tuple) and value:
        return _first_text(value[0])
    return "" if value is None else str(value)


def _score_tasks(ctx: StageContext) -> None:
    from harness.evaluation.benchmarks.lm_eval import TASKS

    if str(ctx.settings["benchmark"]) == NO_TASKS:
        absent = "the package lm-eval (extra `lm-eval`), which has the tasks, was not installed"
        _write_nothing(ctx, {task.column: absent for task in TASKS})
        return
    judgments = [
        {name: row[name] for name in ("prompt_id", "column", "value")}
        for row in stage_io.read_rows(ctx.inputs["answers"] / "answers.parquet")
    ]
    scores: Rows = [{**row, "value": 100.0 * row["value"]} for row in judgments]
    values: dict[str, list[float]] = {task.column: [] for task in TASKS}
    for row in scores:
        values[row["column"]].append(row["value"])
    lacking = [task for task in TASKS if not values[task.column]]
    summary = {
        "scores": {column: fmean(found) if found else None for column, found in values.items()},
        "n": len(scores),
        "n_missing": sum(task.documents for task in lacking),
        "notes": {task.column: task.assumption for task in TASKS if task.assumption},
        "not_available": {task.column: f"{task.name} was not run" for task in lacking},
    }
    stage_io.write_judged(ctx, judgments, scores, summary)
