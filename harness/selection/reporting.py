"""What the store holds of a table, a figure or several tables, in every form it is shown in.

And the paper's claims, each judged by that or by what is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from harness import project
from harness.errors import UserError
from harness.pipeline.runs import FigureRuns, TableRuns, Work, plan_figure, runnable
from harness.project import store_dir, work_dir
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
from harness.report import asked
from harness.report.claims import all_verdicts
from harness.report.model import STATES, Cell, Verdict
from harness.report.rows import Reader
from harness.report.view import row_names, seeds_text
from harness.runtime import Store
from harness.selection.names import DEFAULT_SEEDS, Format, format_of, seeds_of
from harness.words import counted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from harness.report.answer import Answer
    from harness.report.build import StoredTable
    from harness.report.figures.report import FigureReport
    from harness.report.model import Report
    from harness.report.view import Block
    from harness.runtime import RunOutcome


@dataclass(frozen=True, repr=False)
class Reports:
    """What the store holds of what was selected: a report for each table, or that of a figure.

    Attributes:
        tables: The reports of tables; none where a figure was selected.
        figure: The report of a figure, where one was selected.
        left_out: Tables of a group that are not shown, each with the reasons.
        outcome: What became of the stages that were just run; None where nothing was.
        page: Makes the HTML page of the tables.
    """

    tables: tuple[Report, ...] = ()
    figure: FigureReport | None = None
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outcome: RunOutcome | None = None
    page: Callable[[], str] | None = None

    @property
    def failed(self) -> Mapping[str, str]:
        """The stages that just failed, with the reasons."""
        failed = {} if self.outcome is None else self.outcome.failed
        return {stage.title: reason for stage, reason in failed.items()}

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a data frame: a line for each cell, or point of a figure.

        The columns are those of `harness report --json`; of cells also the row's label, and the
        benchmark and the unit of the column. What there is not is missing.
        """
        import pandas as pd

        if self.figure is not None:
            return pd.DataFrame([point.model_dump() for point in self.figure.points])
        lines = []
        for report in self.tables:
            names = row_names(report)
            for cell in report.cells:
                column = report.table.column(cell.column)
                said = {"label": names[cell.row], "benchmark": column.benchmark}
                lines.append(cell.as_json() | said | {"unit": column.unit})
        return pd.DataFrame(lines)

    @property
    def answer(self) -> Answer | None:
        """What was asked, what was seen and how sure that is; None of a figure."""
        from harness.report.answer import answer_to

        if not self.tables:
            return None
        first, *others = self.tables
        if not others:
            return answer_to(self.tables, first.verdicts)
        return answer_to(self.tables, all_verdicts(self.tables, figure_claims(), first.scale))

    def text(self, form: Format | str = Format.terminal, *, full: bool = True) -> str:
        """Return the reports as one text.

        Args:
            form: The format: `terminal`, `markdown`, `json`, `csv`, `latex` or `html`.
            full: As plain text, also all columns, where prompts lie, and assumptions.

        Raises:
            UserError: There is no such format, or not of this.
        """
        from harness.report import render

        form = format_of(form)
        if self.figure is not None:
            return self._figure_text(self.figure, form)
        if form is Format.html:
            assert self.page is not None
            return self.page()
        if form is Format.json:
            return render.as_json([cell for report in self.tables for cell in report.cells])
        if form is Format.csv:
            return render.as_csv(self.tables)
        if form is Format.latex:
            return render.as_latex(self.tables)
        if form is Format.markdown:
            return "\n".join(map(render.as_markdown, self.tables))
        return "\n".join(render.as_text(report, full=full) for report in self.tables)

    def _figure_text(self, report: FigureReport, form: Format) -> str:
        from harness.report.figures.report import as_markdown

        if form not in (Format.terminal, Format.markdown, Format.json):
            raise UserError(f"a figure is written as terminal, markdown or json, not as {form}")
        return report.json_text() if form is Format.json else as_markdown(report)

    def save(self, path: str | Path) -> Path:
        """Write the reports to a file whose ending says the format, and return its path.

        Endings are `.txt`, `.md`, `.json`, `.csv`, `.tex` and `.html`.

        Raises:
            UserError: It has another ending, or is not of a format that this has.
        """
        from harness.runtime.files import write_whole

        path = Path(path)
        if path.suffix not in ENDINGS:
            raise UserError(f"`{path}` has no ending of a report; it can be {', '.join(ENDINGS)}")
        write_whole(path, self.text(ENDINGS[path.suffix]))
        return path

    def show(self, console: Console, *, full: bool = False) -> None:
        """Print the reports; `full` changes nothing in a figure's."""
        if self.figure is not None:
            from harness.report.figures.report import print_figure

            print_figure(self.figure, console)
        for report in self.tables:
            from harness.report.render import print_report

            print_report(report, console, full=full)

    @property
    def closing(self) -> list[tuple[str, str, str, str, str]]:
        """A line for each table: id, cells with numbers, state, gains the paper's way, title."""
        return [(t.table_id, *closing(t.cells), t.table.title) for t in self.tables]

    def __repr__(self) -> str:
        return self.text(full=False)

    def _repr_html_(self) -> str:
        """Return the reports for a notebook."""
        from harness.report import view

        if self.figure is not None:
            return _html(self.figure.heading, self.figure.facts, self.figure.blocks)
        return "".join(
            _html(view.heading(report), view.facts(report), view.blocks(report))
            for report in self.tables
        )


ENDINGS = {
    ".txt": Format.terminal,
    ".md": Format.markdown,
    ".json": Format.json,
    ".csv": Format.csv,
    ".tex": Format.latex,
    ".html": Format.html,
}
"""The format of a saved report, by the file's ending."""


def stored_tables(work: Work, store: Store, level: float | None = None) -> tuple[StoredTable, ...]:
    """Return what a store holds of the tables of some work; a figure has none.

    `level` is that at which claims are decided, 5% by default.
    """
    from harness.report.build import StoredTable
    from harness.report.scores import ALPHA

    if isinstance(work, FigureRuns):
        return ()
    reader = Reader(store)
    tables = [work] if isinstance(work, TableRuns) else work.tables
    return tuple(StoredTable(runs, reader, level or ALPHA) for runs in tables)


def page_of(
    tables: Iterable[Table],
    profile: Profile,
    seeds: Callable[[Table], Sequence[int]],
    store: Store,
) -> str:
    """Return an HTML page of tables, with the figures that they have the rows of."""
    from harness.report.page.contents import from_store
    from harness.report.page.page import as_html

    figures = all_figures().values()
    return as_html(from_store(tables, profile, seeds, Reader(store), figures))


def figure_report(runs: FigureRuns, store: Store) -> FigureReport:
    """Return the report of a figure."""
    from harness.report.figures.report import assemble_figure

    return assemble_figure(runs, store)


def closing(cells: Sequence[Cell]) -> tuple[str, str, str]:
    """Return how many of a table's cells have numbers, its state, and how its gains point.

    Gains are counted over the whole columns, as in the table's report; `-` where there are none
    to compare.
    """
    from harness.report.build import compared_signs

    states = [cell.state for cell in cells]
    whole = states.count("ok")
    others = [
        f"{states.count(state)} {state.replace('_', ' ')}"
        for state in STATES
        if state != "ok" and state in states
    ]
    compared = [summary for summary in compared_signs(cells) if summary.signs]
    agree = sum(summary.signs_agree or 0 for summary in compared)
    signs = sum(summary.signs or 0 for summary in compared)
    return (
        f"{whole} of {len(states)}",
        ", ".join(others) or "done",
        f"{agree} of {signs}" if signs else "-",
    )


def _html(title: str, facts: Iterable[tuple[str, str]], blocks: Iterable[Block]) -> str:
    """Return a report's blocks as HTML."""
    found = [f"<h3>{escape(title)}</h3>"]
    found += [f"<p><b>{escape(name)}</b> {escape(text)}</p>" for name, text in facts]
    for block in blocks:
        found.append(f"<h4>{escape(block.title)}</h4>")
        found += [f"<p>{escape(note)}</p>" for note in block.notes]
        head = "".join(f"<th>{escape(name)}</th>" for name in block.head)
        rows = (f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in block.rows)
        found.append(f"<table><tr>{head}</tr>{''.join(rows)}</table>")
    return "".join(found)


def seeds_shown(
    table: Table,
    profile: Profile,
    rows: Sequence[str] | None,
    on_note: Callable[[str], None],
) -> tuple[int, ...]:
    """Return the seeds that a report of a table, or of rows, shows when it is not told which.

    They are the most complete of those ever asked for, the default ones where none were;
    `on_note` hears of those that are left out.
    """
    found = asked.shown_seeds(work_dir(), Store(store_dir()), table, profile, rows)
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
    """Return the most complete seeds ever asked for of a figure or of a table behind it."""
    default = seeds_of(DEFAULT_SEEDS)
    names = (figure.id, *dict.fromkeys(ref.partition("/")[0] for ref in figure.rows))
    known = {s for name in names for s in asked.ever_asked(work_dir(), name, profile.name)}
    if not known:
        return default
    of_tables = {asked.recall(work_dir(), name, profile.name) for name in names[1:]} - {None}
    (agreed,) = of_tables if len(of_tables) == 1 else (None,)
    last = asked.recall(work_dir(), figure.id, profile.name) or agreed or default
    runs = plan_figure(figure, tables, profile, sorted(known))
    return asked.most_complete(runs, Store(store_dir()), last).seeds


@dataclass(frozen=True)
class Judged:
    """Verdicts on claims.

    Attributes:
        reports: The reports of the tables that they are about.
        verdicts: The verdicts.
    """

    reports: Sequence[Report]
    verdicts: Sequence[Verdict]

    @property
    def answer(self) -> Answer | None:
        """What was asked, what was seen and how sure that is; None where no table was."""
        from harness.report.answer import answer_to

        return answer_to(self.reports, self.verdicts) if self.reports else None


def judge(
    names: Sequence[str],
    profile: Profile,
    seeds: Sequence[int] | None,
    *,
    published: bool,
    on_note: Callable[[str], None],
) -> Judged:
    """Judge the claims of some tables, groups and figures, of all that are declared by default.

    A table may be the path of a file of the user's own.

    They are judged by the store, of the seeds given or the most complete ones of each table, or by
    what is published. `on_note` hears of seeds that are left out.
    """
    tables, declared = dict(all_tables()), figure_claims()
    names = _spelt_out(names)
    for i, name in enumerate(names):
        if own_file(name) is not None:
            table, _ = named_table(name)
            tables[table.id], names[i] = table, table.id
    known = [*tables, *(figure.id for figure in declared.figures)]
    for name in names:
        if name not in known:
            raise UserError(f"there is no table or figure `{name}`{nearest(name, known)}")
    wanted = set(names or known)
    # A figure's claim may be measured by claims of tables that were not asked for.
    measured_by = {
        claim
        for figure in declared.figures
        if figure.id in wanted
        for c in figure.claims
        if isinstance(c.test, Qualitative)
        for claim in c.test.measured_by or ()
    }
    judged = [
        table
        for table in tables.values()
        if table.id in wanted or any(claim.id in measured_by for claim in table.claims)
    ]
    if published:
        from harness.report.page.contents import from_results

        reports = from_results(judged, profile, project.results_dir()).reports
    else:
        reader = Reader(Store(store_dir()))
        reports = tuple(_stored(table, profile, seeds, reader, on_note) for table in judged)
    verdicts = all_verdicts(reports, declared, profile.scale)
    return Judged(
        [report for report in reports if report.table_id in wanted],
        [verdict for verdict in verdicts if verdict.table in wanted],
    )


def _spelt_out(names: Sequence[str]) -> list[str]:
    """Return names with each group's tables in its place; in that of `all`, figures as well."""
    found: list[str] = []
    for name in names:
        if name in GROUPS:
            found += [table.id for table in members(name, all_tables())]
            found += [figure.id for figure in figure_claims().figures] if name == "all" else []
        else:
            found.append(name)
    return found


def _stored(
    table: Table,
    profile: Profile,
    asked: Sequence[int] | None,
    reader: Reader,
    on_note: Callable[[str], None],
) -> Report:
    """Return what the store holds of a table, of some seeds or of the most complete ones."""
    from harness.report.build import StoredTable, without_runs

    seeds = seeds_shown(table, profile, None, on_note) if asked is None else asked
    runs, lacking = runnable(table, profile, seeds)
    if runs is None:
        return without_runs(table, profile, (), lacking[table.rows[0].id], lacking)
    return StoredTable(runs, reader).report
