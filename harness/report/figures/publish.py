"""Publishing a figure: the drawing, the numbers, and the values of single prompts behind them.

    results/<profile>/<figure>/figure.svg      the drawing
                               report.md       for people
                               report.json     the points, and the declaration they follow from
                               *.parquet       scores, rewards or topics of single prompts
                               digests.json    sha256 of the files, fingerprints of the stages

`check_figure` reads it back and computes the points again, without a store or a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.report.figures.drawing import draw_figure, picture
from harness.report.figures.points import Point
from harness.report.figures.report import FILE, FigureReport, as_markdown
from harness.report.publication import (
    PAGE,
    REPORT,
    Extent,
    Kind,
    changed_file,
    check_files,
    publish_folder,
    read_model,
    same,
    without_numbers,
)

_PLACE = ("panel", "series", "at", "quantity")

_NUMBERS = ("value", "low", "high")


def publish_figure(report: FigureReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/<figure>/`, in place of what was published before.

    Args:
        report: The figure's report.
        results_dir: The folder of published results.
        allow_fewer: Publish it though it is not whole, or has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
        StoreError: The disk is full, or the folder may not be written.
    """

    def write(draft: Path) -> None:
        draw_figure(report, draft / FILE)
        report.data.write(draft / report.data.file)
        (draft / PAGE).write_text(as_markdown(report, drawn=True), encoding="utf-8")
        (draft / REPORT).write_text(report.json_text(), encoding="utf-8")

    place, stages = f"{report.profile}/{report.figure.id}", report.data.stages
    return publish_folder(FIGURE, place, results_dir, write, stages=stages, allow_fewer=allow_fewer)


def read_figure(folder: Path) -> FigureReport:
    """Return a published figure without the values of single prompts.

    Raises:
        HarnessError: Its report is missing, or is not what was published.
    """
    return read_model(folder, FigureReport, "figure")


def check_figure(folder: Path) -> int:
    """Check a published figure: its digests, and its points computed again from its data.

    Returns:
        How many numbers were computed again.

    Raises:
        HarnessError: A file is missing or changed, or a number does not follow from the data; the
            message names the first number that differs.
    """
    report = read_figure(folder)
    data_file = report.data.file
    files = (data_file, REPORT, PAGE, FILE)
    try:
        difference = _first_difference(report.points, _points_again(folder, report))
    except HarnessError:
        check_files(folder, files, "figure")
        raise
    try:
        check_files(folder, files, "figure")
    except HarnessError as error:
        if difference is None:
            raise
        raise HarnessError(f"{error}; the first number that changes is the {difference}") from error
    if difference:
        raise HarnessError(
            f"{folder / REPORT}: the {difference} does not follow from {data_file}; publish the "
            "figure again"
        )
    return sum(point.value is not None for point in report.points)


def figure_extent(report: Mapping[str, Any]) -> Extent:
    """Return how much a published figure has; its rows are the series of its panels."""
    points = [Point.model_validate(point) for point in report["points"]]
    return Extent(
        rows=tuple(dict.fromkeys(" / ".join(filter(None, (p.panel, p.series))) for p in points)),
        seeds=tuple(report["seeds"]),
        counts={"numbers": sum(point.value is not None for point in points)},
        lacking=without_numbers((point.name, point.state) for point in points),
    )


def _points_again(folder: Path, report: FigureReport) -> list[Point]:
    """Return the points computed again from the published data."""
    path = folder / report.data.file
    if not path.is_file():
        raise HarnessError(f"{path} is missing; publish the figure again")
    try:
        data = report.data.read(path)
    except (KeyError, ValueError) as error:
        raise changed_file(path, "figure") from error
    return report.kind.points(report.figure, data)


def _first_difference(before: Sequence[Point], again: Sequence[Point]) -> str | None:
    """Return which published number does not follow from the data, None where all do."""
    if len(before) != len(again):
        return f"number of points ({len(before)}, and {len(again)} follow from the data)"
    for was, now in zip(before, again, strict=True):
        if any(getattr(was, part) != getattr(now, part) for part in _PLACE):
            return f"place `{was.name}`"
        for name in _NUMBERS:
            if not same(getattr(was, name), getattr(now, name)):
                return f"{name} of `{was.name}`"
        if (was.state == "ok") != (now.state == "ok"):
            return f"state of `{was.name}`"
    return None


FIGURE = Kind(
    "figure", "figure", figure_extent, check_figure, lambda folder: [picture(read_figure(folder))]
)
"""A figure with the values of single prompts its points follow from."""
