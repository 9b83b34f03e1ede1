"""The contents of a page from what is published alone: no store, no model.

Prompts, answers and what offline rows cost are not published, and the page says so. The numbers
are those of the published reports, and verdicts are computed from the published scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.registry.claims import figure_claims
from harness.registry.deviations import deviations
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report import error_rates
from harness.report.build import with_all_rows, without_runs
from harness.report.claims import judge_figures, judge_published
from harness.report.page.contents import Contents, Section
from harness.report.page.pictures import beside, published
from harness.report.page.provenance import Traces, trace_published
from harness.report.publish import read_published
from harness.report.verdicts import judge_without

NOT_PUBLISHED = "not published at this profile"


def from_results(tables: Iterable[Table], profile: Profile, results_dir: Path) -> Contents:
    """Gather what a page says of some tables.

    Args:
        tables: The tables.
        profile: The profile.
        results_dir: The folder of published results.

    Raises:
        HarnessError: Something published is not what was published, or is broken.
    """
    folder = results_dir / profile.name
    traces = Traces()
    sections = [_section(table, profile, folder / table.id, traces) for table in tables]
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    return Contents(
        profile=profile,
        source="results",
        sections=tuple(sections),
        figure_verdicts=tuple(judge_figures(figure_claims(), verdicts, profile.scale)),
        pictures=tuple(published(folder)),
        error_rates=error_rates.read(folder),
        deviations=deviations(),
        lineages=None,
        judged=None,
        traces=traces,
    )


def _section(table: Table, profile: Profile, folder: Path, traces: Traces) -> Section:
    if not folder.is_dir():
        verdicts = tuple(judge_without(table, profile.scale, f"`{table.id}` is {NOT_PUBLISHED}"))
        absent = {row.id: NOT_PUBLISHED for row in table.rows}
        return Section(without_runs(table, profile, ()), verdicts, absent, ())
    found = read_published(folder)
    trace_published(found, profile, traces)
    report = found.report.beside(table, profile)
    shown = {row.id for row in report.rows}
    return Section(
        report=with_all_rows(report),
        verdicts=tuple(judge_published(table, found)),
        absent={row.id: NOT_PUBLISHED for row in table.rows if row.id not in shown},
        pictures=tuple(beside(folder)),
    )
