"""Reports from the store on tables or a figure, in every output format.

Also verdicts on the paper's claims, from the store or from published results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import project
from harness.errors import UserError
from harness.pipeline.runs import ShownSeeds, shown_of
from harness.project import store_dir
from harness.registry.claims import figure_claims
from harness.registry.declared import (
    GROUPS,
    all_figures,
    all_tables,
    members,
    named_table,
    own_file,
)
from harness.registry.documents import find, nearest
from harness.registry.profile import Profile, table_at
from harness.registry.schema import Table
from harness.report import render
from harness.report.answer import Answer, answer_to
from harness.report.build import published_tables, results_of, stored_results
from harness.report.claims import all_verdicts, judged_by
from harness.report.controls import KnownControls
from harness.report.figures.published import (
    drawn_figures,
    figure_markdown,
    print_figure,
    published_pictures,
)
from harness.report.figures.report import FigureReport, assemble_figure
from harness.report.json_text import json_text
from harness.report.model import Verdict
from harness.report.page.page import as_html
from harness.report.plots import Picture
from harness.report.results import Results
from harness.report.view import row_names
from harness.runtime import RunOutcome, Store
from harness.runtime.files import write_whole
from harness.selection.names import DEFAULT_SEEDS, Format, seeds_of
from harness.selection.request import Request
from harness.words import Say, counted, seeds_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

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
    """Results of some tables, or a figure's report.

    Attributes:
        tables: The tables' results; empty if a figure was selected.
        figure: The figure's report, if one was selected.
        outcome: Outcome of the stages that were just run, or None.
        judged: Verdicts on the claims requested; None if none were in particular.
        published: Whether they are the published ones, not the store's.
    """

    tables: tuple[Results, ...] = ()
    figure: FigureReport | None = None
    outcome: RunOutcome | None = None
    judged: Sequence[Verdict] | None = None
    published: bool = False

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
        if not self.tables:
            return None
        verdicts, (first, *others) = self.judged, self.tables
        if verdicts is None and others:
            figures = judged_by(self.tables, figure_claims())
            verdicts = all_verdicts(self.tables, figures, first.profile)
        return answer_to(self.tables, first.verdicts if verdicts is None else verdicts)

    @property
    def facts(self) -> list[dict[str, object]]:
        """What the stages of each table's rows record besides scores, as plain data."""
        return [{"table": it.table.id, **own.as_json()} for it in self.tables for own in it.facts]

    @property
    def pictures(self) -> list[Picture]:
        """The pictures that belong to none of the tables: figures drawn from their rows."""
        if not self.tables:
            return []
        profile = self.tables[0].profile
        if self.published:
            names = {it.table.id for it in self.tables}
            return list(published_pictures(project.publishing_dir() / profile.name, names))
        return list(drawn_figures(all_figures().values(), self.tables, Store(store_dir())))

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a data frame with one row per cell, or per point of a figure.

        Columns are those of `harness report --json`; cells also get the row's label, the unit, and
        the benchmark they were measured on, or the name of its stand-in. Absent values are missing.
        """
        import pandas as pd

        if self.figure is not None:
            return pd.DataFrame([point.model_dump() for point in self.figure.points])
        lines = []
        for found in self.tables:
            names = row_names(found.report)
            for cell in found.report.cells:
                column = found.table.column(cell.column)
                said = {"label": names[cell.row], "benchmark": found.profile.called(column)}
                lines.append(cell.as_json() | said | {"unit": column.unit})
        return pd.DataFrame(lines)

    @property
    def data(self) -> Any:
        """The numbers as plain data: a list of cells, or a figure's report."""
        if self.figure is not None:
            return self.figure.model_dump(mode="json")
        return [cell.as_json() for it in self.tables for cell in it.report.cells]

    def text(self, form: Format | str = Format.terminal, *, full: bool = True) -> str:
        """Render the reports as text."""
        form = find("format", Format.__members__, form)
        if form is Format.json:
            return json_text(self.data, self.answer, self.facts)
        if self.figure is not None:
            if form is Format.html:
                raise UserError(f"a figure is written as terminal, markdown or json, not as {form}")
            return figure_markdown(self.figure)
        if form is Format.html:
            return as_html(self.tables, self.pictures)
        if form is Format.markdown:
            return "\n".join(map(render.as_markdown, self.tables))
        return "\n".join(render.as_text(it, full=full) for it in self.tables)

    def save(self, path: str | Path) -> Path:
        """Write the reports to a file in the format of its suffix, and return its path."""
        path = Path(path)
        write_whole(path, self.text(format_by_ending(path)))
        return path

    def show(self, console: Console, *, full: bool = False) -> None:
        """Print the reports; `full` has no effect on a figure."""
        if self.figure is not None:
            print_figure(self.figure, console)
        for results in self.tables:
            render.print_report(results, console, full=full)


def run_reports(request: Request, outcome: RunOutcome | None) -> Reports:
    """Return the reports of what was just run."""
    if request.figure_runs is not None:
        figure = assemble_figure(request.figure_runs, request.store)
        return Reports(figure=figure, outcome=outcome)
    known = KnownControls(request.profile, request.store)
    tables = tuple(stored_results(runs, known) for runs in request.parts)
    return Reports(tables, outcome=outcome)


def table_seeds(
    table: Table, profile: Profile, store: Store, rows: Sequence[str] | None, on_note: Say
) -> tuple[int, ...]:
    """Return the default seeds for a report of a table, or of some of its rows."""
    return seeds_shown(table.id, shown_of(table, profile, store, rows), on_note)


def seeds_shown(name: str, found: ShownSeeds | None, on_note: Say) -> tuple[int, ...]:
    """Return the seeds that a report shows, and note which others the store has."""
    if found is None:
        return seeds_of(DEFAULT_SEEDS)
    if found.left_out:
        others = ", ".join(f"{seed} ({number})" for seed, number in found.left_out.items())
        on_note(
            f"{name}: shown are the most complete seeds, {seeds_text(found.seeds)}, with "
            f"{found.whole} of {counted(found.runs, 'run')} done; left out, with how many are "
            f"done: {others}; `--seeds` names others"
        )
    return found.seeds


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
        elif name not in (known := [*tables, *all_figures(), *(it.id for it in declared.figures)]):
            raise UserError(f"there is no table or figure `{name}`{nearest(name, known)}")
        else:
            wanted.add(name)
    figures = [figure for figure in declared.figures if figure.id in wanted]
    # A figure's claim may be measured by claims of tables that were not requested.
    tests = [claim.test for figure in figures for claim in figure.claims]
    measured = {name for test in tests for name in getattr(test, "measured_by", None) or ()}
    places = wanted | {figure.table for figure in figures}
    needed = [table_at(it, profile) for it in tables.values()
              if it.id in places or any(claim.id in measured for claim in it.claims)]  # fmt: skip
    if published:
        found = published_tables(needed, profile, project.publishing_dir())
    else:
        store = Store(store_dir())
        controls = KnownControls(profile, store)
        found = tuple(
            results_of(it, seeds or table_seeds(it, profile, store, None, on_note), controls)
            for it in needed
        )
    return Reports(
        tuple(it for it in found if it.table.id in wanted),
        judged=[it for it in all_verdicts(found, declared, profile) if it.place in wanted],
        published=published,
    )
