"""`evaluate`: the paper's real benchmarks, judged or scored from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import console, emit, note, print_all, print_json, text_table, unbroken
from harness.errors import HarnessError, UserError
from harness.evaluation.options import EvaluateOptions, LmEvalOptions
from harness.extensions import BENCHMARKS, benchmark_place
from harness.project import benchmarks_dir, work_dir
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.evaluation.files import HomeFile
    from harness.evaluation.scores import Evaluated, Evaluation


class FetchedFile(Strict):
    """A benchmark file that is available locally."""

    benchmark: str
    path: str
    sha256: str
    was_there: bool
    """Whether it was here before."""


BenchmarksArgument = Annotated[
    list[str] | None, common.argument("BENCHMARK...", "Benchmarks.", default="all")
]

CalibrateOption = Annotated[
    bool,
    common.option(
        "--calibrate",
        None,
        "Measure the judge on published judgments in AlpacaEval's form (fetched, or --judgments).",
    ),
]


class BenchmarkGroup(common.Verbs):
    """Commands, and one more for each benchmark: of the package or a plug-in."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*BENCHMARKS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; those of benchmarks are created on demand."""
        if cmd_name not in BENCHMARKS:
            return super().get_command(ctx, cmd_name)
        says = (BENCHMARKS.load(cmd_name).__doc__ or "A benchmark of a plug-in.").splitlines()[0]
        own = typer.Typer(rich_markup_mode=None, add_completion=False)
        example = f"Example: harness evaluate {cmd_name} --answers answers.jsonl --budget-usd 5"
        own.command(cmd_name, help=says, epilog=example)(command_of(cmd_name))
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
    """Return the command that judges answers to a benchmark, or scores published judgments."""

    @common.takes(EvaluateOptions)
    def evaluate(
        options: EvaluateOptions,
        calibrate: CalibrateOption = False,
        as_json: common.JsonOption = False,
    ) -> None:
        from harness.worlds.real import evaluating

        if calibrate:
            found = evaluating.calibrate(name, options, partial(_progress(), "verdicts"))
            emit(found, as_json, lambda found: [unbroken(f"{found.judge}: {found.text}")])
            return
        done = evaluating.evaluate(name, options, note, _progress())
        _show_done(done, track=options.track, as_json=as_json)

    return evaluate


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
    """Score results of table 9's six tasks that lm-evaluation-harness wrote."""
    from harness.evaluation.benchmarks import lm_eval as tasks
    from harness.evaluation.scores import Evaluated

    if options.results is None:
        raise UserError("There is nothing to score; give the file that lm-eval wrote in --results")
    found = tasks.evaluate_results(tasks.read_results(options.results), options.model)
    done = Evaluated([found], options.results)
    _show_done(done, track=options.track, as_json=as_json)


def _progress() -> Callable[[str, int, int], None]:
    """Return a callback that reports progress on stderr at every 10%."""
    shown: dict[str, int] = {}

    def progress(what: str, count: int, total: int) -> None:
        tenth = 10 * count // total
        if tenth > shown.get(what, 0):
            shown[what] = tenth
            note(f"{count} of {total} {what}")

    return progress


def _scores(found: Sequence[Evaluation]) -> Iterator[Any]:
    """Yield a table with a row per model."""
    columns = list(dict.fromkeys(c for e in found for c in e.columns.values()))
    rows = []
    for e in found:
        cells = {e.columns[name]: _cell(e, name) for name in e.columns}
        row = [e.model, e.judge or "not said", str(e.n), str(e.n_missing)]
        rows.append([*row, *(cells.get(column, "") for column in columns)])
    yield text_table(["model", "judge", "n", "missing", *columns], rows, right="23456789")


def _cell(evaluation: Evaluation, name: str) -> str:
    value = evaluation.scores[name]
    if value is None:
        return "not_available"
    interval = evaluation.intervals.get(name)
    text = f"{value:.2f}"
    return text if interval is None else f"{text} ({interval[0]:.2f} to {interval[1]:.2f})"


def _show_done(done: Evaluated, *, track: bool, as_json: bool) -> None:
    """Print scores and where their evidence is stored, and track them.

    Failing to keep or track a published file's scores is only a note, since they were printed.
    """
    from harness.tracking import Mlflow, evaluation_records

    found = done.found
    notes = sorted({f"{name}: {text}" for e in found for name, text in e.notes.items()})
    if as_json:
        summaries = [evaluation.summary for evaluation in found]
        print_json([{"schema_version": s.schema_version, **s.as_json()} for s in summaries])
        for line in notes:
            note(line)
    else:
        print_all([*_scores(found), *notes])
    if not done.is_published:
        note(f"judgments in {done.place}")
    if not track:
        return
    try:
        kept = done.kept()
        with common.watching() as show:
            Mlflow(work_dir(), note, watch=show).attempt(lambda: evaluation_records(kept))
    except HarnessError as error:
        note(str(error))
