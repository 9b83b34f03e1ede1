"""Draws figures: bars, lines, a radar chart, histograms, a scatter plot.

Everything is drawn from a report's points, except the dots of the scatter plot.
"""

from __future__ import annotations

import functools
import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.registry.figures import CorrelationFigure
from harness.report import plots
from harness.report.figures.data import Floats, PromptData
from harness.report.figures.points import HISTOGRAM, NAMES, RHO, Point, xy
from harness.report.figures.report import FigureReport
from harness.report.plots import GRID, INK, MUTED, OURS, PAPERS, STYLES, Picture, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Canvas = Callable[..., AbstractContextManager["tuple[Figure, Any]"]]
"""Opens a canvas of a given size and panels, as `harness.report.plots.canvas` does."""


FILE = "figure.svg"
"""The drawing of a published report."""

MOST_PANELS = 4
"""Maximum number of line panels per row."""


def _by(axis: str, points: Iterable[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(getattr(point, axis), []).append(point)
    return found


def _sides(points: Sequence[Point]) -> list[str]:
    return ["value", *(["paper"] if any(p.paper is not None for p in points) else [])]


def _called(report: FigureReport, side: str) -> str:
    ours = "ours, on a stand-in" if report.stand_in else "ours"
    return ours if side == "value" else "the paper's"


def _scale(point: Point) -> tuple[float, str]:
    """Return the factor that scales a point's numbers for drawing, and the axis label."""
    units = {"%": "percentage points", "1-10": "points of 1 to 10"}
    if point.quantity == "gain":
        return 1.0, f"gain ({units[point.unit]})" if point.unit in units else "gain"
    if point.quantity == "share":
        return 100.0, "share (%)"
    return 1.0, "units of the reward model" if point.unit == "reward" else point.unit


def _interval(points: Sequence[Point]) -> list[list[float]]:
    """Return the lengths of intervals below and above the drawn values; 0 without an interval."""
    below, above = [], []
    for point in points:
        factor, value = _scale(point)[0], point.value or 0.0
        below.append(0.0 if point.low is None else factor * (value - point.low))
        above.append(0.0 if point.high is None else factor * (point.high - value))
    return [below, above]


def draw_bars(report: FigureReport, canvas: Canvas) -> None:
    """Draw a row of panels for each group of bars, ours next to the paper's in each column."""
    columns = _by("panel", report.points)
    # If each panel has its own series, there are no groups.
    grouped = next(iter(columns.values()))[0].series not in columns
    groups = _by("series", report.points) if grouped else {"": list(report.points)}
    places = list(itertools.product(columns, _sides(report.points)))
    bars = [len(_by("at", own)) for own in groups.values()]
    size = (1.6 + 1.75 * len(places), 1.5 + 0.3 * sum(bars) + 0.35 * len(groups))
    shape = {"sharex": "col", "sharey": "row", "gridspec_kw": {"height_ratios": bars}}
    with canvas(size, len(groups), len(places), **shape) as (_, panels):
        for row, (group, points) in zip(panels, groups.items(), strict=True):
            row[0].set_ylabel(group.replace(": ", ":\n").replace(" (", "\n("))
            for axes, (column, side) in zip(row, places, strict=True):
                _bars(axes, report, [p for p in points if p.panel == column], side)
        for j, (column, side) in enumerate(places):
            # Stack the parts of a heading, wrapped to the panel's width.
            title = [textwrap.fill(part, 28) for part in column.split(" · ")]
            title = title if side == "value" else []
            title += [_called(report, side)] if len(places) > len(columns) else []
            panels[0][j].set_title("\n".join(title), loc="left", color=COLOURS[side])
            panels[-1][j].set_xlabel(_scale(columns[column][0])[1])


COLOURS = {"value": OURS, "paper": PAPERS}


def _bars(axes: Axes, report: FigureReport, points: Sequence[Point], side: str) -> None:
    """Draw points as bars, the first on top; the paper's are hatched and have no intervals."""
    plots.plain_frame(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.axvline(0.0, color=MUTED, linewidth=0.8)
    axes.set_yticks(range(len(points)), [point.at for point in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    beside: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "va": "center"}
    for i, point in enumerate(points):
        number = getattr(point, side)
        if number is None:
            why = report.why_missing(point) if side == "value" else point.papers
            axes.annotate(why, (0, i), **beside, color=MUTED, style="italic")
        elif side == "paper":
            axes.barh(i, number, height=0.62, color="white", edgecolor=PAPERS, hatch="////")
            axes.annotate(point.papers, (max(number, 0.0), i), **beside, color=INK)
            axes.margins(x=0.4)  # room for the numbers at the ends of the bars
        else:
            errors: dict[str, Any] = {}
            if point.high is not None:
                errors = {"xerr": _interval([point]), "capsize": 2}
            length = _scale(point)[0] * number
            axes.barh(i, length, height=0.62, color=OURS, alpha=0.85, ecolor=INK, **errors)


def draw_lines(report: FigureReport, canvas: Canvas) -> None:
    """Draw a panel for each topic or size, with shared axes, ours above the paper's."""
    panels, sides = _by("panel", report.points), _sides(report.points)
    series = list(_by("series", report.points))
    places = sorted({int(point.at) for point in report.points})
    columns = min(MOST_PANELS, len(panels))
    rows = -(-len(panels) // columns)
    size = (2.9 * columns + 0.4, 2.2 * rows * len(sides) + 1.0)
    shape = {"sharex": True, "sharey": "row" if len(sides) > 1 else True}
    with canvas(size, rows * len(sides), columns, **shape) as (sheet, grid):
        for row, side in enumerate(sides):
            for axes, (name, points) in zip(grid[row * rows :].flat, panels.items(), strict=False):
                plots.plain_frame(axes, grid="y")
                several = [_called(report, side)] if len(sides) > 1 else []
                axes.set_title("\n".join([name, *several]), loc="left")
                axes.set_xticks(range(places[0], places[-1] + 1))
                axes.set_xlim(places[0] - 0.3, places[-1] + 0.3)
                axes.set_xlabel("training iterations")
                for i, (label, own) in enumerate(_by("series", points).items()):
                    known = [point for point in own if getattr(point, side) is not None]
                    # Offset horizontally, so that no interval hides another.
                    at = [int(p.at) + 0.06 * (i - (len(series) - 1) / 2) for p in known]
                    _line(axes, at, known, series.index(label), side)
                if points[0].quantity == "share":
                    axes.set_ylim(bottom=0.0)
            grid[row * rows][0].set_ylabel(_scale(report.points[0])[1])
        for axes in grid.flat:
            axes.set_visible(bool(axes.get_title()))
        if len(series) > 1:
            sheet.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center",
                         ncols=len(series), frameon=False)  # fmt: skip


def _line(axes: Axes, at: Any, points: Sequence[Point], i: int, side: str = "value") -> None:
    colour, marker, dashes = STYLES[i % len(STYLES)]
    heights = [_scale(point)[0] * getattr(point, side) for point in points]
    errors = _interval(points) if side == "value" else None
    label = points[0].series if points else None
    axes.errorbar(at, heights, errors, color=colour, marker=marker, linestyle=dashes,
                  linewidth=1.3, markersize=4.5, elinewidth=1, capsize=2, label=label)  # fmt: skip


def draw_ratings(report: FigureReport, canvas: Canvas) -> None:
    """Draw a polygon for each complete series, and list the others in the legend."""
    categories = list(_by("at", report.points))
    values = [point.value for point in report.points if point.value is not None]
    polar = {"projection": "polar"}
    with canvas((8.0, 5.4), subplot_kw=polar) as (sheet, panels):
        axes = panels[0][0]
        angles = np.arange(len(categories)) * 2 * np.pi / len(categories)
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_xticks(angles, categories)
        axes.tick_params(axis="x", pad=14)
        axes.grid(color=GRID, linewidth=0.6)
        if values:
            # The axis need not start at the lowest rating; its labels show where it does.
            axes.set_ylim(math.floor(min(values) - 0.5), math.ceil(max(values)))
        for i, (name, points) in enumerate(_by("series", report.points).items()):
            missing = [point for point in points if point.value is None]
            if missing:
                axes.plot([], [], label=f"{name}: {report.why_missing(missing[0])}")
            else:
                _line(axes, [*angles, 2 * np.pi], [*points, points[0]], i)
        sheet.legend(loc="outside right center", frameon=False)


def draw_densities(report: FigureReport, canvas: Canvas) -> None:
    """Draw a histogram of prompts for each metric, all with the same axes.

    A bar far above all others would flatten them, so it is cut off and labeled with its share.
    """
    metrics = _by("series", _by("panel", report.points)[HISTOGRAM])
    shares = [sorted(100 * (p.value or 0.0) for p in bins) for bins in metrics.values()]
    top = 1.4 * max(own[-2] for own in shares) or 100.0
    size = (2.1 * len(metrics) + 0.4, 3.0)
    with canvas(size, 1, len(metrics), sharey=True) as (_, panels):
        for axes, (metric, bins) in zip(panels[0], metrics.items(), strict=True):
            plots.plain_frame(axes, grid="y")
            axes.set_title(metric.rstrip(")").replace(" (", "\n"), loc="left")
            if any(point.value is None for point in bins):
                plots.note(axes, report.why_missing(bins[0]))
                continue
            width = 1.0 / len(bins)
            middles = [float(point.at) + width / 2 for point in bins]
            heights = [100 * (point.value or 0.0) for point in bins]
            axes.bar(middles, heights, width=width, color=OURS, alpha=0.85, yerr=_interval(bins),
                     ecolor=INK)  # fmt: skip
            for middle, height in zip(middles, heights, strict=True):
                if height > top:
                    axes.text(middle + width, 0.96 * top, f"{height:.0f}%: cut off", va="top")
            axes.set_xlim(0.0, 1.0)
            axes.set_ylim(0.0, top)
            axes.set_xlabel("value, from 0 to 1")
        panels[0][0].set_ylabel("share of prompts (%)")


def variance_bounds(gap: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the smallest and largest possible variance of n rewards with a given range.

    For range R, the variance is at least R²/2n (all but the two extremes at the midpoint) and at
    most R²/4, a little less for odd n (half at each extreme).
    """
    low, high = n // 2, n - n // 2
    return np.asarray(gap**2 / (2 * n)), np.asarray(gap**2 * low * high / n**2)


def draw_correlation(report: FigureReport, canvas: Canvas) -> None:
    """Draw a dot for each prompt of the first seed, with the theoretical bounds on the variance.

    The correlations shown are over all seeds.
    """
    figure, data = report.figure, report.data
    assert isinstance(figure, CorrelationFigure)
    assert isinstance(data, PromptData)
    with canvas((6.4, 4.6)) as (_, panels):
        axes = panels[0][0]
        plots.plain_frame(axes)
        axes.set_xlabel(f"{NAMES[figure.x]}, in units of the reward model")
        axes.set_ylabel(NAMES[figure.y])
        points = _by("at", report.points)[RHO]
        if any(point.state != "ok" for point in points):
            plots.note(axes, report.why_missing(points[0]))
            return
        first = data.of()[0]
        x, y = xy(figure, first)
        axes.scatter(x, y, s=9, color=OURS, alpha=0.45, linewidths=0, zorder=3,
                     label=f"prompts of seed {data.seeds[0]}")  # fmt: skip
        if (figure.x, figure.y) == ("a_min", "var"):
            gap = np.linspace(0.0, float(x.max()), 100)
            bounds = variance_bounds(gap, first.rewards.shape[1])
            for name, dashes, bound in zip(("least", "largest"), ":-", bounds, strict=True):
                axes.plot(gap, bound, color=INK, linewidth=0.9, linestyle=dashes,
                          label=f"{name} possible variance")  # fmt: skip
        told = [f"{RHO} = {report.text_of(point)}, {point.series}" for point in points]
        axes.text(0.02, 0.98, "\n".join(told), transform=axes.transAxes, va="top")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88), frameon=False)


DRAW: Mapping[str, Callable[[FigureReport, Canvas], None]] = {
    "gains": draw_bars,
    "iterations": draw_lines,
    "ratings": draw_ratings,
    "shares": draw_lines,
    "densities": draw_densities,
    "correlation": draw_correlation,
    "topics": draw_bars,
}


def figure_picture(report: FigureReport) -> Picture:
    draw = functools.partial(draw_figure, report)
    return Picture(report.heading, FILE, report.alt, draw, tuple(report.findings))


def draw_figure(report: FigureReport, target: Target) -> None:
    below = f"{report.profile} · scale: {report.scale} · {report.seed_count} · intervals: 95%"
    described = (report.figure.title, report.alt)
    canvas = functools.partial(
        plots.canvas, target, report.figure.id, below=below, described=described
    )
    DRAW[report.figure.kind](report, canvas)
