"""The store's contents, a trained policy in it, and what MLflow shows of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.errors import UserError
from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns, plan_table, runnable, shown_of
from harness.project import work_dir
from harness.registry.declared import named_table
from harness.registry.profile import Profile, lacking_rows
from harness.registry.schema import Table
from harness.report.build import stored_results
from harness.report.controls import KnownControls
from harness.report.results import Results
from harness.runtime import Store
from harness.selection import names
from harness.selection.request import Request
from harness.tracking import Mlflow, TableState, Tracker
from harness.words import Say, ignore


def summary(store: Store) -> dict[str, Any]:
    """Summarize a store by kind of stage, largest first, reading only manifests; in bytes."""
    sizes: dict[str, list[int]] = {}
    for manifest in store.stages():
        own = sum(file["bytes"] for file in manifest["files"].values())
        sizes.setdefault(manifest["kind"], []).append(own)
    kinds = [
        {"kind": kind, "stages": len(own), "size": sum(own)}
        for kind, own in sorted(sizes.items(), key=lambda it: (-sum(it[1]), it[0]))
    ]
    return {"place": str(store.root), "kinds": kinds, "size": sum(map(sum, sizes.values()))}


def tracker_of(store: Store, warn: Say, watch: Say = ignore) -> Tracker:
    """Return a store's tracker; it calls `warn` if MLflow is unavailable, `watch` as it writes."""
    return Tracker(Mlflow(work_dir(), warn, watch=watch), store)


def states_after(request: Request, tables: Iterable[Results]) -> list[TableState]:
    """Return the states to track after a run."""
    if request.figure is not None:
        # A figure has no rows to track, only the runs of its tables' rows.
        return [TableState(part) for part in request.parts]
    return [state for table in tables for state in states_of(table)]


def trained_run(asked: str, name: str, profile: Profile, seed: int, store: Store) -> Run:
    """Return the run behind a row of a table, found by the row's or the run's id."""
    (table, _) = named_table(asked)
    row = next((row for row in table.rows if name in {row.id, *table.recipes(row)}), None)
    row = table.row(name) if row is None else row
    runs = plan_table(table, profile, (seed,), [row.id])
    named = [run_id for run_id in table.recipes(row) if name in (row.id, run_id)]
    if len(named) > 1:
        raise UserError(f"`{name}` has a run for each column; name one of them: {', '.join(named)}")
    run = runs.runs[named[0], seed]
    if not run.training:
        raise UserError(f"`{name}` trains no policy; name another row")
    if store.status(run.training[-1].fingerprint) != "done":
        again = names.again(asked, profile.asked_as, (seed,), [row.id])
        raise UserError(f"`{name}` was not trained yet; type `harness run {again}` first")
    return run


def states_of(results: Results) -> list[TableState]:
    """Return the states to track after a command computed some of a table's runs.

    Runs are the command's. Rows are the whole table's, with the seeds a report shows, whatever rows
    and seeds the command named, so that tracking after a run and from the store agree.
    """
    assert results.runs is not None
    runs, store = results.runs
    shown = shown_of(runs.table, runs.profile, store)
    lacking = lacking_rows(runs.table, runs.profile)
    seeds = runs.seeds if shown is None else shown.seeds
    rows = [row.id for row in runs.table.rows if row.id not in lacking]
    if (rows, seeds) == (runs.row_ids, runs.seeds):
        return [TableState(runs, results)]
    whole = _planned(runs.table, runs.profile, seeds)
    return [
        TableState(runs),
        TableState(whole, stored_results(whole, KnownControls(runs.profile, store))),
    ]


def stored_states(
    tables: Iterable[Table], profile: Profile, store: Store, *, whole: bool = False
) -> list[TableState]:
    """Return the states of the tables that the store has finished runs of, with every seed."""
    states, known = [], KnownControls(profile, store)
    for table in tables:
        shown = shown_of(table, profile, store)
        if shown is None or (whole and shown.whole < shown.runs):
            continue
        if shown.left_out:
            every = sorted({*shown.seeds, *shown.left_out})
            states.append(TableState(_planned(table, profile, every)))
        runs = _planned(table, profile, shown.seeds)
        states.append(TableState(runs, stored_results(runs, known)))
    return states


def _planned(table: Table, profile: Profile, seeds: Sequence[int]) -> TableRuns:
    """Plan the rows that the profile can run, of a table that was run there."""
    runs, _ = runnable(table, profile, seeds)
    assert runs is not None
    return runs
