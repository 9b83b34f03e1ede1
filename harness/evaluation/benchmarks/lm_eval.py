"""Table 9's downstream tasks: run with lm-evaluation-harness, or read from its results.

The paper reports six numbers per row, without metrics or shots: where a task reports several, the
choice is an assumption, stated in the column's notes. Tested only with lm-eval 0.4.13, on a few
items and a random model.

Source: paper appendix G, table 9; authors' code, `benchmark/lm-evaluation-harness/run.sh`
(lm-eval 0.4.3, batches of 4, no chat template); lm-eval 0.4.13.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.evaluation.scores import (
    NOT_AVAILABLE,
    Evaluation,
    Interval,
    write_json,
    write_lines,
)
from harness.foreign import in_a_line, read_json, read_plain, reason_of
from harness.runtime.stage import Json

BENCHMARK = "lm_eval"
SCORER = "lm-evaluation-harness"
UNKNOWN_VERSION = "of unknown version"
BATCH_SIZE = "4"
"""As in the authors' script."""

RESULTS = "results.json"

Results = Mapping[str, Any]


@dataclass(frozen=True)
class LmEvalTask:
    """One column of table 9; `assumption` is what the paper leaves open, and the choice made."""

    column: str
    name: str
    metric: str
    filter: str
    documents: int
    assumption: str = ""

    @property
    def key(self) -> str:
        return f"{self.metric},{self.filter}"

    @property
    def error_key(self) -> str:
        return f"{self.metric}_stderr,{self.filter}"


_FILTER = "the paper names no filter; strict-match is the first of the task's two"

TASKS = (
    LmEvalTask("musr_ta", "leaderboard_musr_team_allocation", "acc_norm", "none", 250),
    LmEvalTask(
        "tqa_gen",
        "truthfulqa_gen",
        "bleu_acc",
        "none",
        817,
        "the paper names no metric; bleu_acc is the first of the task's four shares",
    ),
    LmEvalTask("wmdp", "wmdp", "acc", "none", 3668),
    LmEvalTask("gsm8k", "gsm8k", "exact_match", "strict-match", 1319, _FILTER),
    LmEvalTask("gsm_plus", "gsm_plus_mini", "exact_match", "strict-match", 2400, _FILTER),
    LmEvalTask("mmlu_pro", "leaderboard_mmlu_pro", "acc", "none", 12032),
)


def installed() -> bool:
    return importlib.util.find_spec("lm_eval") is not None


def measure(
    engine: str,
    arguments: Mapping[str, Json],
    batch_size: str = BATCH_SIZE,
    device: str | None = None,
) -> dict[str, Any]:
    """Run the tasks and return lm-eval's results with samples."""
    if not installed():
        raise UserError(
            "Table 9's tasks need the package lm-eval, which is not installed; install the extra "
            "`lm-eval` of this project"
        )
    import lm_eval

    try:
        results = lm_eval.simple_evaluate(
            model=engine,
            model_args=dict(arguments),
            tasks=[task.name for task in TASKS],
            batch_size=batch_size,
            device=device,
            log_samples=True,
            # As in the authors' script.
            apply_chat_template=False,
        )
    except OSError as error:
        words = in_a_line(" ".join(str(error).split()), 300)
        raise HarnessError(
            f"lm-eval cannot load a model or a data set ({words}); put it into the hub's "
            "cache, or let it be fetched with HF_HUB_OFFLINE=0"
        ) from error
    except ImportError as error:
        raise UserError(f"lm-eval lacks a package ({error}); install it") from error
    if results is None:
        raise HarnessError("lm-eval returned no results; run it in one process")
    return dict(results)


def keep_results(results: Results, folder: Path) -> None:
    """Write lm-eval's results and each task's samples."""
    # They contain model output, which may not be encodable as it is.
    write_json(folder / RESULTS, _as_json({k: v for k, v in results.items() if k != "samples"}))
    for task, rows in (results.get("samples") or {}).items():
        write_lines(folder / f"samples_{task}.jsonl", [_as_json(row) for row in rows])


def _as_json(value: Any) -> Any:
    """Convert lm-eval's data to plain JSON: NumPy numbers to numbers, other objects to strings."""
    plain = json.dumps(value, default=lambda v: v.item() if hasattr(v, "item") else str(v))
    return read_json(plain)


def read_results(path: Path) -> dict[str, Any]:
    try:
        found = read_json(read_plain(path))
    except (OSError, ValueError) as error:
        why = reason_of(error)
        raise UserError(f"Cannot read {path}: {why}; give lm-eval's results as JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("results"), dict):
        raise UserError(f"{path} holds no results of lm-eval; give the file it wrote")
    return found


def evaluate_results(results: Results, model: str | None = None) -> Evaluation:
    """Score lm-eval's results: one column per task, in percent; one not run is missing."""
    by_task = {**results["results"], **(results.get("groups") or {})}
    scores: dict[str, float | None] = {}
    intervals: dict[str, Interval] = {}
    facts: dict[str, dict[str, Any]] = {}
    notes: dict[str, str] = {}
    run = missing = 0
    for task in TASKS:
        metrics = by_task.get(task.name)
        scores[task.column] = intervals[task.column] = None
        if not isinstance(metrics, Mapping) or task.key not in metrics:
            missing += task.documents
            what = "was not run" if metrics is None else f"has no {task.key}"
            notes[task.column] = f"{NOT_AVAILABLE}: {task.name} {what}"
            continue
        share = metrics[task.key]
        if not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
            raise UserError(f"{task.name} has the {task.key} {share!r}; it must be a share, 0 to 1")
        scores[task.column] = 100.0 * share
        intervals[task.column] = _interval(share, metrics.get(task.error_key))
        found, seen, all_of_it = _facts(results, task)
        run, missing = run + seen, missing + all_of_it - seen
        facts[task.column] = found
        if task.assumption:
            notes[task.column] = task.assumption
    if not facts:
        names = ", ".join(task.name for task in TASKS)
        raise UserError(f"The results hold none of the tasks {names}; run one of them")
    if results.get("chat_template"):
        notes["chat template"] = "one was applied; the paper's runs had none"
    return Evaluation(
        benchmark=BENCHMARK,
        model=model or _model(results),
        scores=scores,
        n=run,
        n_missing=missing,
        prompts=(),
        values={},
        notes=notes,
        own_intervals=intervals,
        judge=scorer(results),
        tasks=facts,
    )


def scorer(results: Results) -> str:
    """Return the package and version that produced the results."""
    return f"{SCORER} {results.get('lm_eval_version') or UNKNOWN_VERSION}"


def _interval(share: float, error: object) -> Interval:
    if not isinstance(error, int | float):
        return None
    from scipy import stats

    half = float(stats.norm.ppf(0.975)) * error
    return 100.0 * (share - half), 100.0 * (share + half)


def _facts(results: Results, task: LmEvalTask) -> tuple[dict[str, Any], int, int]:
    """Return the facts behind a task's score, the documents run, and the documents it has."""
    parts = (results.get("group_subtasks") or {}).get(task.name) or [task.name]

    def shared(name: str) -> Any:
        found = results.get(name) or {}
        if task.name in found:
            return found[task.name]
        values = {str(found[part]) for part in parts if part in found}
        return values.pop() if len(values) == 1 else None

    counts = results.get("n-samples") or {}
    counted = [counts[part] for part in parts if part in counts]
    seen = all_of_it = task.documents
    if counted:
        seen, all_of_it = (sum(part[k] for part in counted) for k in ("effective", "original"))
    found = {
        "task": task.name,
        "metric": task.key,
        "version": shared("versions"),
        "shots": shared("n-shot"),
        "documents": seen,
    }
    return found, seen, all_of_it


def _model(results: Results) -> str:
    told = (results.get("config") or {}).get("model_args") or {}
    if isinstance(told, str):
        told = dict(part.split("=", 1) for part in told.split(",") if "=" in part)
    return str(told.get("pretrained") or told.get("model") or "not said")
