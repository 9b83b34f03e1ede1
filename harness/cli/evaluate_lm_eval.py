"""`evaluate lm-eval`: table 9's downstream tasks, run by lm-evaluation-harness or read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from harness.benchmarking.options import MODEL_KEY
from harness.cli.evaluate_options import (
    BatchSizeOption,
    DeviceOption,
    DryRunOption,
    EngineArgumentsOption,
    EngineOption,
    LimitOption,
    LmEvalModelOption,
    LmEvalUrlOption,
    ModelKeyOption,
    ResultsOption,
    TasksOption,
    TrackOption,
)
from harness.cli.evaluate_printing import show, show_published
from harness.cli.options import JsonOption
from harness.cli.output import console, grid, note, print_json, warn
from harness.errors import UserError
from harness.project import evaluations_dir
from harness.selection.names import parse_names

if TYPE_CHECKING:
    from harness.evaluation.lm_eval_run import Measurement
    from harness.evaluation.lm_eval_tasks import Task


def register(app: typer.Typer) -> None:
    """Add the benchmark to the group."""
    app.command("lm-eval", epilog="Example: harness evaluate lm-eval --results results.json")(
        lm_eval
    )


def lm_eval(
    model: LmEvalModelOption = None,
    results: ResultsOption = None,
    engine: EngineOption = "hf",
    engine_args: EngineArgumentsOption = None,
    model_base_url: LmEvalUrlOption = None,
    model_key_env: ModelKeyOption = MODEL_KEY,
    tasks: TasksOption = None,
    batch_size: BatchSizeOption = "4",
    device: DeviceOption = None,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    track: TrackOption = True,
    as_json: JsonOption = False,
) -> None:
    """Run table 9's six tasks with lm-evaluation-harness, or score results it wrote.

    Data sets and models come from the hub's cache; HF_HUB_OFFLINE=0 lets them be fetched.
    """
    from harness.evaluation.lm_eval_run import Measurement, parse_arguments
    from harness.evaluation.lm_eval_tasks import evaluate_results, read_results

    chosen = _chosen(tasks)
    if results is not None:
        if dry_run or model_base_url is not None:
            raise UserError("`--results` is scored as it is; nothing is run")
        found = evaluate_results(read_results(results), model, chosen)
        show_published([found], results, track=track, as_json=as_json)
        return
    if not re.fullmatch(r"auto|[1-9]\d{0,5}", batch_size, re.ASCII):
        raise UserError(
            f"`--batch-size {batch_size[:80]}` is no number of prompts; give one above 0, or `auto`"
        )
    if model is None:
        raise UserError("There is nothing to evaluate; give --model, or --results to score a file")
    asked = Measurement(
        model=model,
        engine=engine,
        base_url=model_base_url,
        key_variable=model_key_env,
        arguments=parse_arguments("--engine-args", engine_args),
        batch_size=batch_size,
        device=device,
        limit=limit,
        tasks=chosen,
    )
    if dry_run:
        _show_plan(asked, as_json)
        return
    _run(asked, track, as_json)


def _run(asked: Measurement, track: bool, as_json: bool) -> None:
    """Measure, keep results, samples and scores in one folder, and report them."""
    from harness.benchmarking import live
    from harness.evaluation.benchmark_archive import folder_of, keep
    from harness.evaluation.lm_eval_run import keep_results, measure
    from harness.evaluation.lm_eval_tasks import BENCHMARK, evaluate_results, scorer

    found = measure(asked)
    folder = folder_of(evaluations_dir(), BENCHMARK, asked.model, scorer(found))
    evaluation = evaluate_results(keep_results(found, folder), asked.model, asked.tasks)
    kept = keep(folder, evaluation, {"kind": "measured", "data": asked.digest})
    show([evaluation], as_json)
    note(f"results and samples in {folder}")
    if track:
        live.track([kept], warn)


def _chosen(names: str | None) -> Sequence[Task]:
    """Return the tasks of the columns that are named; all six where none is."""
    from harness.evaluation.lm_eval_tasks import TASKS

    wanted = parse_names("--tasks", names)
    if wanted is None:
        return TASKS
    by_column = {task.column: task for task in TASKS}
    unknown = [name for name in wanted if name not in by_column]
    if unknown:
        raise UserError(f"Table 9 has no column `{unknown[0]}`; it has {', '.join(by_column)}")
    return [by_column[name] for name in wanted]


def _show_plan(asked: Measurement, as_json: bool) -> None:
    """Print which tasks would be run, and by what they are scored."""
    from harness.evaluation.lm_eval_tasks import BENCHMARK

    if as_json:
        tasks = [
            {
                "column": task.column,
                "task": task.name,
                "metric": task.key,
                "documents": task.documents,
                "assumption": task.assumption or None,
            }
            for task in asked.tasks
        ]
        print_json({"benchmark": BENCHMARK, "model": asked.model, "tasks": tasks})
        return
    rows = [(t.column, t.name, t.key, str(t.documents), t.assumption) for t in asked.tasks]
    headings = ("column", "task of lm-eval", "metric", "items", "what the paper leaves open")
    console().print(grid(headings, rows, right="3"))
