"""A report on the terminal: one block of rows for each column, legible at 80 characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from harness.report import view
from harness.report.report import Report
from harness.report.view_details import detail_blocks
from harness.report.view_study import study_blocks

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 80
"""Width of a text that goes to no terminal."""

WIDEST = 100
"""Wider terminals get no wider lines: figures far from their row's name are hard to follow."""


def print_report(report: Report, console: Console | None = None, details: bool = True) -> None:
    """Print a report.

    Args:
        report: What to print.
        console: Where to; standard output by default.
        details: Also print where the training prompts lie, what the creator did and the
            assumptions.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    # A line break right at the edge, or a combining character, must not make a line too long.
    width = min(console.width, WIDEST) - 2
    for part in _parts(report, details):
        console.print(part, width=width, highlight=False)


def as_text(report: Report, width: int = WIDTH, details: bool = True) -> str:
    """Return a report as plain text, no line longer than `width` columns."""
    import io

    from rich.console import Console

    file = io.StringIO()
    print_report(report, Console(file=file, width=width, color_system=None), details)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _parts(report: Report, details: bool) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    yield Text(view.heading(report), style="bold")
    yield names_and_texts(view.facts(report))
    for block in [*view.blocks(report), *study_blocks(report)]:
        yield from block_lines(block)
    reasons = view.failures(report)
    if reasons:
        yield Text("\nMissing", style="bold")
        yield from (Padding(Text(reason, style="red"), (0, 0, 0, 2)) for reason in reasons)
    if details:
        for block in detail_blocks(report):
            yield from block_lines(block)
        yield from _assumptions(report)


def names_and_texts(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    """Return names and texts in two columns."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(Text(name, style="dim"), Text(text))
    return grid


def block_lines(block: view.Block) -> Iterator[RenderableType]:
    """Yield a block: its title, its notes and its rows."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    yield Text(f"\n{block.title}", style="bold")
    yield from (Text(note, style="dim") for note in block.notes)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(block.head[0]), overflow="fold")
    for title in block.head[1:]:
        table.add_column(Text(title), justify="right", vertical="bottom", no_wrap=True)
    for name, *figures in block.rows:
        table.add_row(Text(name), *map(Text, figures))
    yield table


def _assumptions(report: Report) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    yield Text("\nAssumptions", style="bold")
    for title, lines in view.assumption_groups(report):
        yield Text(title)
        for why, what in lines:
            yield Padding(Text.assemble(what, (f" — {why}", "dim")), (0, 0, 0, 2))
    title, notes = view.table_notes(report)
    if notes:
        yield Text(title)
        yield from (Padding(Text(note), (0, 0, 0, 2)) for note in notes)
