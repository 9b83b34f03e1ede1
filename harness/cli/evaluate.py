"""`evaluate`: the paper's real benchmarks, judged or scored from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import console, emit, note, print_all, print_json, text_table, unbroken
from harness.errors import HarnessError, UserError
from harness.extensions import BENCHMARKS, benchmark_place
from harness.project import benchmarks_dir, work_dir

if TYPE_CHECKING:
    from harness.evaluation.scores import Evaluated, Evaluation


BenchmarksArgument = Annotated[
    list[str] | None, common.argument("BENCHMARK...", "Benchmarks.", default="all")
]

AnswersOption = Annotated[Path | None, common.option("--answers", "FILE", "The model's answers.")]
ModelOption = Annotated[
    str | None,
    common.option(
        "--model",
        "NAME",
        "The model, where a file has several; its name in scores.",
        default="the file's",
    ),
]
JudgeOption = Annotated[
    str | None,
    common.option(
        "--judge",
        "JUDGE",
        "A model at HARNESS_JUDGE_URL or its provider's, `reward:owner/name`, or a plug-in's.",
        default="the benchmark's own",
    ),
]
JudgmentsOption = Annotated[
    Path | None,
    common.option(
        "--judgments", "FILE", "Published judgments, battles or annotations; nothing is sent."
    ),
]
DataOption = Annotated[
    Path | None,
    common.option("--data", "DIR", "The benchmark's own files.", default="those fetched"),
]
TrackOption = Annotated[
    bool, common.option("--track/--no-track", None, "Write the scores to MLflow as well.")
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

    def evaluate(
        answers: AnswersOption = None,
        model: ModelOption = None,
        judge: JudgeOption = None,
        judgments: JudgmentsOption = None,
        data: DataOption = None,
        budget_usd: common.BudgetOption = None,
        track: TrackOption = True,
        calibrate: CalibrateOption = False,
        as_json: common.JsonOption = False,
    ) -> None:
        from harness.worlds.real import evaluating

        if calibrate:
            if judge is None or (answers, model, data) != (None, None, None):
                raise UserError(
                    "`--calibrate` measures a judge; name it with --judge, and no --answers, "
                    "--model or --data"
                )
            with _progress("verdicts") as done:
                found = evaluating.calibrate(name, judge, judgments, budget_usd, done)
            emit(found, as_json, lambda found: [unbroken(f"{found.judge}: {found.text}")])
            return
        with _progress("judgments") as progress:
            evaluated = evaluating.evaluate(
                name,
                answers=answers,
                model=model,
                judge=judge,
                judgments=judgments,
                data=data,
                budget_usd=budget_usd,
                say=note,
                progress=progress,
            )
        _show_done(evaluated, track=track, as_json=as_json)

    return evaluate


@group.command("fetch", epilog="Example: harness evaluate fetch mt_bench arena_hard")
def fetch(benchmarks: BenchmarksArgument = None, as_json: common.JsonOption = False) -> None:
    """Fetch the benchmarks' own files from their public homes, and check their digests."""
    from harness.evaluation.benchmark import benchmark_class
    from harness.evaluation.files import fetch as fetch_file

    homes = {name: benchmark_class(name).homes for name in BENCHMARKS}
    known = [name for name, files in homes.items() if files]
    wanted = list(benchmarks or known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UserError(f"There is no benchmark `{unknown[0]}`; fetch {', '.join(known)}")
    out = console(stderr=as_json)
    found: list[dict[str, Any]] = []
    for name in known:
        folder = benchmarks_dir() / benchmark_place(name)
        for file in homes[name] if name in wanted else ():
            there = fetch_file(file, folder)
            word = "is there" if there else "fetched"
            out.print(f"{name}/{file.name}: {word}, {file.sha256[:12]}", soft_wrap=True)
            said = {"benchmark": name, "path": str(folder / file.name), "sha256": file.sha256}
            found.append({**said, "was_there": there})
    if as_json:
        print_json(found)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    with common.watching() as show:
        yield lambda count, total: show(f"{count} of {total} {what}")


def _scores(found: Sequence[Evaluation]) -> Iterator[Any]:
    """Yield a table with a row per model."""
    columns = list(dict.fromkeys(c for e in found for c in e.columns.values()))
    rows = []
    for e in found:
        cells = {e.columns[name]: _cell(e, name) for name in e.columns}
        row = [e.model, e.judge or "not said", str(e.n), str(e.n_missing)]
        rows.append([*row, *(cells.get(column, "") for column in columns)])
    head = ["model", "judge", "n", "missing", *columns]
    yield text_table(head, rows, right=range(2, len(head)))


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
        print_json([evaluation.summary for evaluation in found])
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
