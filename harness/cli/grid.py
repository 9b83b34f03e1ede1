"""A table of text that fits its console without breaking a word, where that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

BETWEEN = 3
"""Columns of text between two columns of a grid: padding on both sides, and the box's own."""


class Grid(Table):
    """A table whose columns have the widths of `widths`; rich alone would break identifiers."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room."""
        texts = [[str(column.header), *map(str, column.cells)] for column in self.columns]
        room = options.max_width - BETWEEN * (len(texts) - 1)
        for column, width in zip(self.columns, widths(texts, room), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)


def widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column of texts, together at most `room` where that is possible.

    The widest column gives way first, down to its longest word; when all are down there, the one
    with the longest word goes on, and its words break.
    """
    found = [max(cell_len(line) for text in c for line in text.split("\n")) for c in columns]
    least = [
        max((cell_len(word) for text in c for word in text.split()), default=1) for c in columns
    ]
    for floors in (least, [1] * len(found)):
        while sum(found) > room:
            wide = [at for at, width in enumerate(found) if width > max(floors[at], 1)]
            if not wide:
                break
            found[max(wide, key=lambda at: found[at])] -= 1
    return found
