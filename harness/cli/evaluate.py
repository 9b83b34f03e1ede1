"""`evaluate`: the paper's benchmarks as they are really run, or scored from published files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from harness.benchmarking.options import MODEL_KEY, EvaluateOptions, options_of
from harness.cli.options import JsonOption, takes
from harness.cli.output import console, grid, note, print_json, warn
from harness.errors import HarnessError, UserError
from harness.extensions import BENCHMARKS
from harness.project import benchmarks_dir, evaluations_dir
from harness.selection.names import parse_names

if TYPE_CHECKING:
    from harness.benchmarking.live import EvaluationPlan, Voice
    from harness.evaluation.benchmarks.lm_eval import Measurement, Task
    from harness.evaluation.files import HomeFile
    from harness.evaluation.scores import Evaluation

HELP = {
    "mt-bench": (
        "Rate two turns of answers to 80 questions, or score a file of ratings.",
        "harness evaluate mt-bench --data mt_bench --answers answers.jsonl --dry-run",
    ),
    "arena-hard": (
        "Judge answers to 500 questions against gpt-4-0314, or score a file of verdicts.",
        "harness evaluate arena-hard --battles battles.jsonl",
    ),
    "alpaca-eval": (
        "Compare 805 answers with a reference model's, or score a file of annotations.",
        "harness evaluate alpaca-eval --annotations annotations.json",
    ),
}
"""What each shipped benchmark's command does, with an example."""

BenchmarksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="BENCHMARK...", help="Benchmarks.", show_default="all"),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", metavar="FILE", help="Results of lm-eval; nothing is run."),
]
LmEvalModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A model's folder or name; its name in scores."),
]
LmEvalUrlOption = Annotated[
    str | None,
    typer.Option("--model-base-url", metavar="URL", help="An endpoint that completes text."),
]
ModelKeyOption = Annotated[
    str, typer.Option("--model-key-env", metavar="VAR", help="The variable with its key.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="What runs a local model: hf, vllm.")
]
EngineArgumentsOption = Annotated[
    str | None,
    typer.Option("--engine-args", metavar="N=V,..", help="Further arguments of the engine."),
]
BatchSizeOption = Annotated[
    str, typer.Option("--batch-size", metavar="N", help="Prompts at once, or `auto`.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="As torch names it.", show_default="lm-eval's"),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Only so many items of each task, to try."),
]
TasksOption = Annotated[
    str | None,
    typer.Option("--tasks", metavar="A,B", help="Columns of table 9.", show_default="all six"),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show requests and price, and send nothing.")
]
TrackOption = Annotated[
    bool, typer.Option("--track/--no-track", help="Write the scores to MLflow as well.")
]


class BenchmarkGroup(TyperGroup):
    """The commands of the shipped benchmarks, and one for each of a plug-in."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *(n for n in BENCHMARKS if n not in HELP)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; that of a plug-in's benchmark is made when it is asked for."""
        found = super().get_command(ctx, cmd_name)
        if found is not None or BENCHMARKS.added(cmd_name) is None:
            return found
        lines = (BENCHMARKS.get(cmd_name).__doc__ or "A benchmark of a plug-in.").splitlines()
        own = typer.Typer(rich_markup_mode=None)
        own.command(cmd_name, help=lines[0])(command_of(cmd_name))
        return typer.main.get_command(own)


group = typer.Typer(
    cls=BenchmarkGroup,
    help="The paper's benchmarks with a judge, or scored from published files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(group, name="evaluate")


def command_of(name: str) -> Callable[..., None]:
    """Return the command that judges answers to a benchmark, or scores a published file."""

    @takes(options_of(name))
    def evaluate(options: EvaluateOptions, as_json: JsonOption = False) -> None:
        from harness.benchmarking import live
        from harness.evaluation.archive import FILE

        file = options.published
        if file is not None:
            found = live.score_published(name, file, options)
            _show_published(found, file, track=options.track, as_json=as_json)
            return
        judged = live.evaluate(name, options, voice(as_json=as_json))
        if judged is None:
            return
        evaluation, folder = judged
        _show([evaluation], as_json)
        note(f"judgments in {folder}")
        if options.track:
            live.track([folder / FILE], warn)

    return evaluate


for _name, (_help, _example) in HELP.items():
    group.command(_name, help=_help, epilog=f"Example: {_example}")(command_of(_name))


@group.command("fetch", epilog="Example: harness evaluate fetch mt-bench arena-hard")
def fetch(benchmarks: BenchmarksArgument = None) -> None:
    """Fetch the benchmarks' own files from their public homes, and check their digests."""
    from harness.evaluation.benchmark import benchmark_class
    from harness.evaluation.files import fetch as fetch_files

    homes = {name: benchmark_class(name).homes for name in BENCHMARKS}
    known = [name for name, files in homes.items() if files]
    wanted = benchmarks or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UserError(f"There is no benchmark `{unknown[0]}`; fetch {', '.join(known)}")
    out = console()

    def info(benchmark: str, file: HomeFile, there: bool) -> None:
        word = "is there" if there else "fetched"
        out.print(f"{benchmark}/{file.name}: {word}, {file.sha256[:12]}", soft_wrap=True)

    for name in known:
        if name in wanted:
            fetch_files(homes[name], benchmarks_dir() / name, partial(info, name))


@group.command("lm-eval", epilog="Example: harness evaluate lm-eval --results results.json")
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
    from harness.evaluation.benchmarks.lm_eval import (
        Measurement,
        evaluate_results,
        parse_arguments,
        read_results,
    )

    chosen = _chosen(tasks)
    if results is not None:
        if dry_run or model_base_url is not None:
            raise UserError("`--results` is scored as it is; nothing is run")
        found = evaluate_results(read_results(results), model, chosen)
        _show_published([found], results, track=track, as_json=as_json)
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
        _show_tasks(asked, as_json)
        return
    _run(asked, track, as_json)


def _run(asked: Measurement, track: bool, as_json: bool) -> None:
    """Measure, keep results, samples and scores in one folder, and report them."""
    from harness.benchmarking import live
    from harness.evaluation.archive import folder_of, keep
    from harness.evaluation.benchmarks.lm_eval import (
        BENCHMARK,
        evaluate_results,
        keep_results,
        measure,
        scorer,
    )

    found = measure(asked)
    folder = folder_of(evaluations_dir(), BENCHMARK, asked.model, scorer(found))
    evaluation = evaluate_results(keep_results(found, folder), asked.model, asked.tasks)
    kept = keep(folder, evaluation, {"kind": "measured", "data": asked.digest})
    _show([evaluation], as_json)
    note(f"results and samples in {folder}")
    if track:
        live.track([kept], warn)


def _chosen(names: str | None) -> Sequence[Task]:
    """Return the tasks of the columns that are named; all six where none is."""
    from harness.evaluation.benchmarks.lm_eval import TASKS

    wanted = parse_names("--tasks", names)
    if wanted is None:
        return TASKS
    by_column = {task.column: task for task in TASKS}
    unknown = [name for name in wanted if name not in by_column]
    if unknown:
        raise UserError(f"Table 9 has no column `{unknown[0]}`; it has {', '.join(by_column)}")
    return [by_column[name] for name in wanted]


def _show_tasks(asked: Measurement, as_json: bool) -> None:
    """Print which tasks would be run, and by what they are scored."""
    from harness.evaluation.benchmarks.lm_eval import BENCHMARK, PlannedTask, TaskPlan

    if as_json:
        tasks = tuple(
            PlannedTask(
                column=task.column,
                task=task.name,
                metric=task.key,
                documents=task.documents,
                assumption=task.assumption or None,
            )
            for task in asked.tasks
        )
        print_json(TaskPlan(benchmark=BENCHMARK, model=asked.model, tasks=tasks))
        return
    rows = [(t.column, t.name, t.key, str(t.documents), t.assumption) for t in asked.tasks]
    headings = ("column", "task of lm-eval", "metric", "items", "what the paper leaves open")
    console().print(grid(headings, rows, right="3"))


def voice(*, as_json: bool) -> Voice:
    """Return what tells the terminal how a benchmark goes."""
    from harness.benchmarking.live import Voice

    return Voice(note, warn, _progress(), partial(_show_plan, as_json=as_json))


def _show_plan(planned: EvaluationPlan, *, as_json: bool) -> None:
    """Print what a run would ask and cost, as JSON and nothing else where that is wanted."""
    from harness.benchmarking.live import dollars

    if as_json:
        print_json(planned)
        return
    rows = [
        (
            line.what,
            line.model,
            str(line.requests),
            str(line.from_cache),
            str(line.prompt_tokens),
            str(line.completion_tokens),
            dollars(line.usd),
            dollars(line.usd_at_most),
        )
        for line in planned.requests
    ]
    headings = (
        "requests", "model", "all", "already there", "prompt tokens", "reply tokens", "about",
        "at most",
    )  # fmt: skip
    out = console()
    out.print(grid(headings, rows, right="234567"))
    for line in (planned.prices, *(retirement.sentence for retirement in planned.retirements)):
        out.print(line, soft_wrap=True)


def _progress() -> Callable[[str, int, int], None]:
    """Return what prints how far a run is, at every tenth and only for people who watch."""
    shown: dict[str, int] = {}

    def progress(what: str, count: int, total: int) -> None:
        tenth = 10 * count // total
        if tenth > shown.get(what, 0):
            shown[what] = tenth
            note(f"{count} of {total} {what}")

    return progress


def _show(found: Sequence[Evaluation], as_json: bool) -> None:
    """Print scores, a row for each model, and why some are missing."""
    notes = sorted({f"{name}: {text}" for e in found for name, text in e.score.notes.items()})
    if as_json:
        summaries = [evaluation.summary for evaluation in found]
        print_json([{"schema_version": s.schema_version, **s.as_json()} for s in summaries])
        for line in notes:
            note(line)
        return
    columns = list(dict.fromkeys(c for e in found for c in e.columns.values()))
    rows = []
    for evaluation in found:
        cells = {evaluation.columns[name]: _cell(evaluation, name) for name in evaluation.columns}
        score = evaluation.score
        row = [score.model, evaluation.judge or "not said", str(score.n), str(score.n_missing)]
        rows.append([*row, *(cells.get(column, "") for column in columns)])
    out = console()
    out.print(grid(["model", "judge", "n", "missing", *columns], rows, right="23456789"))
    for line in notes:
        out.print(line, soft_wrap=True)


def _cell(evaluation: Evaluation, name: str) -> str:
    value = evaluation.score.scores[name]
    if value is None:
        return "not_available"
    interval = evaluation.intervals.get(name)
    text = f"{value:.2f}"
    return text if interval is None else f"{text} ({interval[0]:.2f} to {interval[1]:.2f})"


def _show_published(found: Sequence[Evaluation], file: Path, *, track: bool, as_json: bool) -> None:
    """Print scores of a file, keep them, and track them.

    What cannot be kept or tracked is a warning: the scores are on the terminal.
    """
    from harness.benchmarking import live

    _show(found, as_json)
    if not track:
        return
    try:
        paths = live.keep_published(found, file)
    except HarnessError as error:
        warn(str(error))
        return
    live.track(paths, warn)
