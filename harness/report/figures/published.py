"""Figures on the terminal, as Markdown, on a page, and published with their drawing and data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UserError
from harness.pipeline.runs import plan_figure
from harness.registry.declared import all_tables, natural
from harness.registry.figures import AnyFigure, Figure
from harness.report.figures.drawing import figure_picture
from harness.report.figures.report import FigureReport, assemble_figure, points_of
from harness.report.plots import Picture
from harness.report.publication import (
    IndexEntry,
    Publication,
    read_digests,
    read_index,
    without_numbers,
)
from harness.report.render import block_lines, markdown, names_and_texts, print_parts
from harness.report.results import Results
from harness.runtime import Store

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


def drawn_figures(
    figures: Iterable[Figure], tables: Sequence[Results], store: Store
) -> Iterator[Picture]:
    """Yield the figures of which all tables are there, and any number with their shared seeds."""
    known = {it.table.id: it for it in tables if it.runs is not None}
    for figure in sorted(figures, key=lambda it: natural(it.id)):
        names = {ref.partition("/")[0] for ref in figure.rows}
        if not names <= known.keys():
            continue
        seeds = set.intersection(*({*known[name].report.seeds} for name in names))
        if not seeds:
            continue
        # As declared: a figure reads columns for which a profile may have others.
        runs = plan_figure(figure, all_tables(), tables[0].profile, sorted(seeds))
        if runs.runs:
            report = assemble_figure(runs, store)
            if any(point.value is not None for point in report.points):
                origin = f"drawn from the store, {report.seed_count}"
                yield replace(figure_picture(report), origin=origin)


def published_pictures(profile_results: Path, tables: Collection[str]) -> Iterator[Picture]:
    """Yield a profile's published figures that need no other tables than these."""
    index, profile = read_index(profile_results.parent), profile_results.name
    published = [place for place, entry in index.items() if entry.kind == FIGURE.name]
    for place in sorted(published, key=natural):
        folder = profile_results.parent / place
        if folder.parent.name != profile:
            continue
        report = FIGURE.read(folder)
        if {row.partition("/")[0] for row in report.figure.rows} <= {*tables}:
            yield figure_picture(report).published(folder)
