"""Publishing: a report that stays, with the per-prompt scores it was computed from.

    results/<profile>/<table>/report.md        for people
                              report.json      cells, summary, distances, creator and origin
                              scores.parquet   value of each prompt, by run, seed and score
                              curves.svg       learning curves, where anything is trained online
                              study.svg        what a table's study found, where it has one
                              digests.json     sha256 of the files, fingerprints of the stages

Nothing else writes there (`harness.report.publication`). Read back, the cells are computed
again from `scores.parquet` with the functions that computed them first, so that a published table
can be checked without a store, a model or the declarations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import Table
from harness.report import view
from harness.report.assumptions import Assumption
from harness.report.cells import Cell
from harness.report.costs import Costs, RowCost
from harness.report.creation import Creation
from harness.report.curves import draw_curves
from harness.report.distances import PromptDistance
from harness.report.online import OnlineCost
from harness.report.origin import Origin
from harness.report.publication import (
    PAGE,
    REPORT,
    SCORES,
    Extent,
    Kind,
    check_files,
    dumps,
    publish_folder,
    read_json,
    same,
    without_numbers,
)
from harness.report.render import as_markdown
from harness.report.report import Report, assemble
from harness.report.reward_study import Study, read_study, recomputed
from harness.report.reward_study_plot import draw_study
from harness.report.scores import (
    Measured,
    Numbers,
    numbers,
    read_score_file,
    read_scores,
    scores_of,
    write_scores,
)
from harness.report.summary import Summary, summarise
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.statistics import Scores
    from harness.trainer.runs import TableRuns


OF_STUDY = "study"
"""Where the digests name the stages of a table's study, beside those of its runs."""


def publish(
    table_runs: TableRuns,
    cells: Sequence[Cell],
    store: Store,
    results_dir: Path,
    *,
    allow_fewer: bool = False,
) -> Path:
    """Write `results/<profile>/<table>/`, in place of what was published before.

    Args:
        table_runs: The runs behind the table.
        cells: Its cells (`harness.report.cells.build_cells`).
        store: The store they were read from.
        results_dir: The folder of published results.
        allow_fewer: Publish it though it is not whole, or has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
        StoreError: A stored file is not what was written, the disk is full, or the folder may
            not be written.
    """
    measured = read_scores(table_runs, store)
    report = assemble(table_runs, cells, store, measured=measured)
    measured |= read_study(table_runs, store)

    def write(draft: Path) -> None:
        (draft / PAGE).write_text(as_markdown(report), encoding="utf-8")
        if report.curves:
            draw_curves(report.curves, draft / view.CURVES)
        if report.study is not None and report.study.whole:
            draw_study(report.study, draft / view.STUDY)
        data = published_json(report, Costs(store).of(table_runs))
        (draft / REPORT).write_text(dumps(data), encoding="utf-8")
        write_scores(measured, draft / SCORES)

    place, stages = f"{report.profile.name}/{report.table.id}", _fingerprints(table_runs, store)
    return publish_folder(TABLE, place, results_dir, write, stages=stages, allow_fewer=allow_fewer)


def published_json(report: Report, costs: Sequence[RowCost]) -> dict[str, Any]:
    """Return everything a report says, and what its rows cost, as JSON data.

    Its schema is `schemas/published.json`.
    """
    table = report.table
    return {
        "table": table.id,
        "profile": report.profile.name,
        "scale": report.profile.scale,
        "seeds": list(report.seeds),
        "columns": [
            {
                "id": c.id,
                "score": c.reads,
                "unit": c.unit,
                "direction": c.direction,
                "by_construction": report.profile.by_construction(c.reads),
            }
            for c in table.columns
        ],
        "rows": [
            {
                "id": row.id,
                "label": row.label,
                "baseline": row.baseline,
                "runs": {column.id: row.run_id(column) for column in table.columns},
            }
            for row in report.rows
        ],
        "cells": [cell.as_json() for cell in report.cells],
        "summary": [summary.as_json() for summary in report.summaries],
        "distances": [distance.as_json() for distance in report.distances],
        "creation": [creation.as_json() for creation in report.creations],
        "online": [cost.as_json() for cost in report.online],
        "costs": [cost.as_json() for cost in costs],
        **({} if report.study is None else {"study": report.study.as_json()}),
        "failures": view.failures(report),
        "origin": report.origin.as_json(),
        "assumptions": [asdict(assumption) for assumption in report.assumptions],
        "notes": view.table_notes(report)[1],
    }


def _fingerprints(table_runs: TableRuns, store: Store) -> dict[str, dict[str, str]]:
    """Return the fingerprints of each run's stages that are done: its judges' and trainings'."""
    read = {benchmark_of(table_runs.profile, c.reads) for c in table_runs.table.columns}
    found: dict[str, dict[str, str]] = {}
    for run in table_runs.runs.values():
        stages = {f"judge {name}": stage for name, stage in run.judged.items() if name in read}
        stages |= {f"train {i}": stage for i, stage in enumerate(run.training, start=1)}
        found[f"{run.run_id}/{run.profile}/seed{run.seed}"] = {
            name: stage.fingerprint
            for name, stage in stages.items()
            if store.status(stage.fingerprint) == "done"
        }
    study = [] if table_runs.study is None else table_runs.study.targets
    for stage in study:
        if store.status(stage.fingerprint) == "done":
            found.setdefault(OF_STUDY, {})[stage.label] = stage.fingerprint
    return found


_NAMED = ("mean", "ci_low", "ci_high", "gain", "gain_ci_low", "gain_ci_high", "state")


@dataclass(frozen=True)
class Published:
    """A published report: what it says, and the scores it rests on."""

    folder: Path
    report: dict[str, Any]
    measured: Measured

    @property
    def cells(self) -> list[Cell]:
        """The cells as published.

        Raises:
            HarnessError: They were published in another form.
        """
        try:
            return [Cell.from_json(cell) for cell in self.report["cells"]]
        except TypeError as error:
            raise HarnessError(
                f"{self.folder} was published in another form ({error}); publish the table again"
            ) from error

    def run_of(self, row: str, column: str) -> str:
        """Return the run behind a row in a column."""
        runs = {found["id"]: found["runs"] for found in self.report["rows"]}
        return str(runs[row][column])

    def score_of(self, column: str) -> str:
        """Return the score that a column reads."""
        return next(str(c["score"]) for c in self.report["columns"] if c["id"] == column)

    def scores(self, cell: Cell) -> Scores | None:
        """Return the scores behind a cell, None where a seed is missing."""
        run, score = self.run_of(cell.row, cell.column), self.score_of(cell.column)
        return scores_of(self.measured, run, cell.seeds, score)


def read_published(folder: Path) -> Published:
    """Read a published report, its digests verified.

    Raises:
        HarnessError: A file is missing, or is not what was published.
    """
    check_files(folder, (PAGE, REPORT, SCORES), "table")
    return Published(folder, read_json(folder / REPORT), read_score_file(folder / SCORES))


def check(folder: Path) -> int:
    """Check a published report: its digests, and its numbers computed again from its scores.

    Returns:
        How many cells with numbers were computed again.

    Raises:
        HarnessError: A file is missing or changed, or a number does not follow from the scores; a
            file that was changed is named with the first number it changes.
    """
    try:
        return _check(read_published(folder))
    except HarnessError as error:
        number = _first_changed_number(folder)
        if number is None or number in str(error):
            raise
        raise HarnessError(f"{error}; the first number that changes is the {number}") from error


def _check(published: Published) -> int:
    folder = published.folder
    cells = recompute(published)
    for before, again in zip(published.cells, cells, strict=True):
        for name in (field for field in asdict(before) if field != "reason"):
            if not same(getattr(before, name), getattr(again, name)):
                raise _differs(folder, f"{name} of `{before.row}` in `{before.column}`")
    summaries = [summary.as_json() for summary in summarise(cells, published.scores)]
    for before_row, again_row in zip(published.report["summary"], summaries, strict=True):
        for name in Summary.__dataclass_fields__:
            if not same(before_row[name], again_row[name]):
                raise _differs(folder, f"{name} in the summary of `{before_row['column']}`")
    study = published.report.get("study")
    if study is not None:
        # Through JSON and back, so that both have lists.
        again = json.loads(dumps(recomputed(study, published.measured)))
        for before_part, again_part, what in _parts(study, again):
            if not same(before_part, again_part):
                raise _differs(folder, what)
    return sum(cell.mean is not None for cell in cells)


def _first_changed_number(folder: Path) -> str | None:
    """Return the first published number that does not follow from the scores as they are now.

    None where every number does, or where the files cannot be read.
    """
    try:
        published = Published(folder, read_json(folder / REPORT), read_score_file(folder / SCORES))
        pairs = list(zip(published.cells, recompute(published), strict=True))
    except (HarnessError, OSError, ValueError, KeyError, TypeError):
        return None  # the files' own fault is reported by whoever found it
    for before, after in pairs:
        for name in _NAMED:
            was, now = getattr(before, name), getattr(after, name)
            if not same(was, now):
                return f"{name} of `{before.row}` in `{before.column}`"
    return None


def _parts(before: Any, again: Any, where: str = "study") -> Iterator[tuple[Any, Any, str]]:
    """Yield the numbers and words of two JSON values side by side, with where they stand."""
    if isinstance(before, dict) and isinstance(again, dict) and before.keys() == again.keys():
        for key in before:
            yield from _parts(before[key], again[key], f"{key} in the {where}")
    elif isinstance(before, list) and isinstance(again, list) and len(before) == len(again):
        for one, other in zip(before, again, strict=True):
            yield from _parts(one, other, where)
    else:
        yield before, again, where


def recompute(published: Published) -> list[Cell]:
    """Return the cells with their numbers computed again from the published scores."""
    return [_again(cell, published) for cell in published.cells]


def _again(cell: Cell, published: Published) -> Cell:
    base = cell.baseline_row
    found = numbers(
        published.measured,
        published.run_of(cell.row, cell.column),
        None if base is None else published.run_of(base, cell.column),
        cell.seeds,
        published.score_of(cell.column),
    )
    # Whether a cell is whole follows from the scores; why another is not does not.
    whole = found != Numbers()
    state = "ok" if whole else cell.state if cell.state != "ok" else "not_run"
    return replace(cell, **asdict(found), state=state)


def _differs(folder: Path, what: str) -> HarnessError:
    return HarnessError(
        f"{folder / REPORT}: the {what} does not follow from {SCORES}; publish the table again"
    )


def table_extent(report: Mapping[str, Any]) -> Extent:
    """Return how much a published table has, its study included."""
    cells = report["cells"]
    states = [(f"{cell['row']}/{cell['column']}", cell["state"]) for cell in cells]
    study = report.get("study") or {"models": []}
    states += [(f"{model['row']} in the study", model["state"]) for model in study["models"]]
    return Extent(
        rows=tuple(row["id"] for row in report["rows"]),
        seeds=tuple(report["seeds"]),
        counts={"numbers": sum(cell["mean"] is not None for cell in cells)},
        lacking=without_numbers(states),
    )


def published_folders(results_dir: Path) -> Iterator[Path]:
    """Yield the folders of published tables, in order of profile and table.

    A table says that it has cells; figures and other pages have a `report.json` as well.
    """
    for path in sorted(results_dir.glob(f"*/*/{REPORT}")):
        if is_table(path.parent):
            yield path.parent


def is_table(folder: Path) -> bool:
    """Return whether a report is a table's; one that cannot be read counts, and fails the check."""
    try:
        return TABLE.mark in read_json(folder / REPORT)
    except HarnessError:
        return True


TABLE = Kind("table", "cells", table_extent, check)
"""A table with the per-prompt scores its cells follow from."""


def restored(published: Published, table: Table, profile: Profile) -> Report:
    """Return what a published report says, as a report.

    The curves stay where they are published, as a drawing.

    Args:
        published: The published report.
        table: Its table, as declared now.
        profile: Its profile, as declared now.

    Raises:
        HarnessError: It does not fit the declarations, or was written in another form.
    """
    data = published.report
    try:
        rows = [row["id"] for row in data["rows"]]
        columns = [column["id"] for column in data["columns"]]
        if columns != [column.id for column in table.columns]:
            raise HarnessError(
                f"{published.folder}: the columns of `{table.id}` have changed since it was "
                "published; publish the table again"
            )
        return Report(
            table=table,
            profile=profile,
            seeds=tuple(data["seeds"]),
            rows=tuple(table.row(name) for name in rows),
            cells=tuple(published.cells),
            summaries=tuple(Summary(**summary) for summary in data["summary"]),
            distances=tuple(PromptDistance(**distance) for distance in data["distances"]),
            creations=tuple(Creation(**creation) for creation in data["creation"]),
            online=tuple(OnlineCost(**cost) for cost in data["online"]),
            curves={},
            study=Study.from_json(data["study"]) if "study" in data else None,
            origin=_origin(data["origin"]),
            assumptions=tuple(Assumption(**assumption) for assumption in data["assumptions"]),
            calibrations={},
        )
    except (KeyError, TypeError) as error:
        raise HarnessError(
            f"{published.folder} was published in another form ({error}); publish the table again"
        ) from error


def _origin(data: dict[str, Any]) -> Origin:
    found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Origin(**found)
