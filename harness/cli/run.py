"""`plan`, `run` and `why`: what a run would compute, computing it, and what makes a stage new."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import (
    BudgetOption,
    EngineName,
    EngineOption,
    JobsOption,
    JsonOption,
    MaxGpuHoursOption,
    ProfileOption,
    RayAddressOption,
    RowsOption,
    SbatchOption,
    SeedOption,
    SeedsOption,
    SkipUnsupportedOption,
    TablesArgument,
    engine_options,
)
from harness.cli.output import console, grid, json_text, note, print_json, warn
from harness.errors import UserError
from harness.project import work_dir
from harness.selection.names import DEFAULT_PROFILE, DEFAULT_SEEDS, Format, again
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cli.live import Observe
    from harness.selection.planning import GroupSummary, RunPlan, Summary
    from harness.selection.reporting import Report
    from harness.selection.why import Cause, ExplainedStage, Explanation

GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="Price for this GPU.", show_default="the profile's"),
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", metavar="N", help="... and so many.", show_default="the profile's"),
]
FailFastOption = Annotated[
    bool,
    typer.Option(
        "--fail-fast/--keep-going", help="Stop at the first failure, or go on with what can."
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the plan, and with `--engine slurm` the batch scripts; compute nothing.",
    ),
]

RowArgument = Annotated[
    str, typer.Argument(metavar="ROW", help="A row, as `table4/eva-a_min`, or with --table.")
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="The table the row is in.")
]

app = typer.Typer(rich_markup_mode=None)


@app.command("plan", epilog="Example: harness plan table4 --seeds 0-4")
def plan(
    table: TablesArgument,
    profile: ProfileOption = DEFAULT_PROFILE,
    rows: RowsOption = None,
    seeds: SeedsOption = DEFAULT_SEEDS,
    jobs: JobsOption = None,
    skip_unsupported: SkipUnsupportedOption = False,
    gpu: GpuOption = None,
    gpus: GpusOption = None,
    max_gpu_hours: MaxGpuHoursOption = None,
    budget_usd: BudgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would compute: stages done, missing, failed, and the time left.

    For a profile with models from outside the embedded world it shows the price instead of the
    time: GPU hours, dollars and disk, and what they assume. `all` then takes in the figures, and
    leaves out what the profile cannot run. The exit code is 1 if a limit is passed.
    """
    from harness.selection.planning import PriceOptions
    from harness.selection.selection import select

    chosen = select(table, profile, rows, seeds, skip_unsupported=skip_unsupported)
    asked = PriceOptions(gpu, gpus, max_gpu_hours, budget_usd)
    planned = chosen.priced(jobs=jobs, price=asked)
    _show(planned, as_json)
    planned.refuse_over_limits()


@app.command("run", epilog="Example: harness run table4 --seeds 0-4")
def run(
    table: TablesArgument,
    profile: ProfileOption = DEFAULT_PROFILE,
    rows: RowsOption = None,
    seeds: SeedsOption = DEFAULT_SEEDS,
    jobs: JobsOption = None,
    engine: EngineOption = EngineName.local,
    ray_address: RayAddressOption = None,
    sbatch: SbatchOption = None,
    fail_fast: FailFastOption = False,
    dry_run: DryRunOption = False,
    skip_unsupported: SkipUnsupportedOption = False,
    max_gpu_hours: MaxGpuHoursOption = None,
    budget_usd: BudgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute what is missing of a table, track it in MLflow, and report it.

    What is done is kept: after Ctrl-C, a failure or with more seeds, the same command goes on.
    Several tables (`all-offline`, `all`) are planned together, so that what they share is computed
    once; at the end stands a line for each table instead of its report. If the estimate of what is
    left (`harness plan`) passes a limit, nothing is started.
    """
    from harness.selection.planning import PriceOptions
    from harness.selection.selection import select

    where = engine_options(engine, ray_address, sbatch)
    chosen = select(table, profile, rows, seeds, skip_unsupported=skip_unsupported)
    limits = PriceOptions(max_gpu_hours=max_gpu_hours, budget_usd=budget_usd)
    planned = chosen.plan(jobs=jobs, price=limits)
    if limits != PriceOptions():
        planned.refuse_over_limits()
    if dry_run:
        _show(planned, as_json)
        for script in planned.batch_scripts(where) if not as_json else ():
            console().print(f"\n{script}", soft_wrap=True, markup=False, highlight=False)
        return
    out = console(stderr=as_json)
    out.print(planned.headline, soft_wrap=True)
    _print_left_out(out, planned.summary)
    report = planned.run(
        engine=where,
        fail_fast=fail_fast,
        watch=_progress(planned, stderr=as_json),
        on_warning=warn,
        on_note=note,
        on_report=lambda report: _print_report(report, out, planned, as_json),
    )
    if chosen.tables and not chosen.is_group and not as_json:
        out.print(
            f"\nMore: harness report {chosen.again} (distances, assumptions), "
            "harness ui (curves and rows side by side)"
        )
    if report.failed:
        _print_failures(report, planned)
        raise typer.Exit(1)


def _progress(planned: RunPlan, *, stderr: bool) -> AbstractContextManager[Observe]:
    """Show how a run goes; yield what takes its events."""
    from harness.cli.live import progress
    from harness.runtime import Tally
    from harness.trainer.factory import EXPECTED_S

    tally = Tally(planned.stages, planned.store, planned.jobs, EXPECTED_S)
    return progress(console(stderr=stderr), tally)


def _print_report(report: Report, out: Console, planned: RunPlan, as_json: bool) -> None:
    """Print what was computed: a report, or of several tables a line for each."""
    from harness.selection.reporting import GroupReport

    if as_json:
        sys.stdout.write(json_text(report.text(Format.json)))
        return
    if not isinstance(report, GroupReport):
        report.show(out, details=False)
        return
    headings = ("table", "cells", "state", "gains the paper's way", "title")
    out.print()
    out.print(grid(headings, report.closing, right="13"))
    _print_left_out(out, planned.summary)
    of_table = again("TABLE", planned.work.profile.asked_as)
    out.print(f"\nMore: harness report {of_table}, harness claims {of_table}, harness ui")


def _print_failures(report: Report, planned: RunPlan) -> None:
    """Print what failed and why, and where more is written, on stderr."""
    for title, reason in report.failed.items():
        note(f"failed: {title}: {reason}")
    number = 0 if report.outcome is None else len(report.outcome.skipped)
    skipped = f", {number} skipped" if number else ""
    note(
        f"{counted(len(report.failed), 'stage')} failed{skipped}: tracebacks are in "
        f"{planned.store.root / 'failures'}, the workers' output in {work_dir() / 'logs'}; run the "
        "same command to try again"
    )


def _show(planned: RunPlan, as_json: bool) -> None:
    """Print a plan, with its price if it has one."""
    from harness.selection.planning import GroupSummary

    summary = planned.summary
    if as_json:
        print_json(summary)
        return
    out = console()
    out.print(planned.headline, soft_wrap=True)
    if isinstance(summary, GroupSummary):
        _print_tables(out, summary)
    _print_stages(out, summary)
    if planned.price is not None:
        from harness.cli.price import print_price

        print_price(out, planned.price)
    if summary.stages.done < summary.stages.total:
        out.print(f"\nCompute it: harness run {planned.again}", soft_wrap=True)


def _print_stages(out: Console, summary: Summary) -> None:
    """Print how many stages of each kind are in each state, and which failed."""
    out.print()
    counts = [*((kind.kind, kind) for kind in summary.kinds), ("all", summary.stages)]
    cells = [(name, str(c.total), str(c.done), str(c.missing), str(c.failed)) for name, c in counts]
    out.print(grid(("stages", "total", "done", "missing", "failed"), cells, right="1234"))
    for failure in summary.failures:
        where = f"{failure.stage} ({failure.fingerprint[:12]})"
        out.print(f"failed: {where}: {failure.reason}", soft_wrap=True)


def _print_tables(out: Console, summary: GroupSummary) -> None:
    """Print a line for each table of a group, the figures with them, and what is left out."""
    lines = []
    for line in summary.tables:
        stages, trainings = line.stages, line.training_stages
        numbers = (line.rows, line.runs, stages.total, line.own, stages.done, trainings.total)
        lines.append((line.table, *map(str, numbers)))
    headings = ("table", "rows", "runs", "stages by itself", "its own", "done", "trainings")
    out.print()
    out.print(grid(headings, lines, right="123456"))
    if summary.figures:
        out.print(f"\nwith the figures: {', '.join(summary.figures)}", soft_wrap=True)
    _print_left_out(out, summary)


def _print_left_out(out: Console, summary: Summary) -> None:
    """Print why tables, and rows of figures, are left out of a group."""
    from harness.selection.planning import GroupSummary, LeftOutTable

    for item in summary.left_out if isinstance(summary, GroupSummary) else ():
        name = item.table if isinstance(item, LeftOutTable) else item.figure
        out.print(f"left out: {name}: {'; '.join(item.reasons)}", soft_wrap=True)


@app.command("why", epilog="Example: harness why table4/eva-a_min")
def why(
    row: RowArgument,
    table: TableOption = None,
    profile: ProfileOption = DEFAULT_PROFILE,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Explain which stages of a row are shared, and which setting makes the others new.

    A stage is new where its own settings or those of a stage before it differ from every stage
    computed so far. The row is compared with the other rows of its table, and what is missing
    with what is in the store.
    """
    from harness.selection.selection import select

    named, name = _place(table, row)
    explanation = select(named, profile).why(name, seed)
    print_json(explanation) if as_json else _print_explanation(explanation)


def _place(table: str | None, row: str) -> tuple[str, str]:
    """Return table and row of `table/row`, or of a row and an option.

    Raises:
        UserError: No table is named, or two are.
    """
    named, slash, name = row.partition("/")
    if not slash:
        if table is None:
            raise UserError(f"`{row}` names no table; write `table4/{row}` or add `--table table4`")
        return table, row
    if table not in (None, named):
        raise UserError(f"`{row}` is not in `{table}`; leave out `--table`")
    return named, name


def _print_explanation(found: Explanation) -> None:
    out = console()
    out.print(f"{found.table}/{found.row} on {found.profile}, seed {found.seed}", style="bold")
    out.print(f"Recipe: {found.recipe}.", soft_wrap=True)
    if found.baseline is not None:
        out.print(f"Baseline {found.baseline.row}: {found.baseline.recipe}.", soft_wrap=True)
    if found.nearest is not None:
        causes = _because(found.nearest.causes)
        out.print(f"Nearest row {found.nearest.row}: here {causes}.", soft_wrap=True)
    for run in found.runs:
        out.print(f"\nrun {run.run}", style="bold")
        lines = [
            (
                stage.label.removeprefix(f"seed {found.seed} · "),
                stage.state,
                _shared(stage),
                _why_new(stage),
            )
            for stage in run.stages
        ]
        out.print(grid(("stage", "state", "shared with", "new because of"), lines))
        _print_missing(out, run.stages)


def _print_missing(out: Console, stages: Sequence[ExplainedStage]) -> None:
    """Print why stages are not in the store, each reason once, with the first stage it meets."""
    reasons: dict[str, tuple[str, list[str]]] = {}
    for stage in stages:
        near = stage.new_in_store
        if stage.failure is not None:
            same = text = f"it failed: {stage.failure}"
        elif stage.state == "done":
            continue
        elif near is None:
            same = text = "nothing of its kind is stored"
        else:
            # Stages after the first have the same cause, at more places.
            same = str([(c.key, c.here, c.there) for c in near.causes])
            text = f"nearest stored is '{near.label}', here {_because(near.causes)}"
        reasons.setdefault(same, (text, []))[1].append(stage.label)
    if not reasons:
        out.print("\nAll of its stages are in the store.")
    for text, labels in reasons.values():
        rest = f" and {counted(len(labels) - 1, 'more stage')}" if len(labels) > 1 else ""
        out.print(f"\nNot in the store: '{labels[0]}'{rest}: {text}.", soft_wrap=True)


def _shared(stage: ExplainedStage) -> str:
    rows = stage.shared_with
    if len(rows) <= 3:
        return ", ".join(rows) or "-"
    return f"{', '.join(rows[:2])} and {len(rows) - 2} more"


def _why_new(stage: ExplainedStage) -> str:
    if stage.shared_with:
        return ""
    if stage.new_among_rows is None:
        return f"no other row has a stage `{stage.kind}`"
    return _because(stage.new_among_rows.causes)


def _because(causes: Iterable[Cause]) -> str:
    """Return causes in words: `select: metric a_min instead of uniform`."""
    from harness.registry.recipe import as_text

    words = []
    for cause in causes:
        kinds = f"{', '.join(cause.kinds)}: " if cause.kinds else ""
        words.append(f"{kinds}{cause.key} {as_text(cause.here)} instead of {as_text(cause.there)}")
    return "; ".join(words) or "nothing differs"
