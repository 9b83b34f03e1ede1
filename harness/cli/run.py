"""`plan` and `run`: what a run would compute and cost, and computing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import (
    BudgetOption,
    JobsOption,
    JsonOption,
    MaxGpuHoursOption,
    ProfileOption,
    RowsOption,
    SeedsOption,
    SkipUnsupportedOption,
    TablesArgument,
)
from harness.cli.output import console, grid, note, print_json, warn
from harness.project import work_dir
from harness.selection.names import DEFAULT_PROFILE, DEFAULT_SEEDS, Format, again
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.runtime import Event
    from harness.selection.planning import RunPlan
    from harness.selection.reporting import Report

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
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan, compute nothing.")]

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

    chosen = select(table, profile, rows, seeds, skip_unsupported=skip_unsupported)
    limits = PriceOptions(max_gpu_hours=max_gpu_hours, budget_usd=budget_usd)
    planned = chosen.plan(jobs=jobs, price=limits)
    if limits != PriceOptions():
        planned.refuse_over_limits()
    if dry_run:
        _show(planned, as_json)
        return
    out = console(stderr=as_json)
    out.print(planned.headline, soft_wrap=True)
    if chosen.is_group:
        _print_left_out(out, planned.summary)
    report = planned.run(
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


@contextmanager
def _progress(planned: RunPlan, *, stderr: bool) -> Iterator[Callable[[Event], None]]:
    """Show how a run goes; yield what takes its events."""
    from harness.cli.live import progress
    from harness.runtime import Tally
    from harness.trainer.execution import EXPECTED_S

    tally = Tally(planned.stages, planned.store, planned.jobs, EXPECTED_S)
    with progress(console(stderr=stderr), tally) as shown:
        yield shown.observe


def _print_report(report: Report, out: Console, planned: RunPlan, as_json: bool) -> None:
    """Print what was computed: a report, or of several tables a line for each."""
    from harness.selection.reporting import GroupReport

    if as_json:
        sys.stdout.write(report.text(Format.json))
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
    summary = planned.summary
    if as_json:
        print_json(summary)
        return
    out = console()
    out.print(planned.headline, soft_wrap=True)
    if "group" in summary:
        _print_tables(out, summary)
    _print_stages(out, summary)
    if planned.price is not None:
        from harness.cli.price import print_price

        print_price(out, planned.price)
    if summary["stages"]["done"] < summary["stages"]["total"]:
        out.print(f"\nCompute it: harness run {planned.again}", soft_wrap=True)


def _print_stages(out: Console, summary: dict[str, Any]) -> None:
    """Print how many stages of each kind are in each state, and which failed."""
    out.print()
    lines = [*summary["kinds"], {"kind": "all"} | summary["stages"]]
    columns = ("kind", "total", "done", "missing", "failed")
    cells = [tuple(str(line[column]) for column in columns) for line in lines]
    out.print(grid(("stages", *columns[1:]), cells, right="1234"))
    for failure in summary["failures"]:
        where = f"{failure['stage']} ({failure['fingerprint'][:12]})"
        out.print(f"failed: {where}: {failure['reason']}", soft_wrap=True)


def _print_tables(out: Console, summary: dict[str, Any]) -> None:
    """Print a line for each table of a group, the figures with them, and what is left out."""
    lines = [
        (
            line["table"],
            *(str(line[name]) for name in ("rows", "runs")),
            str(line["stages"]["total"]),
            str(line["own"]),
            str(line["stages"]["done"]),
            str(line["training_stages"]["total"]),
        )
        for line in summary["tables"]
    ]
    headings = ("table", "rows", "runs", "stages by itself", "its own", "done", "trainings")
    out.print()
    out.print(grid(headings, lines, right="123456"))
    if summary.get("figures"):
        out.print(f"\nwith the figures: {', '.join(summary['figures'])}", soft_wrap=True)
    _print_left_out(out, summary)


def _print_left_out(out: Console, summary: dict[str, Any]) -> None:
    """Print why tables, and rows of figures, are left out."""
    for item in summary["left_out"]:
        name = item.get("table") or item["figure"]
        out.print(f"left out: {name}: {'; '.join(item['reasons'])}", soft_wrap=True)
