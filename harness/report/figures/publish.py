"""Publishing a figure: the drawing, the numbers, and the values of single prompts behind them.

    results/<profile>/<figure>/figure.svg      the drawing
                               report.md       for people
                               report.json     the points, and the declaration they follow from
                               *.parquet       scores, rewards or topics of single prompts
                               digests.json    sha256 of the files, fingerprints of the stages

`check_figure` reads it back and computes the points again, without a store or a model.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.catalogue.figures import figure_from_json
from harness.errors import HarnessError
from harness.report.figures.kinds import KINDS
from harness.report.figures.page import as_markdown
from harness.report.figures.point import Point
from harness.report.figures.report import FILE, FigureReport
from harness.report.json import dumps
from harness.report.publish import DIGESTS, PAGE, REPORT, replace_folder, sha256
from harness.report.published import read_json, same
from harness.store.faults import explained

_NUMBERS = ("value", "low", "high")


def publish_figure(report: FigureReport, results_dir: Path) -> Path:
    """Write `results/<profile>/<figure>/`, in place of what was published before.

    Args:
        report: The figure's report.
        results_dir: The folder of published results.

    Returns:
        The folder that was written.

    Raises:
        StoreError: The disk is full, or the folder may not be written.
    """
    target = results_dir / report.profile / report.figure.id
    with explained(f"publishing `{report.figure.id}`", results_dir):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            draft = Path(scratch) / "new"
            draft.mkdir()
            report.draw(draft / FILE)
            report.data.write(draft / report.data.FILE)
            (draft / PAGE).write_text(as_markdown(report, drawn=True), encoding="utf-8")
            (draft / REPORT).write_text(report.json_text(), encoding="utf-8")
            digests = {
                "files": {file.name: sha256(file) for file in sorted(draft.iterdir())},
                "stages": report.data.stages,
            }
            (draft / DIGESTS).write_text(dumps(digests), encoding="utf-8")
            replace_folder(target, draft, Path(scratch) / "old")
    return target


def figure_folders(results_dir: Path) -> Iterator[Path]:
    """Yield the folders of published figures, in order of profile and figure."""
    for path in sorted(results_dir.glob(f"*/*/{REPORT}")):
        if is_figure(path.parent):
            yield path.parent


def is_figure(folder: Path) -> bool:
    """Return whether a published report is a figure's."""
    try:
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and "figure" in report


def check_figure(folder: Path) -> int:
    """Check a published figure: its digests, and its points computed again from its data.

    Returns:
        How many numbers were computed again.

    Raises:
        HarnessError: A file is missing or changed, or a number does not follow from the data; the
            message names the first number that differs.
    """
    report = read_json(folder / REPORT, "figure")
    try:
        data_file = str(report["data"]["file"])
        before = [Point.from_json(point) for point in report["points"]]
        again = _recompute(folder, report)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _changed(folder / REPORT) from error
    difference = _first_difference(before, again)
    files = read_json(folder / DIGESTS, "figure").get("files", {})
    for name in (data_file, REPORT, PAGE, FILE):
        if not (folder / name).is_file():
            raise HarnessError(f"{folder / name} is missing; publish the figure again")
        if sha256(folder / name) != files.get(name):
            first = f"; the first number that changes is the {difference}" if difference else ""
            raise HarnessError(f"{_changed(folder / name)}{first}")
    if difference:
        raise HarnessError(
            f"{folder / REPORT}: the {difference} does not follow from {data_file}; publish the "
            "figure again"
        )
    return sum(point.value is not None for point in before)


def _recompute(folder: Path, report: dict[str, Any]) -> list[Point]:
    """Return the points computed again from the published data."""
    import pyarrow as pa

    figure = figure_from_json(report["figure"])
    kind = KINDS[figure.kind]
    path = folder / kind.data.FILE
    if not path.is_file():
        raise HarnessError(f"{path} is missing; publish the figure again")
    try:
        data = kind.data.load(report["data"], path)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _changed(path) from error
    return kind.points(figure, data)


def _first_difference(before: list[Point], again: list[Point]) -> str | None:
    """Return which published number does not follow from the data, None where all do."""
    if len(before) != len(again):
        return f"number of points ({len(before)}, and {len(again)} follow from the data)"
    for was, now in zip(before, again, strict=True):
        place = " / ".join(filter(None, (was.panel, was.series, was.at)))
        if (was.panel, was.series, was.at, was.quantity) != (
            now.panel, now.series, now.at, now.quantity,
        ):  # fmt: skip
            return f"place `{place}`"
        for name in _NUMBERS:
            if not same(getattr(was, name), getattr(now, name)):
                return f"{name} of `{place}`"
        if (was.state == "ok") != (now.state == "ok"):
            return f"state of `{place}`"
    return None


def _changed(path: Path) -> HarnessError:
    return HarnessError(
        f"{path} is not what was published; restore it from version control or publish the figure "
        "again"
    )
