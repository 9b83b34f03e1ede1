"""The store's contents: size, integrity, what can be pruned, and what MLflow shows.

Needed are the stages of every declared table and figure, at every profile, with every seed this
work folder has ever run them with. The weights and optimizer state of an online run's segment are
*spent* once all stages that need it are done and the run has continued past it. Unneeded stages and
spent files can be recomputed, and are dropped only on request.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.errors import UserError
from harness.pipeline.algorithm import Run
from harness.pipeline.runs import (
    FigureRuns,
    TableRuns,
    Work,
    parts_of,
    plan_figure,
    plan_table,
)
from harness.project import work_dir
from harness.registry.declared import all_figures
from harness.registry.profile import Profile, supported_rows
from harness.registry.schema import Table
from harness.report.asked import ever_asked, shown_of, shown_seeds, with_own_files
from harness.report.build import StoredTable
from harness.report.rows import StoreReader
from harness.runtime import Plan, Store
from harness.runtime.files import BrokenEntry, explained
from harness.selection import names
from harness.selection.names import Say, ignore
from harness.strict import Strict
from harness.tracking import Mlflow, TableState, Tracker

UNFINISHED = "unfinished"
"""Pseudo-kind for checkpoints of stages that are not done."""

_HEAVY = ("model/", "optimizer.safetensors")
"""Name prefixes of the segment files that only its continuation reads."""


class KindStored(Strict):
    """The store's contents for one kind of stage; sizes in bytes."""

    kind: str
    stages: int
    size: int
    unneeded: int
    """Stages that no declared run needs."""
    unneeded_size: int
    spent: int
    """Segments of online runs whose weights are no longer needed."""
    spent_size: int


class Stored(Strict):
    """The store's contents."""

    place: str
    runs: int
    """Declared runs requested from this work folder, which determine what is needed."""
    kinds: list[KindStored]
    size: int
    prunable: int
    """Bytes that can be freed."""
    pruned: bool
    """Whether they were freed."""
    broken: list[str] | None
    """A message per corrupted stage; null if not checked."""


@dataclass(frozen=True)
class StoredStage:
    """A stage in a store, or the leftovers of an unfinished one that is not being computed.

    `size` is in bytes; `needed` is whether a declared run needs it; `spent` has the droppable files
    of a needed stage, with their sizes.
    """

    fingerprint: str
    kind: str
    size: int
    needed: bool = False
    spent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Inventory:
    """A snapshot of a store's contents, and the number of declared runs."""

    store: Store
    runs: int
    entries: list[StoredStage]


def inventory(store: Store) -> Inventory:
    """Take inventory of a store, reading only manifests."""
    runs = list(_ever_run())
    plan = Plan(target for one in runs for target in one.targets)
    needed, done = {stage.fingerprint for stage in plan}, set(store.fingerprints())
    entries = []
    for fingerprint in done:
        manifest, dropped, spent = store.manifest(fingerprint), store.released(fingerprint), {}
        files = {n: it["bytes"] for n, it in manifest["files"].items() if n not in dropped}
        if manifest["kind"] == "online" and fingerprint in needed:
            after = plan.dependants[fingerprint]
            gone_on = any(stage.kind == "online" for stage in after)
            if gone_on and all(stage.fingerprint in done for stage in after):
                spent = {name: size for name, size in files.items() if name.startswith(_HEAVY)}
        size = sum(files.values())
        entries.append(
            StoredStage(fingerprint, manifest["kind"], size, fingerprint in needed, spent)
        )
    for folder in (store.root / "unfinished").glob("[!.]*"):
        idle = folder.name in done or folder.name not in needed
        if idle and not store.claimed(folder.name):
            size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
            entries.append(StoredStage(folder.name, UNFINISHED, size))
    declared = sum(len(one.runs) for one in runs if isinstance(one, TableRuns))
    return Inventory(store, declared, entries)


def _ever_run() -> Iterator[TableRuns | FigureRuns]:
    """Yield the runs of every table and figure that was run, with all seeds ever requested.

    This includes tables and profiles from the user's own files. A figure's runs are those of its
    tables' rows, with the figure's seeds.
    """
    profiles, tables = with_own_files(work_dir())
    for profile in profiles.values():
        for table in tables.values():
            asked = ever_asked(work_dir(), table.id, profile.name)
            rows = supported_rows(table, profile) if asked else []
            if rows:
                yield plan_table(table, profile, asked, rows)
        for figure in all_figures().values():
            asked = ever_asked(work_dir(), figure.id, profile.name)
            if asked:
                yield plan_figure(figure, tables, profile, asked)


def prune(found: Inventory) -> None:
    """Drop everything that is not needed, except what is being computed now.

    Raises:
        UserError: This work folder cannot tell what is needed.
    """
    store = found.store
    if not found.runs and any(not it.needed and it.kind != UNFINISHED for it in found.entries):
        raise UserError(
            f"nothing declared was run from {work_dir()}, so that everything in {store.root} "
            "counts as not needed: prune from the work folder that ran it, or delete the store "
            "itself"
        )
    for entry in found.entries:
        if entry.kind == UNFINISHED:
            with (
                explained("removing unfinished work", store.root),
                store.claim(entry.fingerprint) as mine,
            ):
                if mine:
                    shutil.rmtree(store.unfinished(entry.fingerprint), ignore_errors=True)
        elif not entry.needed:
            store.discard(entry.fingerprint)
        elif entry.spent:
            store.release(entry.fingerprint, entry.spent)


def broken_stages(found: Inventory) -> list[str]:
    """Read every file in the store; return a message for each corrupted stage."""
    broken = []
    for entry in found.entries:
        if entry.kind != UNFINISHED:
            try:
                found.store.verify(entry.fingerprint)
            except BrokenEntry as error:
                broken.append(str(error))
    return broken


def summary(found: Inventory, *, pruned: bool = False, broken: list[str] | None = None) -> Stored:
    """Summarize an inventory by kind, largest first."""
    rows = []
    for kind in {entry.kind for entry in found.entries}:
        own = [entry for entry in found.entries if entry.kind == kind]
        without = [entry.size for entry in own if not entry.needed]
        spent = [sum(entry.spent.values()) for entry in own if entry.spent]
        rows.append(
            KindStored(
                kind=kind,
                stages=len(own),
                size=sum(entry.size for entry in own),
                unneeded=len(without),
                unneeded_size=sum(without),
                spent=len(spent),
                spent_size=sum(spent),
            )
        )
    return Stored(
        place=str(found.store.root),
        runs=found.runs,
        kinds=sorted(rows, key=lambda row: (-row.size, row.kind)),
        size=sum(row.size for row in rows),
        prunable=sum(row.unneeded_size + row.spent_size for row in rows),
        pruned=pruned,
        broken=broken,
    )


def tracker_of(store: Store, warn: Say, watch: Say = ignore) -> Tracker:
    """Return a store's tracker; `warn` is called if MLflow is unavailable, `watch` as it writes."""
    return Tracker(Mlflow(work_dir(), warn, watch=watch), store)


def states_after(work: Work, tables: Iterable[StoredTable]) -> list[TableState]:
    """Return the states to track after running some work."""
    if isinstance(work, FigureRuns):
        # A figure has no rows to track, only the runs of its tables' rows.
        return [TableState(part) for part in parts_of(work)]
    return [state for table in tables for state in states_of(table)]


def trained_run(table: Table, name: str, profile: Profile, seed: int, store: Store) -> Run:
    """Return the run behind a row of a table, given by the row's or the run's id.

    Raises:
        UserError: There is no such row, or no policy of it was trained.
    """
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
        again = names.again(table.id, profile.asked_as, (seed,), [row.id])
        raise UserError(f"`{name}` was not trained yet; type `harness run {again}` first")
    return run


def states_of(stored: StoredTable) -> list[TableState]:
    """Return the states to track after a command computed some of a table's runs.

    Runs are the command's. Rows are the whole table's, with the seeds a report shows, whatever rows
    and seeds the command named, so that tracking after a run and from the store agree.
    """
    runs, reader = stored.runs, stored.reader
    rows = supported_rows(runs.table, runs.profile)
    shown = shown_seeds(work_dir(), stored.store, runs.table, runs.profile, rows)
    seeds = runs.seeds if shown is None else shown.seeds
    if (rows, seeds) == (runs.row_ids, runs.seeds):
        return [TableState(runs, stored.report)]
    whole = plan_table(runs.table, runs.profile, seeds, rows)
    return [TableState(runs), TableState(whole, StoredTable(whole, reader).report)]


def asked_states(store: Store) -> list[TableState]:
    """Return the state of every table that was run, at every profile.

    Runs are those of all seeds ever requested; rows use the seeds a report shows. A figure that was
    run contributes the runs behind it, by table and without cells.
    """
    states, reader = [], StoreReader(store)
    for runs in _ever_run():
        if isinstance(runs, FigureRuns):
            states += [TableState(part) for part in runs.parts.values()]
            continue
        table, profile, asked = runs.table, runs.profile, runs.seeds
        shown = shown_of(runs, store, work_dir())
        if shown.seeds != asked:
            states.append(TableState(runs))
            runs = plan_table(table, profile, shown.seeds, runs.row_ids)
        states.append(TableState(runs, StoredTable(runs, reader).report))
    return states
