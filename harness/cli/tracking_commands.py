"""`sync` and `ui`: the store's state in MLflow, and MLflow's pages over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile
    from harness.catalogue.schema import Table
    from harness.report.cells import Cell
    from harness.store import Store
    from harness.tracking import TableState, Tracker
    from harness.trainer.table_runs import TableRuns

PortOption = Annotated[
    int, typer.Option("--port", metavar="N", min=1, max=65535, help="Where to listen.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command("sync", epilog="Example: MLFLOW_TRACKING_URI=http://host:5000 harness sync")(sync)
    app.command("ui", epilog="Example: harness ui --port 5001")(ui)


def sync() -> None:
    """Bring the tracking server to the state of the store.

    All tables that were ever run, and all evaluations that were kept, are written to
    MLFLOW_TRACKING_URI, by default a database in the work folder. Doing it again changes nothing.
    """
    from harness.cli.output import console, warn
    from harness.evaluation.benchmark_archive import all_kept
    from harness.project import evaluations_dir, store_dir, work_dir
    from harness.store import Store
    from harness.tracking import EvaluationTracker

    store = Store(store_dir())
    states = asked_states(store)
    evaluations = all_kept(evaluations_dir())
    out = console()
    if not states and not evaluations:
        out.print("No table was run yet, so there is nothing to write: harness run table4")
    if states:
        named = dict.fromkeys(f"{s.runs.table.id}/{s.runs.profile.name}" for s in states)
        tables = ", ".join(named)
        changes = tracker_of(store).sync(states)
        out.print(f"{tables}: {_counted(changes)}.", soft_wrap=True)
    if evaluations:
        changes = EvaluationTracker(work_dir(), warn).sync()
        out.print(f"evaluations: {_counted(changes)}.", soft_wrap=True)


def _counted(changes: Mapping[str, int]) -> str:
    """Return how many MLflow runs were changed, and how."""
    from harness.cli.output import counted

    total = counted(sum(changes.values()), "MLflow run")
    done = ", ".join(f"{number} {change}" for change, number in sorted(changes.items()))
    return f"{total} ({done or 'nothing stored'})"


def ui(port: PortOption = 5000) -> None:
    """Serve MLflow's pages on this machine, until Ctrl-C."""
    import os
    import socket

    from harness.cli.output import console
    from harness.errors import UserError
    from harness.project import work_dir
    from harness.tracking import ui_command

    command, environment = ui_command(work_dir(), port)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used ({error.strerror}); choose another with `--port`"
            ) from error
    out = console()
    # Without the query MLflow opens its pages on traces of language-model calls.
    page = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
    out.print(f"MLflow is in a few seconds at {page} (Ctrl-C stops it).", soft_wrap=True)
    out.print(
        "Its home page says that it collects usage data: this server does not, and tells the page "
        "not to.",
        soft_wrap=True,
    )
    out.file.flush()
    os.execve(command[0], command, environment)


def tracker_of(store: Store) -> Tracker:
    """Return the tracker of a store, which warns on stderr."""
    from harness.cli.asking import all_tables
    from harness.cli.output import warn
    from harness.project import work_dir
    from harness.tracking import Tracker
    from harness.trainer.table_runs import cells_served

    return Tracker(work_dir(), store, cells_served(all_tables()), warn=warn)


def states_of(runs: TableRuns, cells: Sequence[Cell], store: Store) -> list[TableState]:
    """Return what tracking shows of a table after a command has computed some of its runs.

    Of runs there are those of the command. Rows are those of the whole table with the seeds that a
    report shows, whichever rows and seeds the command named, so that writing after a run and
    writing from the store are the same.

    Args:
        runs: The runs of the command.
        cells: Their cells.
        store: The store they were read from.

    Raises:
        HarnessError: The record of the seeds asked for is broken, or the store cannot be read.
    """
    from harness.cli.asking import supported_rows
    from harness.project import work_dir
    from harness.report.asked import shown_seeds
    from harness.tracking import TableState

    rows = supported_rows(runs.table, runs.profile)
    shown = shown_seeds(work_dir(), store, runs.table, runs.profile, rows)
    seeds = runs.seeds if shown is None else shown.seeds
    if (rows, seeds) == (runs.row_ids, runs.seeds):
        return [TableState(runs, cells)]
    return [TableState(runs, ()), _rows_state(runs.table, runs.profile, seeds, rows, store)]


def asked_states(store: Store) -> list[TableState]:
    """Return the state of every table that was run, at every profile.

    Of runs there are those of all seeds ever asked for, of rows those with the seeds that a report
    shows. Of a figure that was run there are the runs behind it, by table and without cells.

    Raises:
        HarnessError: A record of the seeds asked for is broken, or the store cannot be read.
    """
    from harness.cli.asking import all_figures, all_profiles, all_tables, supported_rows
    from harness.project import work_dir
    from harness.report.asked import ever_asked, shown_seeds
    from harness.tracking import TableState
    from harness.trainer.figure_runs import plan_figure
    from harness.trainer.table_runs import plan_table

    states = []
    for profile in all_profiles().values():
        for table in all_tables().values():
            asked = ever_asked(work_dir(), table.id, profile.name)
            rows = supported_rows(table, profile) if asked else []
            shown = shown_seeds(work_dir(), store, table, profile, rows) if rows else None
            if shown is None:
                continue
            if shown.seeds != asked:
                states.append(TableState(plan_table(table, profile, asked, rows), ()))
            states.append(_rows_state(table, profile, shown.seeds, rows, store))
        for figure in all_figures().values():
            asked = ever_asked(work_dir(), figure.id, profile.name)
            if asked:
                parts = plan_figure(figure, all_tables(), profile, asked).parts
                states += [TableState(part, ()) for part in parts.values()]
    return states


def _rows_state(
    table: Table, profile: Profile, seeds: Sequence[int], rows: Sequence[str], store: Store
) -> TableState:
    from harness.report.cells import build_cells
    from harness.tracking import TableState
    from harness.trainer.table_runs import plan_table

    runs = plan_table(table, profile, seeds, rows)
    return TableState(runs, build_cells(runs, store))
