"""Reports from the store on tables or a figure, in every output format.

Also verdicts on the paper's claims, from the store or from published results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness import project
from harness.errors import UserError
from harness.pipeline.runs import (
    TableRuns,
    plan_figure,
    plan_table,
    runnable,
    shown_seeds,
)
from harness.project import store_dir
from harness.registry.claims import Qualitative, figure_claims
from harness.registry.declared import (
    GROUPS,
    all_figures,
    all_tables,
    members,
    named_table,
    own_file,
)
from harness.registry.documents import nearest
from harness.registry.figures import Figure
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report.claims import all_verdicts
from harness.report.model import Verdict
from harness.report.view import row_names
from harness.runtime import Store
from harness.selection.names import DEFAULT_SEEDS, Format, Say, format_of, seeds_of
from harness.selection.request import Request
from harness.words import counted, seeds_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from harness.report.answer import Answer
    from harness.report.figures.report import FigureReport
    from harness.report.results import Results
    from harness.runtime import RunOutcome

ENDINGS = {
    ".txt": Format.terminal,
    ".md": Format.markdown,
    ".json": Format.json,
    ".html": Format.html,
}
"""The format of a saved report, by file suffix."""


def format_by_ending(path: Path) -> Format:
    """Return the format for a file, by its suffix."""
    if path.suffix not in ENDINGS:
        raise UserError(f"`{path}` has no ending of a report; it can be {', '.join(ENDINGS)}")
    return ENDINGS[path.suffix]


@dataclass(frozen=True, repr=False)
class Reports:
    """The selection's results in the store: a report per table, or a figure's.

    Attributes:
        tables: Table reports; empty if a figure was selected.
        figure: The figure's report, if one was selected.
        outcome: Outcome of the stages that were just run, or None.
        page: Makes the HTML page of the tables.
        judged: Verdicts on the claims requested; None if none were in particular.
    """

    tables: tuple[Results, ...] = ()
    figure: FigureReport | None = None
    outcome: RunOutcome | None = None
    page: Callable[[], str] | None = None
    judged: Sequence[Verdict] | None = None

    def __repr__(self) -> str:
        return self.text(full=False)

    @property
    def failed(self) -> Mapping[str, str]:
        """Stages that just failed, with reasons."""
        failed = {} if self.outcome is None else self.outcome.failed
        return {stage.title: reason for stage, reason in failed.items()}

    @property
    def answer(self) -> Answer | None:
        """What the tables say, in a few lines; None without tables."""
        from harness.report.answer import answer_to

        if not self.tables:
            return None
        verdicts, (first, *others) = self.judged, self.tables
        if verdicts is None and others:
            verdicts = all_verdicts(self.tables, figure_claims(), first.profile)
        return answer_to(self.tables, first.verdicts if verdicts is None else verdicts)

    @property
    def facts(self) -> list[dict[str, object]]:
        """What the stages of each table's rows record besides scores, as plain data."""
        return [{"table": it.table.id, **own.as_json()} for it in self.tables for own in it.facts]

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a data frame with one row per cell, or per point of a figure.

        Columns are those of `harness report --json`; cells also get the row's label and the
        column's benchmark and unit. Absent values are missing.
        """
        import pandas as pd

        if self.figure is not None:
            return pd.DataFrame([point.model_dump() for point in self.figure.points])
        lines = []
        for found in self.tables:
            names = row_names(found.report)
            for cell in found.report.cells:
                column = found.table.column(cell.column)
                said = {"label": names[cell.row], "benchmark": column.benchmark}
                lines.append(cell.as_json() | said | {"unit": column.unit})
        return pd.DataFrame(lines)

    def text(self, form: Format | str = Format.terminal, *, full: bool = True) -> str:
        """Render the reports as text."""
        from harness.report import render

        form = format_of(form)
        if self.figure is not None:
            return _figure_text(self.figure, form)
        if form is Format.html:
            assert self.page is not None
            return self.page()
        if form is Format.json:
            return render.as_json([cell for it in self.tables for cell in it.report.cells])
        if form is Format.markdown:
            return "\n".join(map(render.as_markdown, self.tables))
        return "\n".join(render.as_text(it, full=full) for it in self.tables)

    def save(self, path: str | Path) -> Path:
        """Write the reports to a file in the format of its suffix, and return its path."""
        from harness.runtime.files import write_whole

        path = Path(path)
        write_whole(path, self.text(format_by_ending(path)))
        return path

    def show(self, console: Console, *, full: bool = False) -> None:
        """Print the reports; `full` has no effect on a figure."""
        from harness.report.figures.published import print_figure
        from harness.report.render import print_report

        if self.figure is not None:
            print_figure(self.figure, console)
        for results in self.tables:
            print_report(results, console, full=full)


def _figure_text(report: FigureReport, form: Format) -> str:
    from harness.report.figures.published import figure_markdown

    if form not in (Format.terminal, Format.markdown, Format.json):
        raise UserError(f"a figure is written as terminal, markdown or json, not as {form}")
    return report.json_text() if form is Format.json else figure_markdown(report)


def stored_tables(request: Request) -> tuple[Results, ...]:
    """Return the stored results of a request's tables; empty for a figure."""
    from harness.report.build import stored_results
    from harness.report.controls import KnownControls

    known = KnownControls(request.profile, request.store)
    tables = request.parts if request.figure is None else ()
    return tuple(stored_results(runs, known) for runs in tables)


def reports_of_run(
    request: Request, stored: Sequence[Results], outcome: RunOutcome | None
) -> Reports:
    """Return the reports of what was just run."""
    figure = None
    if request.figure_runs is not None:
        from harness.report.figures.report import assemble_figure

        figure = assemble_figure(request.figure_runs, request.store)
    tables = [found.table for found in stored]
    shown = dict.fromkeys((table.id for table in tables), request.planned_seeds)
    page = lambda: page_of(tables, request.profile, shown, request.store)  # noqa: E731
    return Reports(tuple(stored), figure, outcome, page)


def page_of(
    tables: Iterable[Table], profile: Profile, seeds: Mapping[str, Sequence[int]], store: Store
) -> str:
    """Render an HTML page of tables, with the figures drawn from their rows."""
    from harness.report.build import results_of
    from harness.report.controls import KnownControls
    from harness.report.page.page import as_html
    from harness.report.page.pictures import drawn_figures

    known = KnownControls(profile, store)
    found = [results_of(table, seeds[table.id], known) for table in tables]
    return as_html(found, list(drawn_figures(all_figures().values(), found, store)))


def seeds_shown(
    table: Table, profile: Profile, rows: Sequence[str] | None, on_note: Say
) -> tuple[int, ...]:
    """Return the default seeds for a report of a table, or of some of its rows."""

    def plan(seeds: Sequence[int]) -> TableRuns | None:
        if rows is not None:
            return plan_table(table, profile, seeds, rows)
        return runnable(table, profile, seeds)[0]

    found = shown_seeds(plan, Store(store_dir()))
    if found is None:
        return seeds_of(DEFAULT_SEEDS)
    if found.left_out:
        others = ", ".join(f"{seed} ({number})" for seed, number in found.left_out.items())
        on_note(
            f"{table.id}: shown are the most complete seeds, {seeds_text(found.seeds)}, with "
            f"{found.whole} of {counted(found.runs, 'run')} done; left out, with how many are "
            f"done: {others}; `--seeds` names others"
        )
    return found.seeds


def seeds_shown_of_figure(
    figure: Figure, tables: Mapping[str, Table], profile: Profile
) -> tuple[int, ...]:
    """Return the seeds that the store has most of a figure's runs of."""
    found = shown_seeds(
        lambda seeds: plan_figure(figure, tables, profile, seeds), Store(store_dir())
    )
    return seeds_of(DEFAULT_SEEDS) if found is None else found.seeds


def judged_claims(
    names: Sequence[str],
    profile: Profile,
    seeds: Sequence[int] | None,
    *,
    published: bool,
    on_note: Say,
) -> Reports:
    """Judge the claims of tables, groups and figures; by default all that are declared.

    A table may also be a path to the user's own file. Verdicts use the store, with the given seeds
    or each table's most complete ones, or else published results; `on_note` is told about seeds
    left out.
    """
    tables, declared = dict(all_tables()), figure_claims()
    wanted: set[str] = set()
    for name in names or ["all"]:
        if name in GROUPS:
            wanted.update(table.id for table in members(name, all_tables()))
            wanted.update(figure.id for figure in declared.figures if name == "all")
        elif own_file(name) is not None:
            table, _ = named_table(name)
            tables[table.id] = table
            wanted.add(table.id)
        elif name not in (known := [*tables, *(figure.id for figure in declared.figures)]):
            raise UserError(f"there is no table or figure `{name}`{nearest(name, known)}")
        else:
            wanted.add(name)
    # A figure's claim may be measured by claims of tables that were not requested.
    measured_by = {
        claim
        for figure in declared.figures
        if figure.id in wanted
        for c in figure.claims
        if isinstance(c.test, Qualitative)
        for claim in c.test.measured_by or ()
    }
    compared = {figure.table for figure in declared.figures if figure.id in wanted}
    needed = [
        table
        for table in tables.values()
        if table.id in wanted | compared or any(it.id in measured_by for it in table.claims)
    ]
    from harness.report.build import published_tables, results_of
    from harness.report.controls import KnownControls

    if published:
        found = published_tables(needed, profile, project.publishing_dir())
    else:
        controls, shown = KnownControls(profile, Store(store_dir())), seeds
        found = tuple(
            results_of(it, shown or seeds_shown(it, profile, None, on_note), controls)
            for it in needed
        )
    verdicts = all_verdicts(found, declared, profile)
    return Reports(
        tuple(it for it in found if it.table.id in wanted),
        judged=[verdict for verdict in verdicts if verdict.place in wanted],
    )
