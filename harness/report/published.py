"""A published report read back: its files are what was written, and its numbers follow from them.

The cells are computed again from `scores.parquet` with the functions that computed them first, so
a published table can be checked without a store, a model or the declarations. Numbers are
compared to eleven digits, because another processor or library may add in another order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.report.cells import Cell
from harness.report.json import dumps
from harness.report.publication import (
    PAGE,
    REPORT,
    SCORES,
    Extent,
    Kind,
    check_files,
    read_json,
    without_numbers,
)
from harness.report.reward_study import recomputed
from harness.report.scores import Measured, Numbers, grouped, numbers, read_rows, scores_of
from harness.report.summary import Summary, summarise

if TYPE_CHECKING:
    from harness.statistics import Scores

_DIGITS = 1e-11

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
    rows = read_rows(folder / SCORES, "run_id", "seed", "column", "prompt_id", "value")
    measured = grouped([((run, seed, score), p, value) for run, seed, score, p, value in rows])
    return Published(folder, read_json(folder / REPORT), measured)


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
        rows = read_rows(folder / SCORES, "run_id", "seed", "column", "prompt_id", "value")
        measured = grouped([((run, seed, score), p, value) for run, seed, score, p, value in rows])
        report = read_json(folder / REPORT)
        published = Published(folder, report, measured)
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


def same(a: object, b: object) -> bool:
    """Return whether two published values are equal, numbers to eleven digits."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_DIGITS, abs_tol=_DIGITS)
    return a == b


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
