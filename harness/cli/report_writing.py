"""Reports written: each format, to stdout or to a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.report.cells import Cell
    from harness.report.report import Report
    from harness.store import Store
    from harness.trainer.table_runs import TableRuns


class Format(StrEnum):
    """How a report is written."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"
    csv = "csv"
    latex = "latex"
    html = "html"


def write_report(
    runs: TableRuns,
    cells: Sequence[Cell],
    store: Store,
    form: Format,
    *,
    details: bool = True,
    output: Path | None = None,
) -> None:
    """Write the report of a table's runs to stdout, or to a file.

    Args:
        runs: The runs.
        cells: Their cells.
        store: The store they were read from.
        form: How to write it; HTML is written by the command alone.
        details: On the terminal, also print the distances of the prompts and the assumptions.
        output: The file.
    """
    if form is Format.json:
        write([], cells, form, output)
        return
    from harness.report.report import assemble

    write([assemble(runs, cells, store)], cells, form, output, details=details)


def write(
    reports: Sequence[Report],
    cells: Sequence[Cell],
    form: Format,
    output: Path | None,
    *,
    details: bool = True,
) -> None:
    """Write reports to stdout, or to a file.

    Args:
        reports: The reports; none is needed for JSON.
        cells: Their cells.
        form: How to write them.
        output: The file.
        details: As in `write_report`.
    """
    if form is Format.terminal and output is None:
        from harness.cli.output import console
        from harness.report.terminal import print_report

        for found in reports:
            print_report(found, console(), details=details)
        return
    text = _text(reports, cells, form, details=details)
    if output is None:
        sys.stdout.write(text)
    else:
        save(text, output)


def _text(reports: Sequence[Report], cells: Sequence[Cell], form: Format, *, details: bool) -> str:
    if form is Format.json:
        from harness.report.json import as_json

        return as_json(cells)
    if form is Format.csv:
        from harness.report.csv import as_csv

        return as_csv(reports)
    if form is Format.latex:
        from harness.report.latex import as_latex

        return as_latex(reports)
    if form is Format.markdown:
        from harness.report.markdown import as_markdown

        return "\n".join(map(as_markdown, reports))
    from harness.report.terminal import as_text

    return "\n".join(as_text(found, details=details) for found in reports)


def save(text: str, output: Path) -> None:
    """Write a file whole, and say where it is."""
    from harness.cli.output import note, writing
    from harness.store.faults import explained

    with writing("--output", output) as path, explained(f"writing {path.name}", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    note(f"written to {path}")
