"""The contents of a page from what was computed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.registry.claims import figure_claims
from harness.registry.deviations import deviations
from harness.registry.figures import Figure
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report import error_rates
from harness.report.build import build_report, with_all_rows, without_runs
from harness.report.cells import build_cells
from harness.report.claims import judge_figures, judge_runs, lacking_rows
from harness.report.figures.report import assemble_figure
from harness.report.page.answers import judged_answers
from harness.report.page.contents import Contents, Section
from harness.report.page.examples import offline_lineages, online_lineage
from harness.report.page.pictures import Picture, drawn, drawn_figure
from harness.report.page.provenance import Traces, trace_store
from harness.report.rows import Costs
from harness.report.scores import read_scores
from harness.report.verdicts import judge_without
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.trainer.runs import TableRuns

Example = TypeVar("Example")

Seeds = Callable[[Table], Sequence[int]]
"""Returns the root seeds of a table."""


def from_store(
    tables: Iterable[Table],
    profile: Profile,
    seeds: Seeds,
    store: Store,
    results_dir: Path,
    figures: Iterable[Figure] = (),
) -> Contents:
    """Gather what a page says of some tables.

    Every number and picture comes from the store, but for the error rates, which are a property of
    the code that judges claims and are read from where they were published.

    Args:
        tables: The tables.
        profile: The profile.
        seeds: The seeds of each table.
        store: What was computed.
        results_dir: The folder of published results, for the error rates.
        figures: Declared figures; those are drawn of which all tables are on the page, with the
            seeds that these have in common, as far as the store holds their numbers.

    Raises:
        StoreError: A stored file is not what was written.
        HarnessError: Published error rates are broken.
    """
    costs, traces = Costs(store), Traces()
    planned: list[TableRuns] = []
    sections = []
    shown: dict[str, tuple[Table, Sequence[int]]] = {}
    for table in tables:
        own = seeds(table)
        shown[table.id] = table, own
        runs, lacking = runnable(table, profile, own)
        if runs is None:
            sections.append(_unrunnable(table, profile, own, lacking))
            continue
        planned.append(runs)
        sections.append(_section(runs, store, costs, lacking))
        trace_store(runs, store, traces)
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    folder = results_dir / profile.name
    return Contents(
        profile=profile,
        source="store",
        sections=tuple(sections),
        figure_verdicts=tuple(judge_figures(figure_claims(), verdicts, profile.scale)),
        pictures=tuple(_drawn_figures(figures, shown, profile, store)),
        error_rates=error_rates.read(folder),
        deviations=deviations(),
        lineages=_first(offline_lineages(runs, store) for runs in planned)
        + _first(online_lineage(runs, store) for runs in planned),
        judged=_first(judged_answers(runs, store, online=False) for runs in planned)
        or _first(judged_answers(runs, store, online=True) for runs in planned),
        traces=traces,
    )


def _drawn_figures(
    figures: Iterable[Figure],
    shown: Mapping[str, tuple[Table, Sequence[int]]],
    profile: Profile,
    store: Store,
) -> Iterator[Picture]:
    """Yield the figures that the store has any numbers of, drawn now."""
    from harness.trainer.runs import plan_figure

    tables = {name: table for name, (table, _) in shown.items()}
    for figure in figures:
        names = {ref.partition("/")[0] for ref in figure.rows}
        if not names <= shown.keys():
            continue
        seeds = set.intersection(*({*shown[name][1]} for name in names))
        runs = plan_figure(figure, tables, profile, sorted(seeds)) if seeds else None
        if runs is not None and runs.runs:
            report = assemble_figure(runs, store)
            if any(point.value is not None for point in report.points):
                yield drawn_figure(report)


def runnable(
    table: Table, profile: Profile, seeds: Sequence[int]
) -> tuple[TableRuns | None, dict[str, str]]:
    """Plan the rows of a table that a profile can run.

    Returns:
        Their runs, None where there is no such row; and why the other rows cannot run.
    """
    from harness.trainer.runs import plan_table

    lacking = lacking_rows(table, profile)
    rows = [row.id for row in table.rows if row.id not in lacking]
    return (plan_table(table, profile, seeds, rows) if rows else None), lacking


def _section(runs: TableRuns, store: Store, costs: Costs, lacking: dict[str, str]) -> Section:
    measured = read_scores(runs, store)
    cells = build_cells(runs, store, measured)
    report = build_report(runs, store, cells=cells, measured=measured, costs=costs)
    return Section(
        report=with_all_rows(report),
        verdicts=tuple(judge_runs(runs, store, lacking, cells, measured)),
        absent=lacking,
        pictures=tuple(drawn(report)),
    )


def _unrunnable(
    table: Table, profile: Profile, seeds: Sequence[int], lacking: dict[str, str]
) -> Section:
    reason = lacking[table.rows[0].id]
    verdicts = tuple(judge_without(table, profile.scale, reason))
    return Section(without_runs(table, profile, seeds), verdicts, lacking, ())


def _first(found: Iterable[list[Example]]) -> tuple[Example, ...]:
    """Return the examples of the first table that has any."""
    return next((tuple(examples) for examples in found if examples), ())
