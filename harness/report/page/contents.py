"""The contents of the page, gathered from a store or from published results.

From a store, every picture is drawn anew; from published results, the published files are embedded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from harness.registry.claims import figure_claims
from harness.registry.declared import all_figures, natural
from harness.registry.figures import Figure
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import Table
from harness.report.build import StoredTable, with_all_rows, without_runs
from harness.report.claims import all_verdicts
from harness.report.controls import KnownControls
from harness.report.figures.drawing import figure_picture
from harness.report.figures.report import assemble_figure
from harness.report.model import Report, Verdict
from harness.report.page.examples import FILE, Examples, examples_of, first_of, read_examples
from harness.report.plots import Picture
from harness.report.publication import ARCHIVED, read_digests, read_index
from harness.report.publish import (
    NOT_PUBLISHED,
    OF_STUDY,
    TABLE,
    published_report,
    stages_behind,
)
from harness.report.render import pictures
from harness.report.rows import StoreReader
from harness.report.verify import KINDS
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns


SHORT = 12
"""Number of fingerprint digits shown, enough to find the folder."""


@dataclass
class RunTrace:
    """One recipe at a profile, with all its seeds; `serves` has its rows as `table/row`."""

    run: str
    serves: dict[str, None] = field(default_factory=dict)
    policies: tuple[str, ...] = ()
    reward_models: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()
    judges: dict[str, str] = field(default_factory=dict)
    seeds: dict[int, dict[str, str]] = field(default_factory=dict)
    """Shortened fingerprints of each seed's judge and training stages, by name."""

    @property
    def stages(self) -> list[str]:
        return list(dict.fromkeys(name for seed in self.seeds.values() for name in seed))


Traces = dict[str, RunTrace]
"""Traces by run id."""


@dataclass(frozen=True)
class Contents:
    """Everything on the page, from a store or from published results.

    The reports have every declared row; `table_pictures` are theirs, by table, and `pictures`
    belong to no table. Examples are None if none are published.
    """

    profile: Profile
    source: Literal["store", "results"]
    reports: tuple[Report, ...]
    table_pictures: Mapping[str, Sequence[Picture]]
    pictures: tuple[Picture, ...]
    examples: Examples | None
    traces: Traces

    @cached_property
    def verdicts(self) -> Sequence[Verdict]:
        """The verdicts of tables and figures."""
        return all_verdicts(self.reports, figure_claims(), self.profile)


def from_store(
    tables: Iterable[Table],
    profile: Profile,
    seeds: Callable[[Table], Sequence[int]],
    reader: StoreReader,
    figures: Iterable[Figure] = (),
    known: Mapping[str, StoredTable] | None = None,
) -> Contents:
    """Gather the page's contents for some tables, each with its root seeds, from a store.

    A figure is drawn if all its tables are on the page and the store has any of its numbers, with
    the seeds that the tables share. `known` has tables that were already read, by id.
    """
    from harness.pipeline.runs import runnable

    store, traces = reader.store, Traces()
    planned: list[TableRuns] = []
    reports, table_pictures = list[Report](), dict[str, Sequence[Picture]]()
    shown: dict[str, tuple[Table, Sequence[int]]] = {}
    for table in tables:
        own = seeds(table)
        shown[table.id] = table, own
        runs, lacking = runnable(table, profile, own)
        if runs is None:
            reason = lacking[table.rows[0].id]
            reports.append(without_runs(table, profile, own, reason, lacking))
            continue
        planned.append(runs)
        stored = (known or {}).get(table.id) or StoredTable(runs, reader)
        report = stored.report_with_costs
        reports.append(with_all_rows(report))
        table_pictures[table.id] = [
            replace(it, origin="drawn from the store") for it in pictures(report)
        ]
        trace(report, stages_behind(runs, store), traces)
    drawn = tuple(_drawn_figures(figures, shown, profile, store))
    found = first_of(examples_of(runs, store) for runs in planned)
    return Contents(profile, "store", tuple(reports), table_pictures, drawn, found, traces)


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
    folder, traces = results_dir / profile.name, Traces()
    known = KnownControls(profile, None, results_dir)
    reports, table_pictures = list[Report](), dict[str, Sequence[Picture]]()
    examples: list[Examples] = []
    for table in tables:
        place = folder / table.id
        if not place.is_dir():
            absent = {row.id: NOT_PUBLISHED for row in table.rows}
            reason = f"`{table.id}` is {NOT_PUBLISHED}"
            reports.append(without_runs(table, profile, (), reason, absent))
            continue
        report = published_report(table, place, known)
        trace(report, read_digests(place).stages or {}, traces)
        reports.append(with_all_rows(report))
        table_pictures[table.id] = list(_beside(place, pictures(report)))
        own = read_examples(place / FILE)
        examples += [] if own is None else [own]
    others = tuple(published_pictures(folder, {report.table_id for report in reports}))
    found = first_of(examples) if examples else None
    return Contents(profile, "results", tuple(reports), table_pictures, others, found, traces)


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


# --- Provenance of the numbers, by run ---


def trace(report: Report, stages: Mapping[str, Mapping[str, str]], traces: Traces) -> None:
    """Add the runs behind a table to `traces`, with the stages behind each."""
    for row in report.rows:
        for name in row.runs.values():
            traces.setdefault(name, RunTrace(name)).serves[f"{report.table_id}/{row.id}"] = None
    for name, own in stages.items():
        if name == OF_STUDY:
            continue
        run_id, _, seed = name.split("/")
        found, number = traces[run_id], int(seed.removeprefix("seed"))
        found.policies = tuple(dict.fromkeys([*found.policies, *report.origin.policies]))
        short = {what: fingerprint[:SHORT] for what, fingerprint in own.items()}
        found.seeds.setdefault(number, {}).update(short)
    for cell in report.cells:
        found = traces[report.run_of(cell.row, cell.column)]
        found.reward_models, found.creators = cell.reward_models, cell.creators
        benchmark = benchmark_of(report.profile, report.score_of(cell.column))
        if benchmark is not None and cell.judge is not None:
            found.judges[benchmark] = cell.judge
