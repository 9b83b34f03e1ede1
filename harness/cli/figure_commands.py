"""Figures in the verbs `show`, `plan`, `run` and `report`, which take their names as tables'."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.cli.options import DEFAULT_SEEDS, parse_seeds

if TYPE_CHECKING:
    from harness.cli.publishing import Publishing
    from harness.cli.report_writing import Format
    from harness.report.figures.report import FigureReport
    from harness.trainer.figure_runs import FigureRuns


def is_figure(name: str) -> bool:
    """Return whether a name is a figure's, or is meant to be one's."""
    from harness.cli.asking import all_figures, all_tables

    # A table's name needs no look at the figures.
    return name not in all_tables() and (name.startswith("fig") or name in all_figures())


def planned_figure(
    name: str, profile: str, seeds: Sequence[int], rows: str | None = None
) -> FigureRuns:
    """Return the runs behind a figure.

    Raises:
        UserError: There is no such figure or profile, or rows are asked for.
    """
    from harness.catalogue.figures import find_figure
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_figures, all_profiles, all_tables
    from harness.errors import UserError
    from harness.trainer.figure_runs import plan_figure

    figure = find_figure(all_figures(), name)
    if rows is not None:
        raise UserError(f"`{name}` names its own rows; leave out `--rows`")
    return plan_figure(figure, all_tables(), find_profile(all_profiles(), profile), seeds)


def runnable_figure(
    name: str, profile: str, seeds: Sequence[int], rows: str | None = None
) -> FigureRuns:
    """Return the runs behind a figure of which some can run.

    Raises:
        UserError: As `planned_figure`, or the profile can run none of its rows.
    """
    from harness.errors import UserError

    runs = planned_figure(name, profile, seeds, rows)
    if not runs.runs:
        reasons = "; ".join(dict.fromkeys(runs.lacking.values()))
        raise UserError(f"`{name}` cannot run on the profile `{profile}`: {reasons}")
    return runs


def show_figure(name: str, as_json: bool) -> None:
    """Show what a figure asks, and the rows it is drawn from."""
    from harness.catalogue.figures import find_figure
    from harness.cli.asking import all_figures
    from harness.cli.output import console, grid, print_json

    figure = find_figure(all_figures(), name)
    if as_json:
        print_json(figure.model_dump(mode="json"))
        return
    out, source = console(), figure.source
    out.print(f"{figure.id} · {figure.title}", style="bold")
    out.print(figure.question)
    out.print(f"Source: {source.paper}, section {source.section}, figure {source.figure}.\n")
    out.print(grid(("drawn from",), [(ref,) for ref in figure.rows]))
    for note in figure.notes:
        out.print(f"Note: {note}")


def run_figure(
    name: str,
    profile: str,
    rows: str | None,
    seeds: str,
    jobs: int | None,
    fail_fast: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compute what is missing of the runs behind a figure, and report it.

    Raises:
        Exit: A stage failed.
    """
    import typer

    from harness.cli.output import console
    from harness.cli.plan_command import headline, show_plan, summarise
    from harness.cli.pricing import PriceAsked
    from harness.cli.report_writing import Format
    from harness.cli.run_command import execute, print_failures
    from harness.cli.tracking_commands import tracker_of
    from harness.engine import Plan
    from harness.project import store_dir, work_dir
    from harness.report.asked import remember
    from harness.report.figures.report import assemble_figure
    from harness.store import Store
    from harness.tracking import TableState

    runs = runnable_figure(name, profile, parse_seeds(seeds), rows)
    if dry_run:
        show_plan(runs, jobs, as_json, PriceAsked())
        return
    plan, store = Plan(runs.targets), Store(store_dir())
    summary = summarise(runs, plan, store, jobs)
    console(stderr=as_json).print(headline(summary), soft_wrap=True)
    remember(work_dir(), name, runs.profile.name, runs.seeds)
    tracker, outcome, parts = tracker_of(store), None, list(runs.parts.values())
    if plan.pending(store):
        outcome = execute(parts, plan, store, tracker, summary["jobs"], fail_fast, stderr=as_json)
    form = Format.json if as_json else Format.terminal
    _write(assemble_figure(runs, store), form)
    # A figure has no rows of its own to track, only the runs of its tables' rows.
    tracker.finish(lambda: [TableState(part, ()) for part in parts])
    if outcome is not None and not outcome.ok:
        print_failures(outcome, store.root, work_dir() / "logs")
        raise typer.Exit(1)


def report_figure(
    name: str,
    profile: str,
    rows: str | None,
    seeds: str | None,
    form: Format,
    to: Publishing | None,
) -> None:
    """Report what has been computed of a figure, without computing anything."""
    from harness.cli.output import note
    from harness.project import store_dir
    from harness.report.figures.publish import publish_figure
    from harness.report.figures.report import assemble_figure
    from harness.store import Store

    asked = parse_seeds(seeds) if seeds is not None else _shown(name, profile)
    report = assemble_figure(planned_figure(name, profile, asked, rows), Store(store_dir()))
    if to is not None:
        folder = publish_figure(report, to.results_dir, allow_fewer=name in to.fewer)
        note(f"published in {folder}")
    _write(report, form)


def _shown(name: str, profile: str) -> tuple[int, ...]:
    """Return the most complete seeds ever asked for of a figure or of a table it is drawn from.

    Raises:
        UserError: There is no such figure or profile.
        HarnessError: A record of seeds asked for is broken.
    """
    from harness.project import store_dir, work_dir
    from harness.report.asked import ever_asked, most_complete, recall
    from harness.store import Store

    default = parse_seeds(DEFAULT_SEEDS)
    figure = planned_figure(name, profile, default).figure  # an unknown name is no path to look at
    tables = dict.fromkeys(ref.partition("/")[0] for ref in figure.rows)
    known = {seed for asked in (name, *tables) for seed in ever_asked(work_dir(), asked, profile)}
    if not known:
        return default
    of_tables = {recall(work_dir(), table, profile) for table in tables} - {None}
    (agreed,) = of_tables if len(of_tables) == 1 else (None,)
    last = recall(work_dir(), name, profile) or agreed or default
    runs = planned_figure(name, profile, sorted(known))
    return most_complete(runs, Store(store_dir()), last).seeds


def _write(report: FigureReport, form: Format) -> None:
    """Write a figure's report to stdout."""
    from harness.cli.output import console
    from harness.cli.report_writing import Format
    from harness.report.figures.page import as_markdown, print_figure

    if form is Format.json:
        sys.stdout.write(report.json_text())
    elif form is Format.markdown:
        sys.stdout.write(as_markdown(report))
    else:
        print_figure(report, console())


def listed_figures() -> list[dict[str, Any]]:
    """Return what `harness list` says of each figure, as JSON data."""
    from harness.catalogue.figure_rows import figure_unsupported
    from harness.cli.asking import all_figures, all_profiles, all_tables

    tables, profiles = all_tables(), all_profiles()
    found = []
    for figure in all_figures().values():
        can = {
            name: len(figure.rows) - len(figure_unsupported(figure, tables, profile))
            for name, profile in profiles.items()
        }
        found.append(
            {
                "id": figure.id,
                "kind": "figure",
                "drawn": figure.kind,
                "rows": len(figure.rows),
                "rows_runnable": can,
                "runnable": [name for name, rows in can.items() if rows == len(figure.rows)],
            }
        )
    return found
