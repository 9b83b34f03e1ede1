"""`evaluate` and `calibrate`: the paper's benchmarks as they are really run, or from files.

A judge is held against published judgments before its word counts for a profile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from harness.cli import common
from harness.cli.common import Grid, console, note, print_json, warn
from harness.errors import HarnessError, UserError
from harness.evaluation.options import EvaluateOptions, LmEvalOptions
from harness.extensions import BENCHMARKS, benchmark_place
from harness.project import benchmarks_dir, work_dir
from harness.selection.names import parse_names
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.evaluation.files import HomeFile
    from harness.evaluation.scores import Evaluated, Evaluation
    from harness.worlds.real.evaluating import EvaluationPlan

HELP = {
    "mt_bench": (
        "Rate two turns of answers to 80 questions, or score a file of ratings.",
        "harness evaluate mt_bench --data mt_bench --answers answers.jsonl --dry-run",
    ),
    "arena_hard": (
        "Judge answers to 500 questions against gpt-4-0314, or score a file of verdicts.",
        "harness evaluate arena_hard --judgments battles.jsonl",
    ),
    "alpaca_eval": (
        "Compare 805 answers with a reference model's, or score a file of annotations.",
        "harness evaluate alpaca_eval --judgments annotations.json",
    ),
}
"""What each shipped benchmark's command does, with an example."""


class FetchedFile(Strict):
    """A file of a benchmark that is here now."""

    benchmark: str
    path: str
    sha256: str
    was_there: bool
    """Whether it was here before."""


FetchedFiles = list[FetchedFile]

BenchmarksArgument = Annotated[
    list[str] | None, common.argument("BENCHMARK...", "Benchmarks.", default="all")
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

    @common.takes(EvaluateOptions)
    def evaluate(options: EvaluateOptions, as_json: common.JsonOption = False) -> None:
        from harness.worlds.real import evaluating

        if options.dry_run and options.judgments is None:
            _show_plan(evaluating.plan(name, options), as_json)
            return
        done = evaluating.evaluate(name, options, note, _progress())
        _show_done(done, "judgments", track=options.track, as_json=as_json)

    return evaluate


for _name, (_help, _example) in HELP.items():
    group.command(_name, help=_help, epilog=f"Example: {_example}")(command_of(_name))


@group.command("fetch", epilog="Example: harness evaluate fetch mt_bench arena_hard")
def fetch(benchmarks: BenchmarksArgument = None, as_json: common.JsonOption = False) -> None:
    """Fetch the benchmarks' own files from their public homes, and check their digests."""
    from harness.evaluation.benchmark import benchmark_class
    from harness.evaluation.files import fetch as fetch_files

    homes = {name: benchmark_class(name).homes for name in BENCHMARKS}
    known = [name for name, files in homes.items() if files]
    wanted = list(benchmarks or known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UserError(f"There is no benchmark `{unknown[0]}`; fetch {', '.join(known)}")
    out = console(stderr=as_json)
    found: list[FetchedFile] = []

    def info(benchmark: str, file: HomeFile, there: bool) -> None:
        word = "is there" if there else "fetched"
        out.print(f"{benchmark}/{file.name}: {word}, {file.sha256[:12]}", soft_wrap=True)
        place = benchmarks_dir() / benchmark_place(benchmark) / file.name
        found.append(
            FetchedFile(benchmark=benchmark, path=str(place), sha256=file.sha256, was_there=there)
        )

    for name in known:
        if name in wanted:
            fetch_files(homes[name], benchmarks_dir() / benchmark_place(name), partial(info, name))
    if as_json:
        print_json(found)


@group.command("lm_eval", epilog="Example: harness evaluate lm_eval --results results.json")
@common.takes(LmEvalOptions)
def lm_eval(options: LmEvalOptions, as_json: common.JsonOption = False) -> None:
    """Run table 9's six tasks with lm-evaluation-harness, or score results it wrote.

    Data sets and models come from the hub's cache; HF_HUB_OFFLINE=0 lets them be fetched.
    """
    from harness.evaluation.benchmarks import lm_eval as tasks
    from harness.evaluation.scores import Evaluated

    columns = parse_names(options.tasks)
    asked = tasks.TASKS if columns is None else tasks.tasks_of(columns)
    if options.results is not None:
        found = tasks.evaluate_results(tasks.read_results(options.results), options.model, asked)
        done = Evaluated([found], options.results)
    elif options.model is not None:
        url = os.environ.get("HARNESS_SOLVER_URL")
        done = tasks.evaluate(
            tasks.Measurement(options.model, base_url=url, limit=options.limit, tasks=asked)
        )
    else:
        raise UserError("There is nothing to evaluate; give --model, or --results to score a file")
    _show_done(done, "results and samples", track=options.track, as_json=as_json)


def _show_plan(planned: EvaluationPlan, as_json: bool) -> None:
    """Print what a run would ask and cost."""
    from harness.worlds.real.evaluating import dollars

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
    out.print(Grid(headings, rows, right="234567"))
    for line in (planned.prices, *(retirement.sentence for retirement in planned.retirements)):
        out.print(line)


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
    out.print(Grid(["model", "judge", "n", "missing", *columns], rows, right="23456789"))
    for line in notes:
        out.print(line)


def _cell(evaluation: Evaluation, name: str) -> str:
    value = evaluation.score.scores[name]
    if value is None:
        return "not_available"
    interval = evaluation.intervals.get(name)
    text = f"{value:.2f}"
    return text if interval is None else f"{text} ({interval[0]:.2f} to {interval[1]:.2f})"


def _show_done(done: Evaluated, what: str, *, track: bool, as_json: bool) -> None:
    """Print scores and where all behind them is, and track them.

    What cannot be kept or tracked of a published file is a warning: the scores are on the terminal.
    """
    from harness.tracking import Mlflow, evaluation_records

    _show(done.found, as_json)
    if not done.is_published:
        note(f"{what} in {done.place}")
    if not track:
        return
    try:
        kept = done.kept()
        Mlflow(work_dir(), warn).attempt(lambda: evaluation_records(kept))
    except HarnessError as error:
        warn(str(error))


JudgeArgument = Annotated[
    str,
    common.argument(
        "JUDGE", "A judge: `reward:owner/name`, a model at HARNESS_JUDGE_URL, or a plug-in's."
    ),
]

PublishedOption = Annotated[
    Path | None,
    common.option(
        "--published", "FILE", "Published judgments in AlpacaEval's form.", default="those fetched"
    ),
]

ComparisonsOption = Annotated[
    int | None, common.option("--limit", "N", "Only so many comparisons, to try.", min=2)
]


@app.command("calibrate", epilog="Example: harness calibrate reward:RLHFlow/ArmoRM-Llama3-8B-v0.1")
def calibrate(
    judge: JudgeArgument,
    published: PublishedOption = None,
    limit: ComparisonsOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Measure a judge: its agreement with published judgments, and its leanings.

    `harness doctor --profile NAME` says which judges of a profile are calibrated.
    """
    from harness.worlds.real.calibrating import calibrate as measured

    found = measured(judge, published, limit, partial(_progress(), "verdicts"))
    if as_json:
        print_json(found)
    else:
        console().print(f"{found.judge}: {found.text}", soft_wrap=True)
