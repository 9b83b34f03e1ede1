"""Table 9's downstream tasks, read from results of lm-evaluation-harness.

The paper prints six numbers a row and neither metrics nor shots. The tasks are those of the
authors' script, with the shots the tasks themselves set. The metric is what the task reports where
it reports one. Where it reports several, the choice is an assumption and says so in its column's
notes; all printed values are multiples of one item out of `documents`, so that each of them is
a share of right answers.

Versions, shots and counts are taken from the results themselves: another version of a task is
another task, whatever it is called.

Source: paper appendix G, table 9; authors' code, `benchmark/lm-evaluation-harness/run.sh`
(lm-eval 0.4.3, batches of 4, no chat template); lm-eval 0.4.13, `result_schema.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from harness.errors import UserError
from harness.evaluation.benchmark_result import NOT_AVAILABLE, Evaluation
from harness.evaluation.scores import BenchmarkScore
from harness.foreign import read_json, read_plain

BENCHMARK = "lm-eval"
SCORER = "lm-evaluation-harness"
UNKNOWN_VERSION = "of unknown version"

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """One column of table 9.

    Attributes:
        column: The column's id.
        name: The task, or group of tasks, in lm-eval.
        metric: Its metric.
        filter: The filter of the answers behind it, as lm-eval names it.
        documents: Items of the public set.
        assumption: What the paper leaves open, and the choice made; empty where nothing is.
    """

    column: str
    name: str
    metric: str
    filter: str
    documents: int
    assumption: str = ""

    @property
    def key(self) -> str:
        """The metric's key in a task's results."""
        return f"{self.metric},{self.filter}"

    @property
    def error_key(self) -> str:
        """The key of its standard error."""
        return f"{self.metric}_stderr,{self.filter}"


_FILTER = "the paper names no filter; strict-match is the first of the task's two"

TASKS = (
    Task("musr_ta", "leaderboard_musr_team_allocation", "acc_norm", "none", 250),
    Task(
        "tqa_gen",
        "truthfulqa_gen",
        "bleu_acc",
        "none",
        817,
        "the paper names no metric; bleu_acc is the first of the task's four shares",
    ),
    Task("wmdp", "wmdp", "acc", "none", 3668),
    Task("gsm8k", "gsm8k", "exact_match", "strict-match", 1319, _FILTER),
    Task("gsm_plus", "gsm_plus_mini", "exact_match", "strict-match", 2400, _FILTER),
    Task("mmlu_pro", "leaderboard_mmlu_pro", "acc", "none", 12032),
)


def read_results(path: Path) -> dict[str, Any]:
    """Read a results file of lm-eval.

    Raises:
        UserError: It cannot be read or is none.
    """
    try:
        found = read_json(read_plain(path))
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {error}; give lm-eval's results as JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("results"), dict):
        raise UserError(f"{path} holds no results of lm-eval; give the file it wrote")
    return found


def evaluate_results(
    results: Results, model: str | None = None, tasks: Sequence[Task] = TASKS
) -> Evaluation:
    """Score lm-eval's results: one column for each task, in percent, with 95% intervals.

    Args:
        results: What lm-eval returned or wrote.
        model: The model's name; None takes it from the results.
        tasks: The columns. One whose task was not run has no score, and its documents are missing.

    Returns:
        The evaluation; `n` counts documents over all columns.

    Raises:
        UserError: No task was run, or a value is no share.
    """
    by_task = {**results["results"], **_mapping(results, "groups")}
    scores: dict[str, float | None] = {}
    intervals: dict[str, tuple[float, float] | None] = {}
    facts: dict[str, dict[str, Any]] = {}
    notes: dict[str, str] = {}
    run = missing = 0
    for task in tasks:
        metrics = by_task.get(task.name)
        scores[task.column] = intervals[task.column] = None
        if not isinstance(metrics, Mapping) or task.key not in metrics:
            missing += task.documents
            what = "was not run" if metrics is None else f"has no {task.key}"
            notes[task.column] = f"{NOT_AVAILABLE}: {task.name} {what}"
            continue
        scores[task.column] = 100.0 * _share(metrics[task.key], task)
        intervals[task.column] = _interval(metrics, task)
        seen, all_of_it = _documents(results, metrics, task)
        run, missing = run + seen, missing + all_of_it - seen
        facts[task.column] = _facts(results, task, seen)
        if task.assumption:
            notes[task.column] = task.assumption
    if not facts:
        names = ", ".join(task.name for task in tasks)
        raise UserError(f"The results hold none of the tasks {names}; run one of them")
    if results.get("chat_template"):
        notes["chat template"] = "one was applied; the paper's runs had none"
    score = BenchmarkScore(
        benchmark=BENCHMARK,
        model=model or _model(results),
        scores=scores,
        n=run,
        n_missing=missing,
        prompts=(),
        values={},
        notes=notes,
    )
    return Evaluation(score, scorer(results), intervals, facts)


def scorer(results: Results) -> str:
    """Return who scored: the package with its version, as the results say it."""
    return f"{SCORER} {results.get('lm_eval_version') or UNKNOWN_VERSION}"


def _share(value: object, task: Task) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise UserError(f"{task.name} has the {task.key} {value!r}; it must be a share, 0 to 1")
    return float(value)


def _interval(metrics: Mapping[str, Any], task: Task) -> tuple[float, float] | None:
    error = metrics.get(task.error_key)
    if isinstance(error, bool) or not isinstance(error, int | float):
        return None
    half = float(stats.norm.ppf(0.975)) * error
    value = float(metrics[task.key])
    return 100.0 * (value - half), 100.0 * (value + half)


def _documents(results: Results, metrics: Mapping[str, Any], task: Task) -> tuple[int, int]:
    """Return how many documents of a task were run, and how many it has."""
    counts = _mapping(results, "n-samples")
    parts = [counts[name] for name in _parts(results, task) if name in counts]
    if parts:
        effective, original = (
            sum(_count(part, name, task) for part in parts) for name in ("effective", "original")
        )
        return effective, original
    seen = metrics.get("sample_len")
    return (seen, task.documents) if isinstance(seen, int) else (task.documents, task.documents)


def _count(part: object, name: str, task: Task) -> int:
    count = part.get(name) if isinstance(part, Mapping) else None
    if not isinstance(count, int) or count < 0:
        raise UserError(f"{task.name} has {count!r} {name} items; it must be a number of them")
    return count


def _facts(results: Results, task: Task, seen: int) -> dict[str, Any]:
    """Return what makes a task's number that number."""
    parts = _parts(results, task)
    return {
        "task": task.name,
        "metric": task.key,
        "version": _agreed(_mapping(results, "versions"), task, parts),
        "shots": _agreed(_mapping(results, "n-shot"), task, parts),
        "documents": seen,
    }


def _parts(results: Results, task: Task) -> list[str]:
    """Return the tasks of a group; a task is its own only part."""
    below = _mapping(results, "group_subtasks").get(task.name)
    return list(below) if isinstance(below, list) and below else [task.name]


def _agreed(found: Mapping[str, Any], task: Task, parts: Sequence[str]) -> Any:
    """Return a task's own entry, else the one that its parts share; None where there is none."""
    if task.name in found:
        return found[task.name]
    values = {str(found[name]) for name in parts if name in found}
    return values.pop() if len(values) == 1 else None


def _model(results: Results) -> str:
    name = results.get("model_name")
    if isinstance(name, str) and name:
        return name
    config = _mapping(results, "config")
    arguments = config.get("model_args")
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    if isinstance(arguments, Mapping):
        for key in ("pretrained", "model"):
            if arguments.get(key):
                return str(arguments[key])
    return str(config.get("model", "not said"))


def _mapping(results: Results, name: str) -> Mapping[str, Any]:
    found = results.get(name)
    return found if isinstance(found, Mapping) else {}
