"""Lines over training iterations: scores beside the paper's, and shares of topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.figures.drawing import (
    MUTED,
    STYLES,
    Drawing,
    canvas,
    half_widths,
    plain_frame,
)
from harness.report.figures.point import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


def draw_iterations(drawing: Drawing, path: Path) -> None:
    """Draw ours above the paper's, a column of panels for each size."""
    columns, series = drawing.distinct("panel"), drawing.distinct("series")
    size = (3.3 * len(columns), 6.4)
    with canvas(drawing, path, 2, len(columns), size, sharex=True, sharey="row") as (_, panels):
        for j, column in enumerate(columns):
            points = drawing.at(panel=column)
            panels[0][j].set_title(column, loc="left")
            for i, name in enumerate(series):
                own = [point for point in points if point.series == name]
                _line(panels[0][j], own, i, len(series))
                _papers(panels[1][j], own, i)
            _list(panels[0][j], _gaps(drawing, points))
            _list(panels[1][j], _unprinted(points))
            panels[1][j].set_xlabel("training iterations")
        _frame(panels, drawing.points)
        unit = next((point.unit for point in drawing.points if point.unit), "")
        panels[0][0].set_ylabel(f"{drawing.ours} ({unit})")
        panels[1][0].set_ylabel(f"the paper's ({unit})")
        for row in panels:
            low, high = row[0].get_ylim()
            row[0].set_ylim(low - 0.25 * (high - low), high)  # room for what is missing
        handles = [_handle(i, name) for i, name in enumerate(series)]
        # The paper's last panel has room at its lower right, whatever ours show.
        panels[1][-1].legend(handles=handles, loc="lower right", frameon=False, fontsize=8)


def draw_shares(drawing: Drawing, path: Path) -> None:
    """Draw a small panel for each topic, all with the same axes."""
    topics = drawing.distinct("panel")
    columns = min(4, len(topics))
    rows = -(-len(topics) // columns)
    size = (2.4 * columns + 0.4, 1.9 * rows + 1.0)
    with canvas(drawing, path, rows, columns, size, sharex=True, sharey=True) as (_, panels):
        for axes, topic in zip(panels.flat, topics, strict=False):
            points = drawing.at(panel=topic)
            axes.set_title(topic, loc="left")
            _line(axes, points, 0, 1)
            for point in points:
                if point.value is None:
                    axes.text(
                        int(point.at),
                        0.5,
                        drawing.missing(point),
                        rotation=90,
                        ha="center",
                        va="center",
                        transform=axes.get_xaxis_transform(),
                        fontsize=7.5,
                        color=MUTED,
                        style="italic",
                    )
        _frame(panels, drawing.points)
        for axes in panels.flat[len(topics) :]:
            axes.set_visible(False)
        for axes in panels[-1]:
            axes.set_xlabel("training iteration")
        for row in panels:
            row[0].set_ylabel("share (%)")
        panels[0][0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        panels[0][0].set_ylim(bottom=0.0)


def _line(axes: Axes, points: Sequence[Point], i: int, among: int) -> None:
    """Draw a series with its intervals, a little beside the others so that none hides another."""
    known = [point for point in points if point.value is not None]
    colour, marker, dashes = STYLES[i % len(STYLES)]
    places = [int(point.at) + 0.06 * (i - (among - 1) / 2) for point in known]
    values = [point.value or 0.0 for point in known]
    axes.plot(places, values, color=colour, marker=marker, linestyle=dashes, linewidth=1.3,
              markersize=4.5)  # fmt: skip
    if known:
        axes.errorbar(places, values, yerr=half_widths(known), fmt="none", ecolor=colour,
                      elinewidth=1, capsize=2)  # fmt: skip


def _papers(axes: Axes, points: Sequence[Point], i: int) -> None:
    """Draw the numbers that the paper prints of a series; it gives no intervals."""
    known = [point for point in points if point.paper is not None]
    colour, marker, dashes = STYLES[i % len(STYLES)]
    axes.plot([int(point.at) for point in known], [point.paper or 0.0 for point in known],
              color=colour, marker=marker, linestyle=dashes, linewidth=1.3,
              markersize=4.5)  # fmt: skip


def _gaps(drawing: Drawing, points: Sequence[Point]) -> list[str]:
    """Return what is missing of ours, and why, in a line for each series and reason."""
    gaps: dict[tuple[str, str], list[str]] = {}
    for point in points:
        if point.value is None:
            gaps.setdefault((point.series, drawing.missing(point)), []).append(point.at)
    return [f"{name}, {', '.join(places)}: {why}" for (name, why), places in gaps.items()]


def _unprinted(points: Sequence[Point]) -> list[str]:
    """Return what the paper does not print, in a line for each series."""
    gaps: dict[str, list[str]] = {}
    for point in points:
        if point.paper is None:
            gaps.setdefault(point.series, []).append(point.at)
    return [f"{name}, {', '.join(places)}: not printed" for name, places in gaps.items()]


def _list(axes: Axes, lines: Sequence[str]) -> None:
    axes.text(0.98, 0.02, "\n".join(lines), transform=axes.transAxes, ha="right", va="bottom",
              fontsize=7, color=MUTED, style="italic")  # fmt: skip


def _frame(panels: Any, points: Sequence[Point]) -> None:
    """Give all panels a place for every iteration, whether or not there is a number."""
    places = sorted({int(point.at) for point in points})
    for axes in panels.flat:
        plain_frame(axes, grid="y")
        axes.set_xticks(range(places[0], places[-1] + 1))
        axes.set_xlim(places[0] - 0.3, places[-1] + 0.3)


def _handle(i: int, name: str) -> Line2D:
    from matplotlib.lines import Line2D

    colour, marker, dashes = STYLES[i % len(STYLES)]
    return Line2D([], [], color=colour, marker=marker, linestyle=dashes, label=name, markersize=4.5)
