"""What every drawing of a figure shares: colours, the frame around the panels, words for gaps.

Colours are Okabe and Ito's, which people with any colour vision tell apart, and no line or bar is
told by its colour alone. The background is opaque, so that a figure reads the same on a dark page.
Files are SVG without time or random ids: the same points give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.registry.figures import Figure
from harness.report.figures.point import Point
from harness.report.view import state_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK, MUTED = "#1f1f1f", "#595959"
"""Colours of text, and of what is said aside."""

OURS, PAPERS = "#0072B2", "#7a5200"
"""Colours of ours and of the paper's where nothing else is told apart."""

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


@dataclass(frozen=True)
class Drawing:
    """What is drawn.

    Attributes:
        figure: The declaration.
        points: The points.
        data: The data they were computed from.
        heading: What stands above the panels.
        below: What stands below them: scale, seeds, judge.
        alt: Text for who does not see the figure.
        seeds: Number of seeds asked for.
        stand_in: Whether other benchmarks stand in the places of the paper's.
    """

    figure: Figure
    points: tuple[Point, ...]
    data: Any
    heading: str
    below: str
    alt: str
    seeds: int
    stand_in: bool

    @property
    def ours(self) -> str:
        """What our numbers are called beside the paper's."""
        return "ours, on a stand-in" if self.stand_in else "ours"

    def distinct(self, axis: str) -> list[str]:
        """Return the distinct panels, series or places, in order."""
        return list(dict.fromkeys(getattr(point, axis) for point in self.points))

    def at(self, **place: str) -> list[Point]:
        """Return the points of a panel, series or place."""
        return [p for p in self.points if all(getattr(p, k) == v for k, v in place.items())]

    def missing(self, point: Point) -> str:
        """Return in words why a point has no number."""
        if point.state == "ok":
            return point.reason or "undefined"
        return state_words(point.state, point.done, self.seeds)


@contextmanager
def canvas(
    drawing: Drawing, path: Path, rows: int, columns: int, size: tuple[float, float], **options: Any
) -> Iterator[tuple[Canvas, Any]]:
    """Yield a canvas and its panels, shape (rows, columns); write it as SVG when the block ends.

    Args:
        drawing: What is drawn.
        path: File to write.
        rows: Rows of panels.
        columns: Columns of panels.
        size: Width and height, in inches of 72 points.
        options: Further options of `matplotlib.figure.Figure.subplots`.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    settings: dict[Any, Any] = {
        "svg.hashsalt": drawing.figure.id,
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.linewidth": 0.6,
    }
    with matplotlib.rc_context(settings):
        sheet = Canvas(figsize=size, layout="constrained", facecolor="white")
        panels = sheet.subplots(rows, columns, squeeze=False, **options)
        sheet.suptitle(drawing.heading, fontsize=10.5, fontweight="bold", x=0.01, ha="left")
        yield sheet, panels
        sheet.supxlabel(drawing.below, fontsize=7.5, color=MUTED, x=0.01, ha="left")
        described = {"Date": None, "Title": drawing.figure.title, "Description": drawing.alt}
        sheet.savefig(path, format="svg", metadata=described)


def plain_frame(axes: Axes, *, grid: str | None = None) -> None:
    """Take away the frame's upper and right side, and lay a faint grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axes.grid(axis=grid, color="#dddddd", linewidth=0.6)  # type: ignore[arg-type]
        axes.set_axisbelow(True)


def half_widths(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the intervals reach below and above the values; 0 where there is none."""
    below = [0.0 if p.low is None or p.value is None else p.value - p.low for p in points]
    above = [0.0 if p.high is None or p.value is None else p.high - p.value for p in points]
    return [below, above]


def note(axes: Axes, text: str) -> None:
    """Write in the middle of an empty panel what it is."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_xticks([])
    axes.set_yticks([])
