"""Pictures of reports, and the one place where matplotlib is set up.

Colors are Okabe and Ito's, which are safe for color-blind readers, and no line or bar is identified
by color alone. The background is opaque, so that a picture works on a dark page. Files are SVG
without dates or random ids: the same numbers give the same bytes. Pages embed them as data URIs.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED = "#1f1f1f", "#595959"
"""Colours of text, and of what is said aside."""

OURS, PAPERS = "#0072B2", "#7a5200"
"""Colours of ours and of the paper's where nothing else is told apart."""

GRID = "#dddddd"
"""Colour of the lines behind what is drawn."""

SIZE = 8
"""Points of every text in a picture; its title stands beside it."""

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
"""Colour, marker and dashes of each series, in order."""

Target = Path | BinaryIO
"""What a picture is written to."""


@dataclass(frozen=True)
class Picture:
    """A picture that belongs to a report: its file, what it shows, and on a page its origin."""

    title: str
    file: str
    alt: str
    draw: Callable[[BinaryIO], None]
    findings: tuple[str, ...] = ()
    origin: str = ""

    def svg(self) -> bytes:
        held = io.BytesIO()
        self.draw(held)
        return held.getvalue()

    @property
    def data(self) -> str:
        """An address that holds it; nothing in an image can run."""
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
    """Yield a canvas and its panels, shape (rows, columns); write it as SVG when the block ends.

    Sizes are in inches of 72 points, `salt` is what the ids of the file's elements are made
    from, `described` are title and description within the file, and `options` go to
    `matplotlib.figure.Figure.subplots`.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    texts = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize",
             "legend.fontsize")  # fmt: skip
    inked = ("axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {
        **dict.fromkeys(texts, SIZE),
        **dict.fromkeys(inked, INK),
        "axes.edgecolor": MUTED,
        "hatch.linewidth": 0.6,
        "svg.hashsalt": salt,
    }
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
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_xticks([])
    axes.set_yticks([])
