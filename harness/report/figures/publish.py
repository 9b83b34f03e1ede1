"""Publishing a figure: the drawing, the numbers, and the values of single prompts behind them.

    results/<profile>/<figure>/figure.svg      the drawing
                               report.md       for people
                               report.json     the points, and the declaration they follow from
                               *.parquet       scores, rewards or topics of single prompts
                               digests.json    sha256 of the files, fingerprints of the stages

`check_figure` reads it back and computes the points again, without a store or a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.registry.figures import figure_from_json
from harness.report.figures.kinds import KINDS
from harness.report.figures.page import as_markdown
from harness.report.figures.point import Point
from harness.report.figures.report import FILE, FigureReport
from harness.report.publication import (
    PAGE,
    REPORT,
    Extent,
    Kind,
    changed_file,
    check_files,
    publish_folder,
    read_json,
    same,
    without_numbers,
)

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
        report.draw(draft / FILE)
        report.data.write(draft / report.data.FILE)
        (draft / PAGE).write_text(as_markdown(report, drawn=True), encoding="utf-8")
        (draft / REPORT).write_text(report.json_text(), encoding="utf-8")

    place, stages = f"{report.profile}/{report.figure.id}", report.data.stages
    return publish_folder(FIGURE, place, results_dir, write, stages=stages, allow_fewer=allow_fewer)


def figure_extent(report: Mapping[str, Any]) -> Extent:
    """Return how much a published figure has; its rows are the series of its panels."""
    points = report["points"]
    return Extent(
        rows=tuple(dict.fromkeys(_named(p["panel"], p["series"]) for p in points)),
        seeds=tuple(report["seeds"]),
        counts={"numbers": sum(p["value"] is not None for p in points)},
        lacking=without_numbers(
            (_named(p["panel"], p["series"], p["at"]), p["state"]) for p in points
        ),
    )


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
        raise changed_file(folder / REPORT, "figure") from error
    difference = _first_difference(before, again)
    try:
        check_files(folder, (data_file, REPORT, PAGE, FILE), "figure")
    except HarnessError as error:
        if difference is None:
            raise
        raise HarnessError(f"{error}; the first number that changes is the {difference}") from error
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
        raise changed_file(path, "figure") from error
    return kind.points(figure, data)


def _first_difference(before: list[Point], again: list[Point]) -> str | None:
    """Return which published number does not follow from the data, None where all do."""
    if len(before) != len(again):
        return f"number of points ({len(before)}, and {len(again)} follow from the data)"
    for was, now in zip(before, again, strict=True):
        place = _named(was.panel, was.series, was.at)
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


def _named(*parts: str | None) -> str:
    return " / ".join(filter(None, parts))


FIGURE = Kind("figure", "figure", figure_extent, check_figure)
"""A figure with the values of single prompts its points follow from."""
