"""Publishing a figure: the drawing, the numbers, and the values of single prompts behind them.

    results/<profile>/<figure>/figure.svg      the drawing
                               report.md       for people
                               report.json     the points, and the declaration they follow from
                               *.parquet       scores, rewards or topics of single prompts
                               digests.json    sha256 of the files, fingerprints of the stages

Its points are computed again from those values, without a store or a model.
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import HarnessError
from harness.report.figures.drawing import picture
from harness.report.figures.report import FigureReport, as_markdown
from harness.report.publication import Extent, Kind, changed_file, same, without_numbers

_PLACE = ("panel", "series", "at", "quantity")


def publish_figure(report: FigureReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/<figure>/` and return it.

    Raises what `harness.report.publication.Kind.publish` raises.
    """
    return FIGURE.publish(
        report,
        f"{report.profile}/{report.figure.id}",
        results_dir,
        values=report.data.write,
        stages=report.data.stages,
        allow_fewer=allow_fewer,
    )


def figure_extent(report: FigureReport) -> Extent:
    """Return how much a published figure has; its rows are the series of its panels."""
    points = report.points
    return Extent(
        rows=tuple(dict.fromkeys(" / ".join(filter(None, (p.panel, p.series))) for p in points)),
        seeds=report.seeds,
        counts={"numbers": _numbers(report)},
        lacking=without_numbers((point.name, point.state) for point in points),
    )


def _numbers(report: FigureReport) -> int:
    return sum(point.value is not None for point in report.points)


def difference(report: FigureReport, folder: Path) -> str | None:
    """Return which number does not follow from the published values, None where all do.

    Raises:
        HarnessError: There are no such values.
    """
    path = folder / report.data.file
    if not path.is_file():
        raise HarnessError(f"{path} is missing; publish the figure again")
    try:
        data = report.data.read(path)
    except (KeyError, ValueError) as error:
        raise changed_file(path, FIGURE.name) from error
    points = report.kind.points(report.figure, data)
    if len(report.points) != len(points):
        return f"number of points ({len(report.points)}, and {len(points)} follow from the data)"
    for was, now in zip(report.points, points, strict=True):
        if any(
            getattr(was, it) != getattr(now, it) for it in ("panel", "series", "at", "quantity")
        ):
            return f"place `{was.name}`"
        for name in ("value", "low", "high"):
            if not same(getattr(was, name), getattr(now, name)):
                return f"{name} of `{was.name}`"
        if (was.state == "ok") != (now.state == "ok"):
            return f"state of `{was.name}`"
    return None


FIGURE = Kind(
    "figure",
    "figure",
    FigureReport,
    figure_extent,
    page=lambda report: as_markdown(report, drawn=True),
    numbers=_numbers,
    pictures=lambda report: [picture(report)],
    values=lambda report: report.data.file,
    difference=difference,
)
"""A figure with the values of single prompts its points follow from."""
