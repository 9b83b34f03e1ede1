"""`sweep`: search settings with Optuna, and look at what a search has found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import common
from harness.cli.common import Grid, console, note, print_json, warn
from harness.errors import UserError
from harness.project import results_dir, store_dir
from harness.selection.names import DEFAULT_PROFILE, workers_of
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.registry.profile import Profile
    from harness.report.sweep import SweepReport
    from harness.report.view import Block
    from harness.sweep.declaration import Sweep
    from harness.sweep.work import Progress, Watch

group = typer.Typer(
    help="Searches over settings of recipes and profiles.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(group, name="sweep")

SweepArgument = Annotated[str, common.argument("NAME", "A sweep; `harness sweep list` names them.")]
TrialsOption = Annotated[
    int | None, common.option("--trials", "N", "Trials of the whole study.", default="as declared")
]
ProcessesOption = Annotated[
    int, common.option("--jobs", "N", "Processes, each with one trial at a time.")
]
StorageOption = Annotated[
    str | None,
    common.option(
        "--storage", "URL", "Where Optuna keeps the trials.", default="a file in the work folder"
    ),
]

NoFinalOption = Annotated[
    bool, common.option("--no-final", None, "Do not run the winner on the benchmarks.")
]

SHOWN_TRIALS = 10
"""Trials that are printed; the JSON has all."""

MOST_TRIALS = 100_000
"""Most trials of a study; more is a slip of the finger."""


@group.command("list", epilog="Example: harness sweep list")
def list_sweeps(as_json: common.JsonOption = False) -> None:
    """List the declared sweeps."""
    from harness.sweep.declaration import listed, load_sweeps

    sweeps = load_sweeps().values()
    if as_json:
        print_json([listed(sweep) for sweep in sweeps])
        return
    lines = [
        (
            sweep.name,
            ", ".join(path.rpartition(".")[2] for path in sweep.space),
            ", ".join(f"{o.direction} {o.name}" for o in sweep.objectives),
            sweep.sampler.kind,
            str(sweep.trials),
            " ".join(sweep.question.split()),
        )
        for sweep in sweeps
    ]
    headings = ("sweep", "settings", "objectives", "sampler", "trials", "question")
    console().print(Grid(headings, lines, right="4"))


@group.command("run", epilog="Example: harness sweep run offline-evolve --jobs 2")
@common.takes(common.EngineChoice)
def run(
    engine: common.EngineChoice,
    name: SweepArgument,
    trials: TrialsOption = None,
    jobs: ProcessesOption = 1,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    storage: StorageOption = None,
    no_final: NoFinalOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Run the trials that a sweep lacks, then its winner on the benchmarks.

    What is done is kept: after Ctrl-C, a kill or with more trials, the same command goes on.
    """
    from harness.sweep.conduct import order_of, run_sweep, shared_stages

    where = engine.options
    sweep, scale = _found(name, profile)
    _check_numbers(trials, jobs)
    shared = shared_stages(sweep, scale)
    order = order_of(sweep, scale, trials, storage, where)
    out = console(stderr=as_json)

    def say(line: str) -> None:
        out.print(line, soft_wrap=True)
        # A pipe is read while the sweep goes on.
        out.file.flush()

    with _watching(out) as watch:
        report = run_sweep(order, shared, jobs, say, warn, final=not no_final, watch=watch)
    if as_json:
        print_json(report)
    else:
        _print(report)
        out.print(f"\nMore: harness sweep show {name} --publish (plots), harness ui (trials)")
    if report.failed:
        raise typer.Exit(1)


@group.command("show", epilog="Example: harness sweep show online-evolve")
@common.takes(common.Publish)
def show(
    publish: common.Publish,
    name: SweepArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    storage: StorageOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show what a sweep has found: best trials, importances, Pareto front, and the winner."""
    from harness.report.sweep import publish_sweep
    from harness.runtime import Store
    from harness.sweep.conduct import order_of, stored_report
    from harness.tracking.published import published_sweep

    sweep, scale = _found(name, profile)
    to = publish.to([name])
    order = order_of(sweep, scale, storage=storage)
    report, others = stored_report(sweep, scale, order.study, order.storage, Store(store_dir()))
    if not report.trials and storage is None and to is None:
        published = published_sweep(results_dir(), scale.name, name)
        if published is not None:
            note(f"`{name}` was not run here; this is what is published of it")
            report = published
    if others:
        note(f"{counted(others, 'study')} of `{name}` under other settings is left out")
    if to is not None:
        folder = publish_sweep(report, to.results_dir, allow_fewer=bool(to.fewer))
        note(f"published in {folder}")
    if as_json:
        print_json(report)
    else:
        _print(report)


@group.command("ui", epilog="Example: harness sweep ui online-evolve --port 8081")
def ui(name: SweepArgument, port: common.PortOption = 8080, storage: StorageOption = None) -> None:
    """Serve optuna-dashboard's pages of a sweep on this machine, until Ctrl-C."""
    import os

    from harness.project import work_dir
    from harness.sweep.conduct import dashboard_command
    from harness.sweep.declaration import find_sweep, load_sweeps
    from harness.sweep.study import default_storage

    sweep = find_sweep(load_sweeps(), name)
    command = dashboard_command(
        sweep.name, storage or default_storage(work_dir(), sweep.name), port
    )
    common.check_port(port)
    out = console()
    out.print(f"optuna-dashboard is at http://127.0.0.1:{port}/ (Ctrl-C stops it).", soft_wrap=True)
    out.file.flush()
    os.execv(command[0], command)


@contextmanager
def _watching(out: Console) -> Iterator[Watch]:
    """Show where the sweep stands while it runs: redrawn on a terminal, nothing elsewhere."""
    if not out.is_terminal:
        yield lambda progress: None
        return
    from rich.text import Text

    with out.status("starting") as status:

        def show(progress: Progress) -> None:
            lines = [Text(line) for line in f"{progress.here}\n{progress.sweep}".splitlines()]
            for line in lines:
                line.truncate(out.width - 2, overflow="ellipsis")  # the first is beside a spinner
            status.update(Text("\n").join(lines))

        yield show


def _found(name: str, profile: str) -> tuple[Sweep, Profile]:
    """Return a sweep and a profile by their names."""
    from harness.registry.declared import named_profile
    from harness.sweep.declaration import find_sweep, load_sweeps

    return find_sweep(load_sweeps(), name), named_profile(profile)


def _check_numbers(trials: int | None, jobs: int) -> None:
    workers_of(jobs)
    if trials is not None and not 1 <= trials <= MOST_TRIALS:
        shown = trials if abs(trials) < 10**20 else "too large"
        raise UserError(f"--trials is {shown}: give the number of trials, from 1 to {MOST_TRIALS}")


def _print(report: SweepReport) -> None:
    from harness.report.sweep import facts, importance_block, trial_block, winner_block

    out = console()
    for name, text in facts(report):
        out.print(f"{name}: {text}", soft_wrap=True)
    title = "Best trials (validation prompts; no result)"
    _print_block(trial_block(report, report.best()[:SHOWN_TRIALS], title))
    _print_block(importance_block(report))
    if report.pareto is not None:
        _print_block(trial_block(report, report.front, "Pareto front"))
    _print_block(winner_block(report))
    for trial in report.failed:
        out.print(f"failed: trial {trial.number}: {trial.failure}", soft_wrap=True)


def _print_block(block: Block) -> None:

    out = console()
    out.print(f"\n{block.title}", style="bold")
    for text in block.notes:
        out.print(text, soft_wrap=True)
    if block.rows:
        right = "".join(str(i) for i in range(1, min(len(block.head), 10)))
        out.print(Grid(block.head, block.rows, right=right))
