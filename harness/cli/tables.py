"""`list`, `show` and `validate`: what is declared, read without touching the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from harness.cli.options import JsonOption, TableArgument
from harness.cli.output import console, grid, print_json
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.registry.documents import Problem
    from harness.registry.figures import Figure
    from harness.registry.profile import Profile
    from harness.registry.schema import Row, Table

_Read = TypeVar("_Read")

app = typer.Typer(rich_markup_mode=None)


@app.command("list", epilog="Example: harness list --json")
def list_tables(as_json: JsonOption = False) -> None:
    """List the tables and figures, their sizes, and the profiles that can run them now."""
    from harness.registry.declared import all_figures, all_profiles, all_tables

    tables, profiles = all_tables(), all_profiles()
    listed: list[dict[str, Any]] = [
        {
            "id": table.id,
            "kind": table.kind,
            "rows": len(table.rows),
            "columns": len(table.columns),
            "paper_values": table.paper_values,
            "runnable": runnable(table, profiles),
        }
        for table in tables.values()
    ]
    figures = _listed_figures()
    if as_json:
        print_json([*listed, *figures])
        return
    headings = ("table", "rows", "columns", "printed", "runs on", "title")
    lines = [
        (*(str(item[key]) for key in ("id", "rows", "columns", "paper_values")),
         profiles_in_short(dict.fromkeys(item["runnable"], 1), 1, profiles),
         tables[item["id"]].title)
        for item in listed
    ]  # fmt: skip
    out = console()
    out.print(grid(headings, lines, right="123"))
    drawn = [
        (item["id"], item["drawn"], str(item["rows"]),
         profiles_in_short(item["rows_runnable"], item["rows"], profiles),
         all_figures()[item["id"]].title)
        for item in figures
    ]  # fmt: skip
    out.print()
    out.print(grid(("figure", "kind", "rows", "runs on", "title"), drawn, right="2"))
    if not all(item["runnable"] for item in [*listed, *figures]):
        out.print("\nnot yet: no profile can run it; `harness run TABLE` says what is missing.")


def profiles_in_short(can: Mapping[str, int], whole: int, profiles: Collection[str]) -> str:
    """Return in few words which profiles can run something: `all`, `all but NAME`, or their names.

    Args:
        can: How many of its rows each profile can run.
        whole: How many rows it has.
        profiles: All profiles.
    """
    part = {n: f" ({rows} of {whole} rows)" for n, rows in can.items() if 0 < rows < whole}
    lacking = [name for name in profiles if can.get(name, 0) < whole]
    if not lacking:
        return "all"
    if len(lacking) == 1 and len(profiles) > 2:
        return f"all but {lacking[0]}{part.get(lacking[0], '')}"
    named = (f"{name}{part.get(name, '')}" for name in profiles if can.get(name))
    return ", ".join(named) or "not yet"


def runnable(table: Table, profiles: Mapping[str, Profile]) -> list[str]:
    """Return the names of the profiles that can run every row of a table."""
    from harness.registry.profile import table_unsupported

    return [name for name, profile in profiles.items() if not table_unsupported(table, profile)]


@app.command("show", epilog="Example: harness show table4")
def show_table(name: TableArgument, as_json: JsonOption = False) -> None:
    """Show what a table asks, its rows with their recipes, and what the paper prints."""
    from harness.registry.declared import all_figures, named_table
    from harness.registry.figures import find_figure
    from harness.selection.selection import is_figure

    if is_figure(name):
        _show_figure(find_figure(all_figures(), name), as_json)
        return
    table, _ = named_table(name)
    if as_json:
        print_json(_table_json(table))
    else:
        _print_table(table)


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "id": table.id,
        "kind": table.kind,
        "title": table.title,
        "question": table.question,
        "source": "ours" if table.source is None else table.source.model_dump(),
        "columns": [
            column.model_dump(include={"id", "benchmark", "metric", "printed", "unit", "direction"})
            | {"score": column.reads}
            for column in table.columns
        ],
        "rows": [_row_json(table, row) for row in table.rows],
        "notes": list(table.notes),
    }


def _row_json(table: Table, row: Row) -> dict[str, Any]:
    gains = {column.id: table.paper_gain(row, column) for column in table.columns}
    return {
        "id": row.id,
        "label": row.label,
        "kind": row.kind,
        "baseline": row.baseline,
        "runs": [
            {"run": run_id, "recipe": recipe.canonical()}
            for run_id, recipe in table.recipes(row).items()
        ],
        "values": {column: value.printed for column, value in row.values.items()},
        "gains": {column: gain for column, gain in gains.items() if gain is not None},
    }


def _print_table(table: Table) -> None:
    from harness.registry.wording import in_short

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
    out.print(grid(("row", "label", "baseline", "recipe"), recipes))
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
    out.print(grid(("row", *columns), values, right=right))


def _printed(row: Row, column: str) -> str:
    value = row.values.get(column)
    note = row.printed_notes.get(column)
    return ("-" if value is None else value.printed) + (f" {note}" if note else "")


@app.command("validate", epilog="Example: harness validate")
def validate(as_json: JsonOption = False) -> None:
    """Check everything that is declared, and name everything that is wrong."""
    from harness.registry.documents import RegistryError

    problems: list[Problem] = []
    counts = _counts(problems)
    if as_json:
        listed = [
            {"file": problem.file, "line": problem.line, "message": problem.message}
            for problem in sorted(set(problems))
        ]
        print_json({"ok": not problems, **counts, "problems": listed})
        if problems:
            raise typer.Exit(RegistryError.exit_code)
        return
    if problems:
        raise RegistryError(problems)
    ours = counts["ours"]
    console().print(
        f"All is well: {counted(counts['tables'], 'table')} of the paper with "
        f"{counted(counts['paper_values'], 'paper value')} and "
        f"{counted(counts['runs'], 'distinct run')}, {counted(ours['tables'], 'table')} of ours "
        f"with {counted(ours['runs'], 'further run')}, {counted(counts['figures'], 'figure')}, "
        f"{counted(counts['figure_claims'], 'claim')} outside tables, "
        f"{counted(counts['profiles'], 'profile')}, {counted(counts['sweeps'], 'sweep')}, "
        f"{counted(counts['deviations'], 'deviation')}; templates, prices and what the estimates "
        "assume too.",
        soft_wrap=True,
    )


def _counts(problems: list[Problem]) -> dict[str, Any]:
    """Read everything that is declared; return how much it is, and add what is wrong with it."""
    from harness.errors import UserError
    from harness.registry.claims import figure_claims
    from harness.registry.declared import all_profiles, all_tables
    from harness.registry.deviations import deviations
    from harness.registry.documents import Problem, RegistryError, display_path
    from harness.registry.figure_files import load_figures
    from harness.sweep.declaration import load_sweeps

    def read(load: Callable[[], _Read], file: str = "") -> _Read | None:
        try:
            return load()
        except RegistryError as error:
            problems.extend(error.problems)
        except UserError as error:
            problems.append(Problem(file, 1, str(error)))
        return None

    tables: Mapping[str, Table] = read(all_tables) or {}
    # Where tables are broken, what figures refer to cannot be told from what is not declared.
    figures = read(lambda: load_figures(tables or None)) or {}
    claims, parted = read(figure_claims), read(deviations)
    profiles, sweeps = read(all_profiles) or {}, read(load_sweeps) or {}
    for file, load in _shipped():
        read(load, display_path(file))
    paper = [table for table in tables.values() if not table.is_ours]
    ours = [table for table in tables.values() if table.is_ours]
    return {
        "tables": len(paper),
        "figures": len(figures),
        "figure_claims": sum(len(place.claims) for place in claims.figures) if claims else 0,
        "profiles": len(profiles),
        "sweeps": len(sweeps),
        "deviations": len(parted.discrepancies + parted.ambiguities) if parted else 0,
        "runs": len(_runs(paper)),
        "paper_values": sum(table.paper_values for table in paper),
        "ours": {"tables": len(ours), "runs": len(_runs(ours) - _runs(paper))},
    }


def _shipped() -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yield each further file of YAML that ships with the package, and what reads it."""
    from harness.cost import assumptions, hardware, shapes
    from harness.endpoint.prices import SHIPPED, read_prices
    from harness.registry.hardware import configuration_file, shipped_configurations
    from harness.registry.yaml_reader import read_yaml
    from harness.worlds.real.creator import OWN_TEMPLATES, read_templates

    yield assumptions.FILE, assumptions.assumptions
    yield hardware.FILE, hardware.known_gpus
    yield shapes.FILE, shapes.known_shapes
    yield OWN_TEMPLATES, partial(read_templates, OWN_TEMPLATES)
    yield SHIPPED, read_prices
    for name in shipped_configurations():
        yield configuration_file(name), partial(read_yaml, configuration_file(name))


def _runs(tables: Iterable[Table]) -> set[str]:
    """Return the distinct runs behind some tables."""
    return {run for table in tables for row in table.rows for run in table.recipes(row)}


def _listed_figures() -> list[dict[str, Any]]:
    """Return what `harness list` says of each figure, as JSON data."""
    from harness.registry.declared import all_figures, all_profiles, all_tables
    from harness.registry.figure_rows import figure_unsupported

    tables, profiles = all_tables(), all_profiles()
    found = []
    for figure in all_figures().values():
        can = {
            name: len(figure.rows) - len(figure_unsupported(figure, tables, profile))
            for name, profile in profiles.items()
        }
        found.append(
            {
                "id": figure.id,
                "kind": "figure",
                "drawn": figure.kind,
                "rows": len(figure.rows),
                "rows_runnable": can,
                "runnable": [name for name, rows in can.items() if rows == len(figure.rows)],
            }
        )
    return found


def _show_figure(figure: Figure, as_json: bool) -> None:
    """Show what a figure asks, and the rows it is drawn from."""
    if as_json:
        print_json(figure.model_dump(mode="json"))
        return
    out, source = console(), figure.source
    out.print(f"{figure.id} · {figure.title}", style="bold")
    out.print(figure.question)
    out.print(f"Source: {source.paper}, section {source.section}, figure {source.figure}.\n")
    out.print(grid(("drawn from",), [(ref,) for ref in figure.rows]))
    for note in figure.notes:
        out.print(f"Note: {note}")
