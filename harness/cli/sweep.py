"""`sweep`: search over settings with Optuna, and show the results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from harness import project
from harness.cli import common
from harness.cli.common import bold, console, emit, note, text_table, unbroken
from harness.registry.declared import named_profile
from harness.report.sweep import (
    SweepReport,
    publish_sweep,
    published_sweep,
    setting,
    sweep_blocks,
    sweep_facts,
)
from harness.selection.names import DEFAULT_PROFILE, check_jobs
from harness.sweep.declaration import Sweep, load_sweeps, named_sweep

group = typer.Typer(
    cls=common.Verbs,
    help="Searches over settings of recipes and profiles.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(group, name="sweep")

SweepArgument = Annotated[
    str, common.argument("NAME", "A sweep (`harness sweep list` names them), or a YAML file.")
]
TrialsOption = Annotated[
    int | None,
    common.option(
        "--trials", "N", "Trials in all, with those finished.", default="as declared", min=1
    ),
]
NoFinalOption = Annotated[
    bool, common.option("--no-final", None, "Do not run the winner on the benchmarks.")
]

SHOWN_TRIALS = 10
"""Number of trials printed; the JSON has all."""


@group.command("list", epilog="Example: harness sweep list")
def list_sweeps(as_json: common.JsonOption = False) -> None:
    """List the declared sweeps."""
    emit(list(load_sweeps().values()), as_json, _list)


def _list(sweeps: list[Sweep]) -> Iterator[Any]:
    rows = [
        (
            sweep.name,
            ", ".join(map(setting, sweep.space)),
            ", ".join(f"{o.direction} {o.name}" for o in sweep.objectives),
            str(sweep.trials),
        )
        for sweep in sweeps
    ]
    yield text_table(("sweep", "settings", "objectives", "trials"), rows, right={3})
    yield unbroken(f"\nTheir trials: optuna-dashboard {project.sweeps_dir() / 'NAME.log'}")


@group.command("run", epilog="Example: harness sweep run offline-evolve --jobs 2")
def run(
    name: SweepArgument,
    trials: TrialsOption = None,
    jobs: common.JobsOption = None,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    no_final: NoFinalOption = False,
    engine: common.EngineOption = "local",
    ray_address: common.RayAddressOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Run the missing trials of a sweep, then its winner on the benchmarks.

    Finished trials are kept: after Ctrl-C, a kill or a failure, or with more trials, the same
    command continues.
    """
    from harness.runtime import EngineOptions
    from harness.sweep.conduct import Order, run_sweep, shared_stages

    sweep, scale = named_sweep(name), named_profile(profile)
    check_jobs(jobs)
    shared = shared_stages(sweep, scale)
    where = EngineOptions(engine=engine, ray_address=ray_address)
    order = Order(sweep, scale, trials, jobs, final=not no_final, where=where)
    out = console(stderr=as_json)
    with common.watching(out) as watch:
        report = run_sweep(order, shared, partial(out.print, soft_wrap=True), note, watch)
    emit(report, as_json, _text)
    if not as_json:
        common.print_all([unbroken(f"\nMore: harness ui, or optuna-dashboard {order.file}")], out)
    if report.failed:
        raise typer.Exit(1)


@group.command("show", epilog="Example: harness sweep show online-evolve")
def show(
    name: SweepArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    publish: common.PublishOption = False,
    allow_fewer: common.AllowFewerOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Show what a sweep has found: best trials, Pareto front, and the winner."""
    from harness.sweep.conduct import Order, stored_report

    sweep, scale = named_sweep(name), named_profile(profile)
    folder = common.publishing_folder(publish=publish, allow_fewer=allow_fewer)
    order = Order(sweep, scale)
    report = stored_report(order)
    if not report.trials and folder is None:
        published = published_sweep(project.results_dir(), scale.name, sweep.name)
        if published is not None:
            note(f"`{sweep.name}` was not run here; these are its published results")
            report = published
    if folder is not None:
        place = publish_sweep(report, folder, allow_fewer=allow_fewer)
        note(f"published in {place}")
    emit(report, as_json, _text)


def _text(report: SweepReport) -> Iterator[Any]:
    yield from (f"{name}: {text}" for name, text in sweep_facts(report))
    for block in sweep_blocks(report, SHOWN_TRIALS):
        yield bold(f"\n{block.title}")
        yield from (*block.notes, *block.items)
        if block.rows:
            yield text_table(block.head, block.rows, right=range(1, len(block.head)))
