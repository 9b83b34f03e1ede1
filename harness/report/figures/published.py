"""Figures on the terminal, as Markdown, and published with their drawing and data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UserError
from harness.registry.figures import AnyFigure, Figure
from harness.report.figures.drawing import figure_picture
from harness.report.figures.report import FigureReport, points_of
from harness.report.plots import Picture
from harness.report.publication import IndexEntry, Publication, read_digests, without_numbers
from harness.report.render import block_lines, markdown, names_and_texts, print_parts

if TYPE_CHECKING:
    from rich.console import Console


def figure_markdown(report: FigureReport, drawn: Picture | None = None) -> str:
    return markdown(report.heading, report.facts, report.blocks, drawn)


def print_figure(report: FigureReport, console: Console) -> None:
    from rich.text import Text

    head = [Text(report.heading, style="bold"), names_and_texts(report.facts)]
    print_parts([*head, *block_lines(report.blocks)], console)


def publish_figure(report: FigureReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    return FIGURE.publish(
        report,
        figure_markdown(report, figure_picture(report)),
        f"{report.profile}/{report.figure.id}",
        results_dir,
        lambda folder: report.data.write(folder / report.data.file),
        stages=report.data.stages,
        allow_fewer=allow_fewer,
    )


def published_figure(figure: Figure, folder: Path) -> FigureReport:
    """Return a figure's published numbers, worded and drawn as it is declared now."""
    if not folder.is_dir():
        raise UserError(
            f"`{figure.id}` is not published for the profile `{folder.parent.name}`; without "
            "`--published`, the report shows what the store has"
        )
    report = FIGURE.check(folder)
    if report.figure.rows != figure.rows:
        raise HarnessError(f"{folder} was published with other rows; publish the figure again")
    data = report.data.read(folder / report.data.file)
    data = data.model_copy(update={"stages": read_digests(folder, "figure").stages or {}})
    assert isinstance(figure, AnyFigure)
    return report.model_copy(update={"figure": figure, "data": data})


def figure_extent(report: FigureReport) -> IndexEntry:
    """Return a published figure's index entry; its rows are the series of its panels."""
    points = report.points
    return IndexEntry(
        rows=tuple(dict.fromkeys(" / ".join(filter(None, (p.panel, p.series))) for p in points)),
        seeds=report.seeds,
        counts={"numbers": sum(point.value is not None for point in points)},
        lacking=without_numbers((point.name, point.state) for point in points),
    )


def recomputed(report: FigureReport, folder: Path) -> FigureReport:
    data = report.data.read(folder / report.data.file)
    shown = points_of(report.figure, data, report.points)
    return report.model_copy(update={"points": tuple(shown)})


FIGURE = Publication(
    "figure",
    FigureReport,
    figure_extent,
    recomputed,
    pictures=lambda report: [figure_picture(report)],
    values=lambda report: report.data.file,
    words=True,
)
"""A figure, published with the per-prompt values that its points are computed from."""
