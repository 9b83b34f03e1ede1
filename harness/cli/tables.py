"""`list`, `show` and `validate`: declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from harness import overview
from harness.cli import common
from harness.cli.common import bold, console, emit, print_json, text_table, unbroken
from harness.registry.declared import all_profiles, is_figure, named_figure, named_table
from harness.registry.documents import RegistryError
from harness.registry.figures import Figure
from harness.registry.paper import the_paper
from harness.registry.recipe import in_short
from harness.registry.schema import Row, Table
from harness.words import counted, counted_range

FilesArgument = Annotated[
    list[str] | None,
    common.argument("FILE...", "Your own tables, profiles or sweeps.", default=False),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("list", epilog="Example: harness list --json")
def list_tables(as_json: common.JsonOption = False) -> None:
    """List the tables and figures with the profiles that can run them, and what each takes."""
    emit(overview.list_declared(), as_json, _list)


def _list(listed: dict[str, list[dict[str, Any]]]) -> Iterator[Any]:
    tables, figures = listed["tables"], listed["figures"]
    lines: list[tuple[Any, ...]] = [
        (it["id"], it["title"], f"{it['rows']} × {it['columns']}", _in_short(it["runnable"]))
        for it in tables
    ]
    yield text_table(("table", "title", "size", "runs on"), lines, right={2})
    yield ""
    lines = [(it["id"], it["title"], it["drawn"], _in_short(it["runnable"])) for it in figures]
    yield text_table(("figure", "title", "kind", "runs on"), lines)
    yield ""
    lines = [(it["id"], it["machine"], it["time"], it["dollars"], _published(it))
             for it in listed["profiles"]]  # fmt: skip
    head = ("profile", "machine", "time", "dollars", "published")
    yield text_table(head, lines, right={2, 3})
    yield "Time and dollars: table 4 with one seed; on GPUs estimates, since none was used yet."
    if not all(it["runnable"] for it in (*tables, *figures)):
        yield "\nnot yet: no profile can run it; `harness run TABLE` says what is missing."


def _published(profile: dict[str, Any]) -> str:
    if not profile["tables"]:
        return "none"
    tables = counted(profile["tables"], "table")
    return f"{tables}, {counted_range(profile['seeds'], 'seed')}"


def _in_short(able: Sequence[str]) -> str:
    return "all" if len(able) == len(all_profiles()) else ", ".join(able) or "not yet"


@app.command("show", epilog="Example: harness show table4")
def show(name: common.TableArgument, as_json: common.JsonOption = False) -> None:
    """Show what a table asks, its rows with their recipes, and what the paper prints."""
    if is_figure(name):
        emit({"figure": named_figure(name)}, as_json, lambda shown: _figure(shown["figure"]))
        return
    table, _ = named_table(name)
    emit(overview.show_table(table), as_json, lambda shown: _table(shown["table"]))


def _figure(figure: Figure) -> Iterator[Any]:
    source = figure.source
    yield bold(f"{figure.id} · {figure.title}")
    yield figure.question
    yield f"Source: {the_paper().cited}, section {source.section}, figure {source.figure}.\n"
    yield text_table(("drawn from",), [(ref,) for ref in figure.rows])
    yield from (f"Note: {note}" for note in figure.notes)


def _table(table: Table) -> Iterator[Any]:
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
        yield text_table(("row", *columns), values, right=range(1, len(columns) + 1))
    yield from (f"Note: {note}" for note in table.notes)


def _printed(row: Row, column: str) -> str:
    value = row.values.get(column)
    note = row.printed_notes.get(column)
    return ("-" if value is None else value.printed) + (f" {note}" if note else "")


@app.command("validate", epilog="Example: harness validate ./my_table.yaml")
def validate(files: FilesArgument = None, as_json: common.JsonOption = False) -> None:
    """Check all declarations and list everything that is wrong.

    Your own files, each with a table, a profile or a sweep, are checked along with them.
    """
    found = overview.validate(files or [])
    if as_json:
        print_json(found)
        raise typer.Exit(0 if found.ok else RegistryError.exit_code)
    if not found.ok:
        raise RegistryError(found.problems)
    console().print(
        f"All declarations are valid: {counted(found.tables, 'table')} with "
        f"{counted(found.runs, 'distinct run')}, {counted(found.figures, 'figure')}, "
        f"{counted(found.profiles, 'profile')}, {counted(found.sweeps, 'sweep')}."
    )
    if found.files:
        common.print_all([unbroken(f"Your own are valid too: {', '.join(found.files)}.")])
