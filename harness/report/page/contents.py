"""The contents of the page, gathered from a store or from published results.

From a store, every picture is drawn anew; from published results, the published files are embedded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

from harness.registry.claims import figure_claims
from harness.registry.declared import all_figures, natural
from harness.registry.figures import Figure
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report.build import (
    NOT_PUBLISHED,
    published_results,
    stored_results,
    with_all_rows,
    without_runs,
)
from harness.report.claims import all_verdicts
from harness.report.controls import KnownControls
from harness.report.figures.drawing import figure_picture
from harness.report.figures.report import assemble_figure
from harness.report.league import league_pictures
from harness.report.model import Verdict
from harness.report.page.examples import FILE, Examples, examples_of, first_of, read_examples
from harness.report.plots import Picture
from harness.report.publication import ARCHIVED, read_index
from harness.report.publish import TABLE
from harness.report.results import Results
from harness.report.verify import KINDS
from harness.runtime import Store


@dataclass(frozen=True)
class Contents:
    """Everything on the page, from a store or from published results.

    The tables have every declared row; `table_pictures` are their own, and `pictures` belong to no
    table. Examples are None if none are published.
    """

    profile: Profile
    source: Literal["store", "results"]
    tables: tuple[Results, ...]
    table_pictures: Mapping[str, Sequence[Picture]]
    pictures: tuple[Picture, ...]
    examples: Examples | None

    @cached_property
    def verdicts(self) -> Sequence[Verdict]:
        """The verdicts of tables and figures."""
        return all_verdicts(self.tables, figure_claims(), self.profile)


def from_store(
    tables: Iterable[Table],
    profile: Profile,
    seeds: Callable[[Table], Sequence[int]],
    known: KnownControls,
    figures: Iterable[Figure] = (),
) -> Contents:
    """Gather the page's contents for some tables, each with its root seeds, from a store.

    A figure is drawn if all its tables are on the page and the store has any of its numbers, with
    the seeds that the tables share.
    """
    from harness.pipeline.runs import runnable

    store = known.store
    assert store is not None
    found: list[Results] = []
    table_pictures = dict[str, Sequence[Picture]]()
    shown: dict[str, tuple[Table, Sequence[int]]] = {}
    for table in tables:
        own = seeds(table)
        shown[table.id] = table, own
        runs, lacking = runnable(table, profile, own)
        if runs is None:
            reason = lacking[table.rows[0].id]
            found.append(without_runs(table, profile, own, reason, lacking))
            continue
        found.append(with_all_rows(stored_results(runs, known)))
        drawn = league_pictures(found[-1])
        table_pictures[table.id] = [replace(it, origin="drawn from the store") for it in drawn]
    planned = [it.runs[0] for it in found if it.runs is not None]
    pictures = tuple(_drawn_figures(figures, shown, profile, store))
    examples = first_of(examples_of(runs, store) for runs in planned)
    return Contents(profile, "store", tuple(found), table_pictures, pictures, examples)


def _drawn_figures(
    figures: Iterable[Figure],
    shown: Mapping[str, tuple[Table, Sequence[int]]],
    profile: Profile,
    store: Store,
) -> Iterator[Picture]:
    """Yield the figures for which the store has any numbers, drawn from it."""
    from harness.pipeline.runs import plan_figure

    tables = {name: table for name, (table, _) in shown.items()}
    for figure in sorted(figures, key=lambda it: natural(it.id)):
        names = {ref.partition("/")[0] for ref in figure.rows}
        if not names <= shown.keys():
            continue
        seeds = set.intersection(*({*shown[name][1]} for name in names))
        runs = plan_figure(figure, tables, profile, sorted(seeds)) if seeds else None
        if runs is not None and runs.runs:
            report = assemble_figure(runs, store)
            if any(point.value is not None for point in report.points):
                yield replace(
                    figure_picture(report), origin=f"drawn from the store, {report.seed_count}"
                )


def from_results(tables: Iterable[Table], profile: Profile, results_dir: Path) -> Contents:
    """Gather the page's contents for some tables from published results, without a store or model.

    Numbers are those of the published reports; verdicts are computed from the published scores.
    What is not published, such as prompts of real data sets, is missing, and the page says so.
    """
    folder, known = results_dir / profile.name, KnownControls(profile, None, results_dir)
    found: list[Results] = []
    table_pictures = dict[str, Sequence[Picture]]()
    examples: list[Examples] = []
    for table in tables:
        place = folder / table.id
        if not place.is_dir():
            absent = {row.id: NOT_PUBLISHED for row in table.rows}
            reason = f"`{table.id}` is {NOT_PUBLISHED}"
            found.append(without_runs(table, profile, (), reason, absent))
            continue
        published = published_results(table, place, known)
        found.append(with_all_rows(published))
        table_pictures[table.id] = list(_beside(place, league_pictures(published)))
        own = read_examples(place / FILE)
        examples += [] if own is None else [own]
    others = tuple(published_pictures(folder, {it.table.id for it in found}))
    first = first_of(examples) if examples else None
    return Contents(profile, "results", tuple(found), table_pictures, others, first)


def published_pictures(profile_results: Path, tables: Collection[str]) -> Iterator[Picture]:
    """Yield a profile's published pictures that belong to no table, in order of their folders.

    A figure's picture needs the tables that its rows are from; other pictures need all published
    tables.
    """
    places = read_index(profile_results.parent)
    folders = {
        profile_results / name: KINDS[entry.kind]
        for place, entry in places.items()
        for profile, _, name in [place.partition("/")]
        if profile == profile_results.name and "/" not in name and entry.kind != ARCHIVED
    }
    published = {folder.name for folder, kind in folders.items() if kind is TABLE}
    figures = all_figures()
    for folder in sorted(folders, key=lambda path: natural(path.name)):
        kind = folders[folder]
        if folder.name in figures:
            needed = {row.partition("/")[0] for row in figures[folder.name].rows}
        else:
            needed = published
        if kind is not TABLE and needed <= {*tables}:
            yield from _beside(folder, kind.pictures(kind.read(folder)))


def _beside(folder: Path, known: Iterable[Picture]) -> Iterator[Picture]:
    origin = f"published in results/{folder.parent.name}/{folder.name}"
    for found in known:
        path = folder / found.file
        if path.is_file():
            copied = functools.partial(_copied, path.read_bytes())
            yield replace(found, draw=copied, origin=f"{origin}/{found.file}")


def _copied(svg: bytes, target: BinaryIO) -> None:
    target.write(svg)
