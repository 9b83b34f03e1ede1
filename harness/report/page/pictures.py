"""The figures on a page: drawn anew from a store, or as they are published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.pipeline.runs import plan_figure
from harness.registry.declared import all_tables, natural
from harness.registry.figures import Figure
from harness.report.figures.drawing import figure_picture
from harness.report.figures.published import FIGURE
from harness.report.figures.report import assemble_figure
from harness.report.plots import Picture
from harness.report.publication import read_index
from harness.report.results import Results
from harness.runtime import Store


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
