"""What MLflow is to hold: the state of tables after a run, and of all that was ever run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from harness.project import results_dir, work_dir
from harness.registry.declared import all_figures, all_tables
from harness.registry.profile import lacking_rows, supported_rows
from harness.report.asked import (
    ever_asked,
    most_complete,
    recall,
    shown_seeds,
    with_own_files,
)
from harness.report.cells import build_cells
from harness.report.model import Cell
from harness.runtime import Store
from harness.selection.reporting import FigureReport, Report
from harness.tracking import Details, TableState, Tracker
from harness.trainer.runs import (
    TableRuns,
    Work,
    cells_served,
    parts_of,
    plan_figure,
    plan_table,
)


def tracker_of(store: Store, warn: Callable[[str], None]) -> Tracker:
    """Return the tracker of a store; `warn` takes the sentence that MLflow cannot be had."""
    return Tracker(work_dir(), store, cells_served(all_tables()), warn=warn)


def states_after(work: Work, report: Report) -> list[TableState]:
    """Return what tracking shows of some work after a run of it.

    Raises:
        HarnessError: The record of the seeds asked for is broken, or the store cannot be read.
    """
    if isinstance(report, FigureReport):
        # A figure has no rows of its own to track, only the runs of its tables' rows.
        return [TableState(part, ()) for part in parts_of(work)]
    return [
        state
        for table in report.tables
        for state in states_of(table.runs, table.cells, table.store)
    ]


def states_of(runs: TableRuns, cells: Sequence[Cell], store: Store) -> list[TableState]:
    """Return what tracking shows of a table after a command has computed some of its runs.

    Of runs there are those of the command. Rows are those of the whole table with the seeds that a
    report shows, whichever rows and seeds the command named, so that writing after a run and
    writing from the store are the same.

    Raises:
        HarnessError: The record of the seeds asked for is broken, or the store cannot be read.
    """
    rows = supported_rows(runs.table, runs.profile)
    shown = shown_seeds(work_dir(), store, runs.table, runs.profile, rows)
    seeds = runs.seeds if shown is None else shown.seeds
    if (rows, seeds) == (runs.row_ids, runs.seeds):
        return [TableState(runs, cells, _details(runs, cells, store))]
    whole = plan_table(runs.table, runs.profile, seeds, rows)
    return [TableState(runs, ()), _whole_state(whole, store)]


def asked_states(store: Store) -> list[TableState]:
    """Return the state of every table that was run, at every profile.

    Of runs there are those of all seeds ever asked for, of rows those with the seeds that a report
    shows. Of a figure that was run there are the runs behind it, by table and without cells.

    Raises:
        HarnessError: A record of the seeds asked for is broken, or the store cannot be read.
    """
    states = []
    profiles, tables = with_own_files(work_dir())
    for profile in profiles.values():
        for table in tables.values():
            asked = ever_asked(work_dir(), table.id, profile.name)
            rows = supported_rows(table, profile) if asked else []
            if not rows:
                continue
            runs = plan_table(table, profile, asked, rows)
            last = recall(work_dir(), table.id, profile.name) or asked
            shown = most_complete(runs, store, last)
            if shown.seeds != asked:
                states.append(TableState(runs, ()))
                runs = plan_table(table, profile, shown.seeds, rows)
            states.append(_whole_state(runs, store))
        for figure in all_figures().values():
            asked = ever_asked(work_dir(), figure.id, profile.name)
            if asked:
                parts = plan_figure(figure, tables, profile, asked).parts
                states += [TableState(part, ()) for part in parts.values()]
    return states


def _whole_state(runs: TableRuns, store: Store) -> TableState:
    cells = build_cells(runs, store)
    return TableState(runs, cells, _details(runs, cells, store))


def _details(runs: TableRuns, cells: Sequence[Cell], store: Store) -> Callable[[], Details]:
    """Return what makes the report of a table, its finding and its page, once it is asked for."""

    @cache
    def make() -> Details:
        from harness.report.build import build_report
        from harness.report.claims import judge_runs
        from harness.report.findings import finding
        from harness.report.page.contents import from_store
        from harness.report.page.page import as_html

        report = build_report(runs, store, cells=cells)
        lacking = lacking_rows(runs.table, runs.profile)
        found = finding(report, judge_runs(runs, store, lacking))
        page = from_store(
            [runs.table], runs.profile, lambda _: runs.seeds, store, results_dir(), ()
        )
        return Details(report, found, as_html(page))

    return make
