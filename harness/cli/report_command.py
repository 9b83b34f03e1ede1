"""`report`: what the store holds of a table, beside what the paper prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import (
    DEFAULT_PROFILE,
    DEFAULT_SEEDS,
    JsonOption,
    ProfileOption,
    RowsOption,
    TableArgument,
    parse_names,
    parse_seeds,
)

if TYPE_CHECKING:
    from harness.report.cells import Cell
    from harness.store import Store
    from harness.trainer.table_runs import TableRuns


class Format(StrEnum):
    """How a report is written."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"


AskedSeedsOption = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="IDS",
        help="Seeds, as `0`, `0,2` or `0-4`.",
        show_default="those last asked for",
    ),
]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="How to write it.", show_default="terminal")
]
PublishOption = Annotated[
    bool, typer.Option("--publish", help="Also write it to results/, with the scores behind it.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("report", epilog="Example: harness report table4 --format markdown")(report)


def report(
    table: TableArgument,
    profile: ProfileOption = DEFAULT_PROFILE,
    rows: RowsOption = None,
    seeds: AskedSeedsOption = None,
    form: FormatOption = None,
    publish: PublishOption = False,
    as_json: JsonOption = False,
) -> None:
    """Report what has been computed of a table, without computing anything.

    The seeds are those of the last run of the table; what is missing of them is said.
    """
    from harness.cli.asking import planned
    from harness.cli.figure_commands import is_figure, report_figure
    from harness.cli.output import note
    from harness.errors import UserError
    from harness.project import results_dir, store_dir
    from harness.report.cells import build_cells
    from harness.store import Store

    if as_json and form not in (None, Format.json):
        raise UserError(f"`--json` and `--format {form}` contradict each other; leave one out")
    chosen = Format.json if as_json else form or Format.terminal
    if is_figure(table):
        report_figure(table, profile, rows, seeds, chosen, publish)
        return
    asked = parse_seeds(seeds) if seeds is not None else last_asked(table, profile)
    runs = planned(table, profile, asked, parse_names("--rows", rows))
    store = Store(store_dir())
    cells = build_cells(runs, store)
    if publish:
        from harness.report.publish import publish as publish_table

        note(f"published in {publish_table(runs, cells, store, results_dir())}")
    write_report(runs, cells, store, chosen)


def last_asked(table: str, profile: str) -> tuple[int, ...]:
    """Return the seeds last asked for of a table at a profile, the default ones where none were.

    Raises:
        HarnessError: The record of them is broken.
    """
    from harness.cli.asking import found
    from harness.project import work_dir
    from harness.report.asked import recall

    declared, scale = found(table, profile)  # an unknown name is no path to look at
    return recall(work_dir(), declared.id, scale.name) or parse_seeds(DEFAULT_SEEDS)


def write_report(
    runs: TableRuns, cells: Sequence[Cell], store: Store, form: Format, *, details: bool = True
) -> None:
    """Write the report of a table's runs to stdout.

    Args:
        runs: The runs.
        cells: Their cells.
        store: The store they were read from.
        form: How to write it.
        details: On the terminal, also print the distances of the prompts and the assumptions.
    """
    if form is Format.json:
        from harness.report.json import as_json

        sys.stdout.write(as_json(cells))
        return
    from harness.report.report import assemble

    whole = assemble(runs, cells, store)
    if form is Format.markdown:
        from harness.report.markdown import as_markdown

        sys.stdout.write(as_markdown(whole))
        return
    from harness.cli.output import console
    from harness.report.terminal import print_report

    print_report(whole, console(), details=details)
