"""Horizontal bars: gains beside the paper's, and numbers of topics."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.figures.drawing import (
    INK,
    MUTED,
    OURS,
    PAPERS,
    Drawing,
    canvas,
    half_widths,
    plain_frame,
)
from harness.report.figures.point import Point
from harness.report.figures.text import gain_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_gains(drawing: Drawing, path: Path) -> None:
    """Draw a row of panels for each group of bars: each column's gain, ours beside the paper's."""
    groups, columns = drawing.distinct("series"), drawing.distinct("panel")
    bars = [len({point.at for point in drawing.at(series=group)}) for group in groups]
    size = (1.6 + 1.75 * 2 * len(columns), 1.5 + 0.3 * sum(bars) + 0.35 * len(groups))
    shape = {"sharex": "col", "sharey": "row", "gridspec_kw": {"height_ratios": bars}}
    with canvas(drawing, path, len(groups), 2 * len(columns), size, **shape) as (_, panels):
        for i, group in enumerate(groups):
            for j, column in enumerate(columns):
                points = drawing.at(series=group, panel=column)
                ours, paper = panels[i][2 * j], panels[i][2 * j + 1]
                _bars(ours, drawing, points)
                _paper_bars(paper, points)
                if i == 0:
                    unit = next((p.unit for p in points if p.unit), "")
                    ours.set_title(
                        f"{_stacked(column)}\n{drawing.ours}", color=OURS, loc="left", fontsize=8.5
                    )
                    paper.set_title("the paper's", color=PAPERS, loc="left", fontsize=8.5)
                    for axes in (panels[-1][2 * j], panels[-1][2 * j + 1]):
                        axes.set_xlabel(gain_words(unit), fontsize=8)
            panels[i][0].set_ylabel(group.replace(": ", ":\n").replace(" (", "\n("), fontsize=8)


def _stacked(heading: str) -> str:
    """Return the parts of a heading below one another, in lines that fit a panel."""
    parts = [textwrap.fill(part, 28) for part in heading.split(" · ")]
    return "\n".join(parts)


def draw_topics(drawing: Drawing, path: Path) -> None:
    """Draw a panel for each quantity, with a bar for each topic."""
    columns, topics = drawing.distinct("panel"), drawing.distinct("at")
    size = (9.5, 1.5 + 0.3 * len(topics))
    with canvas(drawing, path, 1, len(columns), size, sharey=True) as (_, panels):
        for axes, column in zip(panels[0], columns, strict=True):
            points = drawing.at(panel=column)
            _bars(axes, drawing, points)
            axes.set_title(column, loc="left")
            share = points[0].quantity == "share"
            axes.set_xlabel("share (%)" if share else "units of the reward model")
            if share:
                axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")


def _bars(axes: Axes, drawing: Drawing, points: Sequence[Point]) -> None:
    """Draw points as bars with their intervals; the first is on top."""
    _frame(axes, points)
    known = [(i, point) for i, point in enumerate(points) if point.value is not None]
    values = [point.value or 0.0 for _, point in known]
    errors = half_widths([point for _, point in known])
    places = [i for i, _ in known]
    axes.barh(places, values, height=0.62, color=OURS, alpha=0.85)
    if any(map(any, errors)):
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    for i, point in enumerate(points):
        if point.value is None:
            words = drawing.missing(point)
            axes.annotate(words, (0, i), xytext=(3, 0), textcoords="offset points", va="center",
                          fontsize=7.5, color=MUTED, style="italic")  # fmt: skip


def _paper_bars(axes: Axes, points: Sequence[Point]) -> None:
    """Draw the paper's numbers as hatched bars, which have no intervals."""
    _frame(axes, points)
    known = [(i, point) for i, point in enumerate(points) if point.paper is not None]
    values = [point.paper or 0.0 for _, point in known]
    axes.barh([i for i, _ in known], values, height=0.62, color="white", edgecolor=PAPERS,
              hatch="////")  # fmt: skip
    for i, point in known:
        value = point.paper or 0.0
        axes.annotate(point.paper_printed or "", (max(value, 0.0), i),
                      xytext=(3, 0), textcoords="offset points", va="center", fontsize=7.5,
                      color=INK)  # fmt: skip
    for i, point in enumerate(points):
        if point.paper is None:
            axes.annotate("not printed", (0, i), xytext=(3, 0), textcoords="offset points",
                          va="center", fontsize=7.5, color=MUTED, style="italic")  # fmt: skip
    low, high = min([0.0, *values]), max([0.0, *values])
    # Room for the figures at the ends of the bars.
    axes.set_xlim(low * 1.1, max(axes.get_xlim()[1], high * 1.5))


def _frame(axes: Axes, points: Sequence[Point]) -> None:
    plain_frame(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.axvline(0.0, color=MUTED, linewidth=0.8)
    axes.set_yticks(range(len(points)), [point.at for point in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
