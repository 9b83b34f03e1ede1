"""What is drawn in each published figure: marks on visible axes, words inside it, page width.

They are drawn again from the published numbers, and matplotlib's objects are inspected.
"""

import io
import itertools
import re
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from harness.project import results_dir
from harness.registry.declared import all_figures
from harness.report.figures.drawing import figure_picture
from harness.report.figures.published import published_figure
from harness.report.figures.report import FigureReport
from harness.report.publication import read_index

PAGE_WIDTH = 8.0
"""Width of a page's text, in inches of 96 CSS pixels."""

PLACES = [place for place, entry in read_index(results_dir()).items() if entry.kind == "figure"]


def drawn(report: FigureReport, monkeypatch: pytest.MonkeyPatch) -> Figure:
    """Return the sheet that a figure is written from."""
    sheets: list[Figure] = []
    save = Figure.savefig

    def savefig(sheet: Figure, *args: Any, **options: Any) -> None:
        sheets.append(sheet)
        save(sheet, *args, **options)
        sheet.draw_without_rendering()  # here, while the fonts are those of the drawing

    monkeypatch.setattr(Figure, "savefig", savefig)
    figure_picture(report).draw(io.BytesIO())
    (sheet,) = sheets
    return sheet


def shown_axes(sheet: Figure) -> list[Axes]:
    return [axes for axes in sheet.axes if axes.get_visible()]


def marks(axes: Axes) -> int:
    """Return the number of data marks within the axes."""
    assert axes.axison
    found = 0
    for artist in (*axes.lines, *axes.patches, *axes.collections):
        if not artist.get_visible():
            continue
        if isinstance(artist, Line2D):
            found += inside(axes, artist.get_xydata())
        elif isinstance(artist, PathCollection):
            found += inside(axes, artist.get_offsets())
        elif isinstance(artist, Rectangle):
            # Its foot is seen even where the bar is cut off.
            found += inside(axes, [artist.get_xy()])
    return found


def inside(axes: Axes, points: Any) -> int:
    """Return how many points lie within the limits of the axes."""
    low, high = np.array(axes.viewLim.min) - 1e-9, np.array(axes.viewLim.max) + 1e-9
    at = np.asarray(points, float)
    return int(((low <= at) & (at <= high)).all(axis=1).sum())


def words(sheet: Figure) -> list[Text]:
    """Return the visible texts: titles, labels, ticks, and legends."""
    hidden = {id(t) for axes in sheet.axes if not axes.get_visible() for t in axes.findobj(Text)}
    for axes in sheet.axes:
        for i, axis in enumerate((axes.xaxis, axes.yaxis)):
            low, high = sorted(axis.get_view_interval())
            # matplotlib keeps the labels of ticks beyond the view, which it does not draw.
            labels = axis.get_ticklabels()
            hidden |= {id(t) for t in labels if not low <= t.get_position()[i] <= high}
    texts = [text for text in sheet.findobj(Text) if isinstance(text, Text)]
    return [t for t in texts if t.get_visible() and t.get_text().strip() and id(t) not in hidden]


@pytest.mark.parametrize("place", PLACES)
def test_a_picture_has_marks_on_axes_and_its_words_inside_the_page(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = all_figures()[place.rpartition("/")[2]]
    sheet = drawn(published_figure(figure, results_dir() / place), monkeypatch)
    assert sheet.get_figwidth() <= PAGE_WIDTH
    assert shown_axes(sheet)
    for axes in shown_axes(sheet):
        assert marks(axes) > 0
        assert axes.get_xlabel() or axes.get_ylabel() or axes.get_title("left")
    page = sheet.bbox.padded(1)
    boxes = [(text.get_text(), text.get_window_extent()) for text in words(sheet)]
    outside = [t for t, b in boxes if not (page.contains(b.x0, b.y0) and page.contains(b.x1, b.y1))]
    assert not outside
    over = [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(boxes, 2)
        if a.padded(-1).overlaps(b.padded(-1))
    ]
    assert not over


def test_no_published_plot_is_wider_than_the_page() -> None:
    for path in results_dir().rglob("*.svg"):
        (width,) = re.findall(r'<svg[^>]* width="([\d.]+)pt"', path.read_text(encoding="utf-8"))
        assert float(width) <= 72 * PAGE_WIDTH, path
