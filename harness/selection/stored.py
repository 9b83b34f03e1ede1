"""What lies in the store: how much, whether it is whole, what nothing needs, what MLflow shows.

Needed are the stages of every declared table and figure, at every profile, with every seed that
this work folder has ever run them with. Weights and optimiser state of a segment of an online run
are *spent* when all stages that need it are done and the run has gone on from it. Both can be
computed again, and are dropped only on demand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.errors import UserError
from harness.pipeline.runs import (
    FigureRuns,
    TableRuns,
    Work,
    cells_served,
    parts_of,
    plan_figure,
    plan_table,
)
from harness.project import work_dir
from harness.registry.declared import all_figures, all_tables
from harness.registry.profile import supported_rows
from harness.report.asked import ever_asked, shown_of, shown_seeds, with_own_files
from harness.report.build import StoredTable
from harness.report.rows import StoreReader
from harness.runtime import Plan, Store
from harness.runtime.files import BrokenEntry, explained
from harness.selection.names import Say
from harness.strict import Strict
from harness.tracking import Mlflow, TableState, Tracker

UNFINISHED = "unfinished"
"""The name, among the kinds, of checkpoints of stages that are not done."""

_HEAVY = ("model/", "optimizer.safetensors")
"""Beginnings of the names of a segment's files that its continuation alone reads."""


class KindStored(Strict):
    """What the store holds of one kind of stage; sizes are bytes."""

    kind: str
    stages: int
    size: int
    unneeded: int
    """Stages that no declared run needs."""
    unneeded_size: int
    spent: int
    """Segments of online runs whose weights nothing needs any more."""
    spent_size: int


class Stored(Strict):
    """What the store holds."""

    place: str
    runs: int
    """Declared runs that this work folder has asked for, by which it is judged what is needed."""
    kinds: list[KindStored]
    size: int
    prunable: int
    """Bytes that can be given back."""
    pruned: bool
    """Whether they were."""
    broken: list[str] | None
    """What is not what was written, a sentence each; null where it was not asked for."""


@dataclass(frozen=True)
class StoredStage:
    """A stage in a store, or what is left of one that is not done and not computed.

    `size` is in bytes; `needed` whether a declared run needs it; `spent` has the files that can
    be dropped of one that is needed, with their sizes.
    """

    fingerprint: str
    kind: str
    size: int
    needed: bool = False
    spent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Inventory:
    """What is in a store, as it was found, and how many runs are declared."""

    store: Store
    runs: int
    entries: list[StoredStage]


def inventory(store: Store) -> Inventory:
    """Look through a store, reading manifests alone."""
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
    """Yield the runs of every table and figure that was run, with all seeds ever asked for.

    What a file of the user's own declares is among them. A figure's runs are those of its tables'
    rows, with the seeds that it was asked with.
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
    """Drop all that nothing needs; what is being computed now is waited for.

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
    """Read every file of the store; return what is not what was written, a sentence each."""
    broken = []
    for entry in found.entries:
        if entry.kind != UNFINISHED:
            try:
                found.store.verify(entry.fingerprint)
            except BrokenEntry as error:
                broken.append(str(error))
    return broken


def summary(found: Inventory, *, pruned: bool = False, broken: list[str] | None = None) -> Stored:
    """Return what an inventory says, kind by kind, the largest first."""
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


def tracker_of(store: Store, warn: Say) -> Tracker:
    """Return the tracker of a store; `warn` takes the sentence that MLflow cannot be had."""
    return Tracker(Mlflow(work_dir(), warn), store, lambda: cells_served(all_tables()))


def states_after(work: Work, tables: Iterable[StoredTable]) -> list[TableState]:
    """Return what tracking shows of some work after a run of it."""
    if isinstance(work, FigureRuns):
        # A figure has no rows of its own to track, only the runs of its tables' rows.
        return [TableState(part) for part in parts_of(work)]
    return [state for table in tables for state in states_of(table)]


def states_of(stored: StoredTable) -> list[TableState]:
    """Return what tracking shows of a table after a command has computed some of its runs.

    Of runs there are those of the command. Rows are those of the whole table with the seeds that a
    report shows, whichever rows and seeds the command named, so that writing after a run and
    writing from the store are the same.
    """
    runs, reader = stored.runs, stored.reader
    rows = supported_rows(runs.table, runs.profile)
    shown = shown_seeds(work_dir(), stored.store, runs.table, runs.profile, rows)
    seeds = runs.seeds if shown is None else shown.seeds
    if (rows, seeds) == (runs.row_ids, runs.seeds):
        return [_whole_state(stored)]
    whole = plan_table(runs.table, runs.profile, seeds, rows)
    return [TableState(runs), _whole_state(StoredTable(whole, reader))]


def asked_states(store: Store) -> list[TableState]:
    """Return the state of every table that was run, at every profile.

    Of runs there are those of all seeds ever asked for, of rows those with the seeds that a report
    shows. Of a figure that was run there are the runs behind it, by table and without cells.
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
        states.append(_whole_state(StoredTable(runs, reader)))
    return states


def _whole_state(stored: StoredTable) -> TableState:
    """Return the state of a table; its page is made once it is asked for."""
    runs = stored.runs

    def page() -> str:
        from harness.report.page.contents import from_store
        from harness.report.page.page import as_html

        known = {runs.table.id: stored}
        return as_html(
            from_store([runs.table], runs.profile, lambda _: runs.seeds, stored.reader, known=known)
        )

    return TableState(runs, stored.report, page)
