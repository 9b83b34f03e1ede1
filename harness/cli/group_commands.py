"""`plan`, `run` and `report` for several tables at once, as `all-offline`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.pricing import PriceAsked

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cli.publishing import Publishing
    from harness.cli.together import Together
    from harness.cost.pricing import Price
    from harness.report.cells import Cell
    from harness.store import Store
    from harness.trainer.table_runs import TableRuns


def show_group_plan(together: Together, jobs: int | None, as_json: bool, asked: PriceAsked) -> None:
    """Print the plan of several tables, with its price if it has one.

    Args:
        together: The tables.
        jobs: Number of workers; one per core where not given.
        as_json: Print JSON instead of tables.
        asked: What was asked about the price.

    Raises:
        UserError: `jobs` is less than 1, or an option of the price is wrong.
        HarnessError: The price passes a limit.
    """
    from harness.cli.output import print_json
    from harness.cli.pricing import end_if_over, figures_beside, price_of_plan, with_price
    from harness.cli.together import summarise
    from harness.engine import Plan
    from harness.project import store_dir
    from harness.store import Store

    seeds = together.tables[0].seeds
    figures, lacking = figures_beside(together.group, together.profile, seeds)
    targets = [stage for figure in figures for stage in figure.targets]
    plan, store = Plan([*together.targets, *targets]), Store(store_dir())
    price = price_of_plan(plan, together.profile, store, asked)
    summary = with_price(summarise(together, plan, store, jobs), price)
    if price is not None:
        summary["figures"] = [figure.id for figure in figures]
        summary["left_out"] += [{"figure": name, "reasons": [why]} for name, why in lacking.items()]
    if as_json:
        print_json(summary)
    else:
        _print_plan(together, summary, price, lacking)
    end_if_over(price, asked)


def _print_plan(
    together: Together, summary: dict[str, Any], price: Price | None, lacking: Mapping[str, str]
) -> None:
    """Print the plan of several tables; `lacking` says why rows of figures are left out."""
    from harness.cli.options import again
    from harness.cli.output import console
    from harness.cli.plan_command import print_progress

    out = console()
    out.print(headline(summary), soft_wrap=True)
    _print_tables(out, summary)
    if summary.get("figures"):
        out.print(f"\nwith the figures: {', '.join(summary['figures'])}", soft_wrap=True)
    _print_left_out(out, together)
    for name, reason in lacking.items():
        out.print(f"left out: {name}: {reason}", soft_wrap=True)
    skipping = " --skip-unsupported" if together.left_out else ""
    asked = again(together.group, together.profile.name, summary["seeds"])
    print_progress(out, summary, f"{asked}{skipping}", price)


def headline(summary: dict[str, Any]) -> str:
    """Return the plan of several tables in three sentences."""
    from harness.cli.output import counted
    from harness.cli.plan_command import what_is_left
    from harness.report.view import seeds_text

    stages, trainings = summary["stages"]["total"], summary["training_stages"]["total"]
    alone = summary["alone"]
    return (
        f"{summary['group']} on {summary['profile']} ({summary['scale']} scale), "
        f"{counted(len(summary['tables']), 'table')}, seeds {seeds_text(summary['seeds'])}: "
        f"{counted(summary['runs'], 'distinct run')}. Each table by itself would take "
        f"{counted(alone['stages'], 'stage')} ({counted(alone['training_stages'], 'training')}) "
        f"in all; together they take {counted(stages, 'distinct stage')} "
        f"({counted(trainings, 'training')}). {what_is_left(summary)}"
    )


def _print_tables(out: Console, summary: dict[str, Any]) -> None:
    from harness.cli.output import grid

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


def _print_left_out(out: Console, together: Together) -> None:
    for name, reasons in together.left_out.items():
        out.print(f"left out: {name}: {'; '.join(reasons)}", soft_wrap=True)


def run_group(
    together: Together, jobs: int | None, *, fail_fast: bool, dry_run: bool, as_json: bool
) -> None:
    """Compute what is missing of several tables, track it, and close with a line for each.

    Args:
        together: The tables.
        jobs: Number of workers; one per core where not given.
        fail_fast: Stop at the first failure.
        dry_run: Show the plan and compute nothing.
        as_json: Print the cells of all tables as JSON, and all else on stderr.

    Raises:
        UserError: `jobs` is less than 1.
        Interrupted: Ctrl-C.
        Exit: A stage failed.
    """
    from harness.cli.output import console
    from harness.cli.run_command import execute, print_failures
    from harness.cli.together import summarise
    from harness.cli.tracking_commands import states_of, tracker_of
    from harness.engine import Plan
    from harness.project import store_dir, work_dir
    from harness.report.asked import remember
    from harness.report.cells import build_cells
    from harness.store import Store

    if dry_run:
        show_group_plan(together, jobs, as_json, PriceAsked())
        return
    out = console(stderr=as_json)
    plan, store = Plan(together.targets), Store(store_dir())
    summary = summarise(together, plan, store, jobs)
    out.print(headline(summary), soft_wrap=True)
    _print_left_out(out, together)
    for runs in together.tables:
        remember(work_dir(), runs.table.id, runs.profile.name, runs.seeds)
    tracker, outcome = tracker_of(store), None
    if plan.pending(store):
        workers = summary["jobs"]
        outcome = execute(together.tables, plan, store, tracker, workers, fail_fast, stderr=as_json)
    cells = [build_cells(runs, store) for runs in together.tables]
    if as_json:
        _write_cells(cells)
    else:
        _print_closing(out, together, cells)
    tables = zip(together.tables, cells, strict=True)
    tracker.finish(lambda: [s for runs, own in tables for s in states_of(runs, own, store)])
    if outcome is not None and not outcome.ok:
        print_failures(outcome, store.root, work_dir() / "logs")
        raise typer.Exit(1)


def _write_cells(cells: Sequence[Sequence[Cell]]) -> None:
    from harness.report.json import as_json

    sys.stdout.write(as_json([cell for own in cells for cell in own]))


def _print_closing(out: Console, together: Together, cells: Sequence[Sequence[Cell]]) -> None:
    """Print a line for each table: how much of it has numbers, and how its gains point."""
    from harness.cli.options import again
    from harness.cli.output import grid

    lines = [
        (runs.table.id, *closing(own), runs.table.title)
        for runs, own in zip(together.tables, cells, strict=True)
    ]
    headings = ("table", "cells", "state", "gains the paper's way", "title")
    out.print()
    out.print(grid(headings, lines, right="13"))
    _print_left_out(out, together)
    of_table = again("TABLE", together.profile.name)
    out.print(f"\nMore: harness report {of_table}, harness claims {of_table}, harness ui")


def closing(cells: Sequence[Cell]) -> tuple[str, str, str]:
    """Return how many of a table's cells have numbers, its state, and how its gains point.

    Gains are counted over the whole columns, as in the table's report; `-` where there are none
    to compare.
    """
    from harness.report.cells import STATES
    from harness.report.summary import compared_signs

    states = [cell.state for cell in cells]
    whole = states.count("ok")
    others = [
        f"{states.count(state)} {state.replace('_', ' ')}"
        for state in STATES
        if state != "ok" and state in states
    ]
    compared = [summary for summary in compared_signs(cells) if summary.signs]
    agree = sum(summary.signs_agree or 0 for summary in compared)
    signs = sum(summary.signs or 0 for summary in compared)
    return (
        f"{whole} of {len(states)}",
        ", ".join(others) or "done",
        f"{agree} of {signs}" if signs else "-",
    )


def publish_group(group: str, profile: str, seeds: Sequence[int] | None, to: Publishing) -> None:
    """Publish those tables of a group that were run; the refused ones do not stop the others.

    Args:
        group: Name of the group.
        profile: Name of the profile.
        seeds: Root seeds; the most complete ones of each table where not given.
        to: Where to publish, and which of them may have less than they should.

    Raises:
        UserError: There is no such profile, or it can run none of the tables.
        HarnessError: Some of them were refused.
    """
    from harness.cli.output import note, warn
    from harness.cli.report_command import shown
    from harness.cli.together import sorted_out
    from harness.errors import HarnessError
    from harness.project import store_dir
    from harness.report.cells import build_cells
    from harness.report.publication import Refused
    from harness.store import Store
    from harness.trainer.table_runs import plan_table

    scale, tables, left_out = sorted_out(group, profile)
    store, refused = Store(store_dir()), []
    for table in tables:
        runs = plan_table(table, scale, shown(table.id, profile) if seeds is None else seeds)
        try:
            _publish(runs, build_cells(runs, store), store, to)
        except Refused as error:
            refused.append(table.id)
            warn(str(error))
    for name, reasons in left_out.items():
        note(f"left out: {name}: {'; '.join(reasons)}")
    if refused:
        raise HarnessError(f"not published: {', '.join(refused)}; the warnings above say why")


def _publish(runs: TableRuns, cells: Sequence[Cell], store: Store, to: Publishing) -> None:
    """Publish a table that was run; rows of other tables do not make it one."""
    from harness.cli.output import note
    from harness.project import work_dir
    from harness.report.asked import recall
    from harness.report.publish import publish

    never = recall(work_dir(), runs.table.id, runs.profile.name) is None
    if never or {cell.state for cell in cells} <= {"not_run", "not_available"}:
        note(f"{runs.table.id} was not run, and is not published")
        return
    fewer = runs.table.id in to.fewer
    note(f"published in {publish(runs, cells, store, to.results_dir, allow_fewer=fewer)}")
