"""Report plots, and the only place that configures matplotlib.

Colors are the colorblind-safe palette of Okabe and Ito, and nothing is identified by color alone.
The background is opaque so that plots work on dark pages. SVG files contain no dates or random ids,
so the same numbers give the same bytes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f1f1f", "#595959", "#dddddd"
OURS, PAPERS = "#0072B2", "#7a5200"

PAGE_WIDTH = 8.0
"""Maximum width of a plot, in inches: that of a page's text, 768 CSS pixels."""

SIZE = 8
"""Font size, in points, of all text in a plot."""

Dashes = Literal["-", "--", "-.", ":"] | tuple[float, Sequence[float]]

STYLES: tuple[tuple[str, str, Dashes], ...] = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#56B4E9", "v", (0, (5, 1))),
    ("#E69F00", "P", (0, (3, 1, 1, 1))),
    ("#595959", "X", (0, (1, 1))),
)
"""Color, marker, and dash pattern of each series, in order."""

Target = Path | BinaryIO


@dataclass(frozen=True)
class Picture:
    """A plot in a report: its file, what it shows, and, on a page, its provenance."""

    title: str
    file: str
    alt: str
    draw: Callable[[BinaryIO], object]
    findings: tuple[str, ...] = ()
    origin: str = "drawn from the store"

    def published(self, folder: Path) -> Picture:
        path = folder / self.file
        origin = f"published in results/{folder.parent.name}/{folder.name}/{self.file}"
        return replace(self, draw=lambda to: to.write(path.read_bytes()), origin=origin)

    def svg(self) -> bytes:
        held = io.BytesIO()
        self.draw(held)
        return held.getvalue()

    @property
    def data(self) -> str:
        """The plot as a data URI; scripts in an image cannot run."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg()).decode('ascii')}"


@contextmanager
def canvas(
    target: Target,
    salt: str,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    below: str = "",
    described: tuple[str, str] | None = None,
    **options: Any,
) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and its axes, shape (rows, columns); write it as SVG when the block ends.

    `size` is in inches, `salt` seeds the file's element ids, `described` is title and description.
    """
    import matplotlib
    from matplotlib.figure import Figure

    inked = ("axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    sizes = {"font.size": SIZE, "axes.titlesize": SIZE}
    settings: dict[Any, Any] = dict.fromkeys(inked, INK) | sizes
    settings |= {"axes.edgecolor": MUTED, "svg.hashsalt": salt}
    with matplotlib.rc_context(settings):
        sheet = Figure(figsize=size, layout="constrained", facecolor="white")
        panels = sheet.subplots(rows, columns, squeeze=False, **options)
        yield sheet, panels
        if below:
            sheet.supxlabel(below, fontsize=SIZE, color=MUTED, x=0.01, ha="left")
        metadata: dict[str, Any] = {"Date": None}
        if described is not None:
            metadata |= {"Title": described[0], "Description": described[1]}
        sheet.savefig(target, format="svg", metadata=metadata)


def plain_frame(axes: Axes, *, grid: Literal["x", "y", "both"] | None = None) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axes.grid(axis=grid, color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)


def note(axes: Axes, text: str) -> None:
    """Write a text in place of data."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
