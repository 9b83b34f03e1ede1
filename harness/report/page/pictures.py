"""The pictures on the page: drawn anew from a store, or as they are published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.pipeline.runs import plan_figure
from harness.registry.declared import all_figures, all_tables, natural
from harness.registry.figures import Figure
from harness.report.figures.drawing import figure_picture
from harness.report.figures.report import assemble_figure
from harness.report.kinds import KINDS
from harness.report.plots import Picture
from harness.report.publication import ARCHIVED, read_index
from harness.report.publish import TABLE
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
    """Yield a profile's published pictures that belong to no table.

    A figure's needs the tables that its rows are from; other pictures need all published tables.
    """
    folders = {
        profile_results / name: KINDS[entry.kind]
        for place, entry in read_index(profile_results.parent).items()
        for profile, _, name in [place.partition("/")]
        if profile == profile_results.name and "/" not in name and entry.kind != ARCHIVED
    }
    published = {folder.name for folder, kind in folders.items() if kind is TABLE}
    figures = all_figures()
    for folder in sorted(folders, key=lambda path: natural(path.name)):
        kind, needed = folders[folder], published
        if folder.name in figures:
            needed = {row.partition("/")[0] for row in figures[folder.name].rows}
        if kind is not TABLE and needed <= {*tables}:
            yield from (it.published(folder) for it in kind.pictures(kind.read(folder)))
