"""A figure's report on the terminal and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.report import FILE, FigureReport
from harness.report.render import WIDEST, block_lines, names_and_texts, template

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def as_markdown(report: FigureReport, *, drawn: bool = False) -> str:
    """Return a figure's report as GitHub-flavoured Markdown.

    Args:
        report: The report.
        drawn: Show the drawing, which lies beside the page.
    """
    return template("figure.md.j2").render(
        report=report, lists=listed(report), file=FILE if drawn else None
    )


def print_figure(report: FigureReport, console: Console) -> None:
    """Print a figure's report."""
    from rich.padding import Padding
    from rich.text import Text

    width = min(console.width, WIDEST)
    parts: list[RenderableType] = [Text(report.heading, style="bold")]
    parts.append(names_and_texts(report.facts))
    for block in report.blocks:
        parts += block_lines(block)
    for title, texts in listed(report):
        parts.append(Text(f"\n{title}", style="bold"))
        parts += [Padding(Text(text), (0, 0, 0, 2)) for text in texts]
    for part in parts:
        console.print(part, width=width, highlight=False)


def listed(report: FigureReport) -> list[tuple[str, list[str]]]:
    """Return the lists at the end of a report that are not empty, by their titles."""
    lists = [("Found", report.findings), ("Missing", report.missing), ("Notes", report.notes)]
    return [(title, texts) for title, texts in lists if texts]
