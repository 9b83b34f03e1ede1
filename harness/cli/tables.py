"""`list`, `show` and `validate`: what is declared, read without touching the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import common
from harness.cli.common import Grid, console, print_json
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.overview import Listed
    from harness.registry.figures import Figure
    from harness.registry.schema import Row, Table

FilesArgument = Annotated[
    list[str] | None, common.argument("FILE...", "Tables or profiles of one's own.", default=False)
]

app = typer.Typer(rich_markup_mode=None)


@app.command("list", epilog="Example: harness list --json")
def list_tables(as_json: common.JsonOption = False) -> None:
    """List the tables and figures, their sizes, and the profiles that can run them now."""
    from harness.overview import list_declared

    listed = list_declared()
    print_json(listed) if as_json else _print_list(listed)


def _print_list(listed: Listed) -> None:
    from harness.registry.declared import all_figures, all_profiles, all_tables

    profiles = all_profiles()
    tables = [
        (item.id, all_tables()[item.id].title, f"{item.rows} × {item.columns}",
         profiles_in_short(dict.fromkeys(item.runnable, 1), 1, profiles))
        for item in listed.tables
    ]  # fmt: skip
    figures = [
        (item.id, all_figures()[item.id].title, item.drawn,
         profiles_in_short(item.rows_runnable, item.rows, profiles))
        for item in listed.figures
    ]  # fmt: skip
    out = console()
    out.print(Grid(("table", "title", "rows × columns", "runs on"), tables, right="2"))
    if figures:
        out.print()
        out.print(Grid(("figure", "title", "kind", "runs on"), figures))
    runnable = [item.runnable for item in listed.tables] + [f.runnable for f in listed.figures]
    if not all(runnable):
        out.print("\nnot yet: no profile can run it; `harness run TABLE` says what is missing.")


def profiles_in_short(can: Mapping[str, int], whole: int, profiles: Collection[str]) -> str:
    """Return in few words which profiles can run something: `all`, `all but NAME`, or their names.

    `can` has how many of its rows each profile can run, `whole` how many there are.
    """
    part = {n: f" ({rows} of {whole} rows)" for n, rows in can.items() if 0 < rows < whole}
    lacking = [name for name in profiles if can.get(name, 0) < whole]
    if not lacking:
        return "all"
    if len(lacking) == 1 and len(profiles) > 2:
        return f"all but {lacking[0]}{part.get(lacking[0], '')}"
    named = (f"{name}{part.get(name, '')}" for name in profiles if can.get(name))
    return ", ".join(named) or "not yet"


@app.command("show", epilog="Example: harness show table4")
def show(name: common.TableArgument, as_json: common.JsonOption = False) -> None:
    """Show what a table asks, its rows with their recipes, and what the paper prints."""
    from harness.overview import ShownFigure, show_table
    from harness.registry.declared import all_figures, named_table
    from harness.registry.figures import find_figure
    from harness.selection.selection import is_figure

    if is_figure(name):
        figure = find_figure(all_figures(), name)
        shown = ShownFigure.model_validate({"figure": figure})
        print_json(shown) if as_json else _print_figure(figure)
        return
    table, _ = named_table(name)
    print_json(show_table(table)) if as_json else _print_table(table)


def _print_figure(figure: Figure) -> None:
    from harness.registry.paper import the_paper

    out, source = console(), figure.source
    out.print(f"{figure.id} · {figure.title}", style="bold")
    out.print(figure.question)
    out.print(f"Source: {the_paper().cited}, section {source.section}, figure {source.figure}.\n")
    out.print(Grid(("drawn from",), [(ref,) for ref in figure.rows]))
    for note in figure.notes:
        out.print(f"Note: {note}")


def _print_table(table: Table) -> None:
    from harness.registry.recipe import in_short

    out = console()
    out.print(f"{table.id} · {table.title}", style="bold")
    out.print(table.question)
    out.print(f"Source: {table.place}.\n")
    recipes = [
        (
            row.id,
            row.label,
            row.baseline or "-",
            "\n".join(dict.fromkeys(in_short(recipe) for recipe in table.recipes(row).values())),
        )
        for row in table.rows
    ]
    out.print(Grid(("row", "label", "baseline", "recipe"), recipes))
    if not table.is_ours:
        _print_values(out, table)
    for note in table.notes:
        out.print(f"Note: {note}")


def _print_values(out: Console, table: Table) -> None:
    out.print("\nThe paper's values:", style="bold")
    columns = [f"{column.id} ({column.unit})" for column in table.columns]
    values = [
        (row.id, *(_printed(row, column.id) for column in table.columns)) for row in table.rows
    ]
    right = "".join(str(position) for position in range(1, min(len(columns), 9) + 1))
    out.print(Grid(("row", *columns), values, right=right))


def _printed(row: Row, column: str) -> str:
    value = row.values.get(column)
    note = row.printed_notes.get(column)
    return ("-" if value is None else value.printed) + (f" {note}" if note else "")


@app.command("validate", epilog="Example: harness validate ./my_table.yaml")
def validate(files: FilesArgument = None, as_json: common.JsonOption = False) -> None:
    """Check everything that is declared, and name everything that is wrong.

    Files of one's own, each with a table or a profile, are checked with it.
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
        f"{counted(found.deviations, 'deviation')}; templates, prices and what the estimates "
        "assume too."
    )
    if found.files:
        console().print(f"So are yours: {', '.join(found.files)}.", soft_wrap=True)
