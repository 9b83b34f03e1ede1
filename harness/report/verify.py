"""Everything published, checked: its numbers follow from its values of single prompts.

What is published needs no store, no model and no training library to be checked
(`harness.report.published`, `harness.report.figures.publish`). A store, where there is one, holds
the stages the values came from, and the digest of each of their files can be checked as well.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.report.figures.publish import check_figure, figure_folders
from harness.report.publish import DIGESTS, REPORT, SCORES
from harness.report.published import (
    Published,
    check,
    published_folders,
    read_published,
    recompute,
    same,
)
from harness.report.scores import grouped, read_rows
from harness.report.winner import again
from harness.store import Store

_NAMED = ("mean", "ci_low", "ci_high", "gain", "gain_ci_low", "gain_ci_high", "state")


@dataclass(frozen=True)
class Verified:
    """What was checked and found to be as it was published.

    Attributes:
        tables: Published tables, as `profile/table`.
        sweeps: Published sweeps, whose winners' scores were computed again, as `profile/sweep`.
        cells: Cells with numbers that were computed again, those of winners included.
        figures: Published figures, as `profile/figure`.
        points: Points of figures with numbers that were computed again.
        unchecked: Other reports under the results, which have no per-prompt scores beside them,
            as paths below the folder of results.
        stages: Stages of the store whose files were checked; None where no store was.
        absent: Stages behind published tables and figures that the store does not hold.
    """

    tables: tuple[str, ...]
    sweeps: tuple[str, ...]
    cells: int
    figures: tuple[str, ...]
    points: int
    unchecked: tuple[str, ...]
    stages: int | None = None
    absent: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what was checked as JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def verify(results_dir: Path, store: Store | None = None) -> Verified:
    """Check every published table and figure, and every stage of a store where one is given.

    Args:
        results_dir: The folder of published results.
        store: The store to check as well.

    Raises:
        HarnessError: Something is not what was published; the message names the first difference.
        StoreError: Something in the store is not what was written; the message names all of it.
    """
    folders, figures = list(published_folders(results_dir)), list(figure_folders(results_dir))
    sweeps = [path.parent for path in sorted(results_dir.glob(f"*/sweeps/*/{REPORT}"))]
    cells = sum(map(_verify_table, folders)) + sum(map(_verify_sweep, sweeps))
    points = sum(map(check_figure, figures))
    rest = {p.parent for p in results_dir.rglob(REPORT)} - {*folders, *sweeps, *figures}
    found = Verified(
        tables=tuple(f"{folder.parent.name}/{folder.name}" for folder in folders),
        sweeps=tuple(f"{folder.parent.parent.name}/{folder.name}" for folder in sweeps),
        cells=cells,
        figures=tuple(f"{folder.parent.name}/{folder.name}" for folder in figures),
        points=points,
        unchecked=tuple(sorted(str(folder.relative_to(results_dir)) for folder in rest)),
    )
    if store is None:
        return found
    held = store.check()
    behind = {name for folder in [*folders, *figures] for name in _stages_behind(folder)}
    return replace(found, stages=len(held), absent=len(behind - set(held)))


def _verify_table(folder: Path) -> int:
    """Check one table; a file that was changed is named with the first number it changes."""
    try:
        return check(folder)
    except HarnessError as error:
        number = _first_changed_number(folder)
        if number is None or number in str(error):
            raise
        raise HarnessError(f"{error}; the first number that changes is the {number}") from error


def _verify_sweep(folder: Path) -> int:
    """Check one sweep's files, and its winner's scores; returns how many there are."""
    published = read_published(folder)
    said = published.report["benchmarks"]
    for before, now in zip(said, again(published.report, published.measured), strict=True):
        for name, value in now.as_json().items():
            if not same(before[name], value):
                raise HarnessError(
                    f"{folder / REPORT}: the {name} of the winner in `{now.score}` does not follow "
                    f"from {SCORES}; publish the sweep again"
                )
    return len(said)


def _first_changed_number(folder: Path) -> str | None:
    """Return the first published number that does not follow from the scores as they are now.

    None where every number does, or where the files cannot be read.
    """
    try:
        rows = read_rows(folder / SCORES, "run_id", "seed", "column", "prompt_id", "value")
        measured = grouped([((run, seed, score), p, value) for run, seed, score, p, value in rows])
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
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


def _stages_behind(folder: Path) -> set[str]:
    digests = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    return {fingerprint for run in digests["stages"].values() for fingerprint in run.values()}
