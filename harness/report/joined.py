"""Joining a store's seeds or rows with published ones, whose stages may be gone or elsewhere.

Scores, facts and provenance of what is published are those of the publication; all numbers are
computed from the scores of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness.errors import UserError
from harness.pipeline.runs import TableRuns
from harness.report.build import results_on
from harness.report.cells import measured_cell
from harness.report.controls import KnownControls, seeds_asked
from harness.report.model import Cell, Origin, Report, ReportRow, RowFacts, State, seed_of
from harness.report.origin import distinct
from harness.report.publication import read_digests, read_published, restore
from harness.report.publish import steps_of
from harness.report.results import Results
from harness.report.scores import RunScores
from harness.runtime import Plan

Place = tuple[str, str]
It = TypeVar("It", Cell, RowFacts)


def joined(
    plan: Callable[[Sequence[int], Sequence[str]], TableRuns],
    results: Results,
    folder: Path,
    known: KnownControls,
) -> Results:
    """Join stored results with the published ones in a folder; `plan` plans the runs of both.

    They add seeds to published rows, or rows with their baselines. Rows of controls may have their
    own seeds, at least two. Raises `UserError` if a seed is already published, if rows of any other
    table would end up with different seeds, or if the declarations have changed.
    """
    restore(folder)
    (before, measured), own = read_published(folder), results.report
    old = [row.id for row in before.rows]
    planned = plan(sorted({*before.seeds, *own.seeds}), [*old, *(row.id for row in own.rows)])
    _check(planned, before, own, folder)
    assert known.store is not None
    cells = _each(before.cells, own.cells, _made_by)
    runs, published = _of(planned, cells.values()), _of(planned, before.cells)
    whole = Plan(runs.targets)
    missing = set(whole.pending(known.store)) - set(Plan(published.targets))
    scores = RunScores.of_table(runs.table, runs.rows, runs.seeds, results.measured | measured)
    origin = _origin(before.origin, own.origin, len(whole), len(missing))

    def facts() -> list[RowFacts]:
        seeds = seeds_asked(before.cells), seeds_asked(own.cells)
        found = _each(before.facts, results.facts, partial(_facts, seeds=seeds))
        return sorted(found.values(), key=lambda it: runs.row_ids.index(it.row))

    ordered = [
        measured_cell(cells[row, column.id], scores)
        for row in runs.row_ids
        for column in own.columns
    ]
    found = results_on(runs, known, scores, ordered, origin, facts)
    failures = dict.fromkeys((*before.failures, *found.report.failures))
    return replace(found, report=found.report.model_copy(update={"failures": tuple(failures)}))


def _of(planned: TableRuns, cells: Iterable[Cell]) -> TableRuns:
    """Return the runs behind cells, whose rows may have seeds of their own."""
    table = planned.table
    behind = {
        (table.row(cell.row).run_id(table.column(cell.column)), seed)
        for cell in cells
        for seed in cell.seeds
    }
    return replace(planned, runs={key: planned.runs[key] for key in planned.runs if key in behind})


def _place(it: Cell | RowFacts) -> Place:
    return it.row, it.column if isinstance(it, Cell) else it.run


def _each(before: Iterable[It], own: Iterable[It], both: Callable[[It, It], It]) -> dict[Place, It]:
    """Return what either side has, by place, merging with `both` what both have."""
    found = {_place(it): it for it in own}
    for it in before:
        place = _place(it)
        found[place] = both(it, found[place]) if place in found else it
    return found


def _check(runs: TableRuns, before: Report, own: Report, folder: Path) -> None:
    if runs.study is not None:
        raise UserError(f"`{own.table}` has a study over all its seeds, which need one store")
    declared = [ReportRow.of(row, runs.table) for row in runs.rows]
    if before.columns != own.columns or not all(row in declared for row in before.rows):
        raise UserError(
            f"{folder} was published before its rows or columns changed; publish it whole"
        )
    old = {row: {*seeds} for row, seeds in seeds_asked(before.cells).items()}
    new = {row: {*seeds} for row, seeds in seeds_asked(own.cells).items()}
    there = set.intersection(*(old.get(row, set()) & seeds for row, seeds in new.items()))
    for row in old.keys() & new.keys():
        if not (old[row] <= new[row] or new[row] <= old[row]):
            there |= old[row] & new[row]
    if there:
        raise UserError(
            f"{folder} has seed {', '.join(map(str, sorted(there)))} already; add others"
        )
    ends = [old.get(row, set()) | new.get(row, set()) for row in old | new]
    uneven = any(seeds != ends[0] for seeds in ends)
    if uneven and (not runs.table.controls or min(map(len, ends)) == 1):
        raise UserError(
            f"{folder} has other rows and other seeds; name its rows with `--rows` to add seeds, "
            "or its seeds with `--seeds` to add rows"
        )
    steps, published = steps_of(runs), read_digests(folder).stages or {}
    for run, known in published.items():
        now = {name: stage.fingerprint for name, stage in steps.get(run, {}).items()}
        if known != {name: now.get(name) for name in known}:
            raise UserError(f"{folder} has `{run}` with other settings; publish all of it again")


def _made_by(before: Cell, own: Cell) -> Cell:
    """Return a cell with the seeds and runs of both; if a seed is incomplete, so is the cell."""
    incomplete = before if own.state == "ok" else own
    made = {name: _both(before, own, name) for name in ("reward_models", "creators")}
    runs = sorted({*before.runs, *own.runs}, key=seed_of)
    seeds = sorted({*before.seeds, *own.seeds})
    state = _state(before, own, bool(runs))
    said = {"state": state, "reason": incomplete.reason, "seeds": tuple(seeds)}
    return own.model_copy(update={**made, **said, "runs": tuple(runs)})


def _state(before: Cell | RowFacts, own: Cell | RowFacts, some: bool) -> State:
    """Return the joint state; `some` tells whether any seed is done."""
    state = before.state if own.state == "ok" else own.state
    return "partial" if some and state == "not_run" else state


def _origin(before: Origin, own: Origin, stages: int, missing: int) -> Origin:
    """Return the provenance of both; `missing` counts the stages that only the store could have."""
    listed = [name for name, it in Origin.model_fields.items() if it.annotation == tuple[str, ...]]
    times = [it for it in (before.finished, own.finished) if it is not None]
    since = [it for it in (before.by_metric_since, own.by_metric_since) if it is not None]
    return Origin(
        judges={
            name: ", ".join(distinct((before.judges.get(name, judge), judge)))
            for name, judge in own.judges.items()
        },
        stages=stages,
        stages_done=before.stages_done + stages - before.stages - missing,
        finished=max(times, default=None),
        by_metric_since=min(since, default=None),
        **{name: _both(before, own, name) for name in listed},
    )


def _both(before: Cell | Origin, own: Cell | Origin, name: str) -> tuple[str, ...]:
    return distinct((*getattr(before, name), *getattr(own, name)))


def _facts(
    before: RowFacts, own: RowFacts, seeds: tuple[Mapping[str, Sequence[int]], ...]
) -> RowFacts:
    """Return the facts of all seeds: means, weighted by the numbers of `seeds` that rows have.

    Of two that share seeds, one has all seeds of the other; the published facts come first.
    """
    old, new = ({*by_row[own.row]} for by_row in seeds)
    if old & new:
        return before if old >= new else own
    done = before.done + own.done
    state = _state(before, own, done > 0)
    values = {
        name: (len(old) * before.values[name] + len(new) * value) / len(old | new)
        for name, value in own.values.items()
        if name in before.values and state in ("ok", "not_available")
    }
    return own.model_copy(update={"state": state, "done": done, "values": values})
