"""`list`, `show`, `validate` and `why`: declarations, and which setting makes a stage new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import bold, console, emit, print_json, text_table, unbroken
from harness.errors import UserError
from harness.selection.names import DEFAULT_PROFILE
from harness.words import counted

if TYPE_CHECKING:
    from harness.overview import Listed, ShownFigure
    from harness.registry.schema import Row, Table
    from harness.selection.why import Cause, ExplainedStage, Explanation

FilesArgument = Annotated[
    list[str] | None,
    common.argument("FILE...", "Your own tables, profiles or sweeps.", default=False),
]
RowArgument = Annotated[
    str,
    common.argument("ROW", "A row, as `table4/eva-a_min` or `./mine.yaml/few`."),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("list", epilog="Example: harness list --json")
def list_tables(as_json: common.JsonOption = False) -> None:
    """List the tables and figures, their sizes, and the profiles that can run them."""
    from harness.overview import list_declared

    emit(list_declared(), as_json, _list)


def _list(listed: Listed) -> Iterator[Any]:
    tables = [
        (item.id, item.title, f"{item.rows} × {item.columns}", _in_short(item.runnable))
        for item in listed.tables
    ]
    figures = [
        (item.id, item.title, item.drawn, _in_short(item.runnable)) for item in listed.figures
    ]
    yield text_table(("table", "title", "rows × columns", "runs on"), tables, right="2")
    yield ""
    yield text_table(("figure", "title", "kind", "runs on"), figures)
    runnable = [*(item.runnable for item in listed.tables), *(it.runnable for it in listed.figures)]
    if not all(runnable):
        yield "\nnot yet: no profile can run it; `harness run TABLE` says what is missing."


def _in_short(able: Sequence[str]) -> str:
    from harness.registry.declared import all_profiles

    return "all" if len(able) == len(all_profiles()) else ", ".join(able) or "not yet"


@app.command("show", epilog="Example: harness show table4")
def show(name: common.TableArgument, as_json: common.JsonOption = False) -> None:
    """Show what a table asks, its rows with their recipes, and what the paper prints."""
    from harness.overview import ShownFigure, show_table
    from harness.registry.declared import all_figures, named_table
    from harness.registry.figures import find_figure
    from harness.selection.selection import is_figure

    if is_figure(name):
        figure = find_figure(all_figures(), name)
        emit(ShownFigure.model_validate({"figure": figure}), as_json, _figure)
        return
    table, _ = named_table(name)
    emit(show_table(table), as_json, lambda shown: _table(shown.table))


def _figure(shown: ShownFigure) -> Iterator[Any]:
    from harness.registry.paper import the_paper

    figure, source = shown.figure, shown.figure.source
    yield bold(f"{figure.id} · {figure.title}")
    yield figure.question
    yield f"Source: {the_paper().cited}, section {source.section}, figure {source.figure}.\n"
    yield text_table(("drawn from",), [(ref,) for ref in figure.rows])
    yield from (f"Note: {note}" for note in figure.notes)


def _table(table: Table) -> Iterator[Any]:
    from harness.registry.recipe import in_short

    yield bold(f"{table.id} · {table.title}")
    yield table.question
    yield f"Source: {table.place}.\n"
    recipes = [
        (
            row.id,
            row.label,
            row.baseline or "-",
            "\n".join(dict.fromkeys(in_short(recipe) for recipe in table.recipes(row).values())),
        )
        for row in table.rows
    ]
    yield text_table(("row", "label", "baseline", "recipe"), recipes)
    if not table.is_ours:
        columns = [f"{column.id} ({column.unit})" for column in table.columns]
        values = [
            (row.id, *(_printed(row, column.id) for column in table.columns)) for row in table.rows
        ]
        yield bold("\nThe paper's values:")
        yield text_table(("row", *columns), values, right="123456789")
    yield from (f"Note: {note}" for note in table.notes)


def _printed(row: Row, column: str) -> str:
    value = row.values.get(column)
    note = row.printed_notes.get(column)
    return ("-" if value is None else value.printed) + (f" {note}" if note else "")


@app.command("validate", epilog="Example: harness validate ./my_table.yaml")
def validate(files: FilesArgument = None, as_json: common.JsonOption = False) -> None:
    """Check all declarations and list everything that is wrong.

    Your own files, each with a table or a profile, are checked along with them.
    """
    from harness import overview
    from harness.registry.documents import RegistryError

    found = overview.validate(files or [])
    if as_json:
        print_json(found)
        raise typer.Exit(0 if found.ok else RegistryError.exit_code)
    if not found.ok:
        raise RegistryError(found.problems)
    console().print(
        f"All declarations are valid: {counted(found.tables, 'table')} of the paper with "
        f"{counted(found.paper_values, 'paper value')} and "
        f"{counted(found.runs, 'distinct run')}, {counted(found.ours.tables, 'table')} of ours "
        f"with {counted(found.ours.runs, 'further run')}, {counted(found.figures, 'figure')}, "
        f"{counted(found.figure_claims, 'claim')} outside tables, "
        f"{counted(found.profiles, 'profile')}, {counted(found.sweeps, 'sweep')}, "
        f"{counted(found.deviations, 'deviation')}; templates, prices and cost assumptions "
        "are valid too."
    )
    if found.files:
        common.print_all([unbroken(f"Your own are valid too: {', '.join(found.files)}.")])


@app.command("why", epilog="Example: harness why table4/eva-a_min")
def why(
    row: RowArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    seed: common.SeedOption = 0,
    as_json: common.JsonOption = False,
) -> None:
    """Explain which stages a row shares with others, and which setting makes the rest new.

    A stage is new if its own settings, or those of a stage before it, differ from every stage of
    the table's other rows.
    """
    from harness.selection.selection import select

    # In a file path, the last slash separates the row.
    table, slash, name = row.rpartition("/")
    if not slash or row.endswith((".yaml", ".yml")):
        raise UserError(f"`{row}` is no row of a table; write `table4/ROW` or `./mine.yaml/ROW`")
    emit(select(table, profile).why(name, seed), as_json, _explanation)


def _explanation(found: Explanation) -> Iterator[Any]:
    yield bold(f"{found.table}/{found.row} on {found.profile}, seed {found.seed}")
    yield f"Recipe: {found.recipe}."
    for run in found.runs:
        yield bold(f"\nrun {run.run}")
        lines = [
            (
                stage.label.removeprefix(f"seed {found.seed} · ").removeprefix(f"{run.run} · "),
                stage.state,
                _shared_or_new(stage),
            )
            for stage in run.stages
        ]
        yield text_table(("stage", "state", "shared, or new because"), lines)
        missing = [stage for stage in run.stages if stage.state != "done"]
        yield (
            f"\nNot in the store: {counted(len(missing), 'stage')}."
            if missing
            else "\nAll of its stages are in the store."
        )
        for stage in missing:
            if stage.failure is not None:
                yield f"'{stage.label}' failed: {stage.failure}."


def _shared_or_new(stage: ExplainedStage) -> str:
    """Return which rows share a stage, or which setting makes it new."""
    rows = stage.shared_with
    if rows:
        few = rows if len(rows) <= 3 else (*rows[:2], f"{len(rows) - 2} more")
        return f"shared: {', '.join(few)}"
    if stage.new_among_rows is None:
        return f"no other row has a stage `{stage.kind}`"
    return _because(stage.new_among_rows.causes)


def _because(causes: Iterable[Cause]) -> str:
    """Return causes as text: `select: metric a_min instead of uniform`."""
    from harness.registry.recipe import as_text

    words = []
    for cause in causes:
        here, there = as_text(cause.here), as_text(cause.there)
        words.append(f"{', '.join(cause.kinds)}: {cause.key} {here} instead of {there}")
    return "; ".join(words)
