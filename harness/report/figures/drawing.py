"""Draws figures: one function for each form, over one tidy frame of the drawn points.

The frame has a line for each point: block, row, column, and value, low, high and paper in the units
of the axis.
"""

from __future__ import annotations

import functools
import itertools
import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.registry.figures import CorrelationFigure
from harness.report import plots
from harness.report.figures.data import Floats, PromptData
from harness.report.figures.points import Point, label_of, xy
from harness.report.figures.report import FigureReport
from harness.report.plots import INK, MUTED, OURS, PAGE_WIDTH, PAPERS, STYLES, Picture, Target
from harness.report.view import NO_PAPER

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Canvas = Callable[..., AbstractContextManager["tuple[Figure, Any]"]]
"""Opens a canvas of a given size and panels, as `harness.report.plots.canvas` does."""

FILE = "figure.svg"
MOST_PANELS = 4
"""Maximum number of line panels per row."""


def _scale(point: Point) -> tuple[float, str]:
    """Return the factor that scales a point's numbers for drawing, and the axis label."""
    units = {"%": "percentage points", "1-10": "points of 1 to 10"}
    if point.quantity == "gain":
        return 1.0, f"gain ({units[point.unit]})" if point.unit in units else "gain"
    if point.quantity == "share":
        return 100.0, "share (%)"
    names = {"reward": "units of the reward model", "1-10": "rating (1 to 10)"}
    return 1.0, names.get(point.unit, point.unit)


def frame_of(report: FigureReport) -> pd.DataFrame:
    import pandas as pd

    lines = []
    for point in report.drawn:
        factor, unit = _scale(point)
        numbers = {name: getattr(point, name) for name in ("value", "low", "high", "paper")}
        scaled = {n: np.nan if v is None else factor * v for n, v in numbers.items()}
        place = dict(zip(("block", "row", "column"), report.kind.place(point), strict=True))
        lines.append({**place, **scaled, "unit": unit, "why": report.why_missing(point)})
    return pd.DataFrame(lines)


def _parts(frame: pd.DataFrame, name: str) -> list[tuple[str, pd.DataFrame]]:
    return [(str(key), own) for key, own in frame.groupby(name, sort=False)]


def _mark(
    axes: Axes, own: pd.DataFrame, at: Any, side: str, *, flat: bool = False, **style: Any
) -> Any:
    """Draw the numbers of a side at places on the x axis, or on the y axis if `flat`."""
    known = own[side].notna().to_numpy()
    own, at = own[known], np.asarray(at)[known]
    errors: Any = None
    if side == "value":
        errors = [(own["value"] - own["low"]).fillna(0.0), (own["high"] - own["value"]).fillna(0.0)]
    x, y = (own[side], at) if flat else (at, own[side])
    style |= {"xerr" if flat else "yerr": errors}
    return axes.errorbar(x, y, elinewidth=1, capsize=2, **style)


def _sides(report: FigureReport, frame: pd.DataFrame) -> dict[str, str]:
    """Return the sides that are drawn, ours and the paper's if it prints any, with their names."""
    ours = "ours, on a stand-in" if report.stand_in else "ours"
    return {"value": ours} | ({"paper": "the paper's"} if frame["paper"].notna().any() else {})


def draw_dots(report: FigureReport, frame: pd.DataFrame, canvas: Canvas) -> None:
    """Draw a panel for each block and column: in each row our dot above the paper's."""
    blocks, columns = (list(frame[name].unique()) for name in ("block", "column"))
    rows = [frame.loc[frame["block"] == block, "row"].nunique() for block in blocks]
    sides = _sides(report, frame)
    heights = [max(0.32 * count, _LEAST_HEIGHT) for count in rows]
    shape = {"sharex": "col", "sharey": "row", "gridspec_kw": {"height_ratios": heights}}
    size = (PAGE_WIDTH, 1.2 + sum(heights))
    with canvas(size, len(blocks), len(columns), **shape) as (sheet, panels):
        handles: dict[str, Any] = {}
        for (i, (block, inner)), (j, column) in itertools.product(
            enumerate(_parts(frame, "block")), enumerate(columns)
        ):
            own = inner[inner["column"] == column]
            axes, places = panels[i][j], np.arange(float(len(own)))
            plots.plain_frame(axes, grid="both")
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.set_yticks(places, own["row"])
            axes.set_ylim(len(own) - 0.4, -0.6)
            if report.figure.kind == "gains":
                axes.axvline(0.0, color=MUTED, linewidth=0.9)
            for k, (side, name) in enumerate(sides.items()):
                colour, marker, fill = _SIDES[side]
                at = places + (k - (len(sides) - 1) / 2) * 0.3
                handles[name] = _mark(axes, own, at, side, flat=True, color=colour, fmt=marker,
                                      markersize=4.5, markerfacecolor=fill)  # fmt: skip
            for place, why in zip(places, own["why"], strict=True):
                axes.annotate(why, (0.02, place), xycoords=("axes fraction", "data"), va="center",
                              color=MUTED, style="italic")  # fmt: skip
            if i == 0:
                # Stack the parts of a heading, wrapped to the panel's width.
                width = 84 // len(columns)
                parts = [textwrap.fill(part, width) for part in column.split(" · ")]
                axes.set_title("\n".join(parts), loc="left")
            if i == len(blocks) - 1:
                axes.set_xlabel(own["unit"].iloc[0])
            if j == 0:
                axes.set_ylabel(block.replace(": ", ":\n").replace(" (", "\n("))
        if len(sides) > 1:
            sheet.legend(handles.values(), handles, loc="outside upper center", ncols=2,
                         frameon=False)  # fmt: skip


_LEAST_HEIGHT = 1.1
"""Least height of a panel in inches, which the name of its block needs beside it."""

_SIDES = {"value": (OURS, "o", OURS), "paper": (PAPERS, "D", "white")}
"""Color, marker and fill of each side."""


def draw_lines(report: FigureReport, frame: pd.DataFrame, canvas: Canvas) -> None:
    """Draw a panel for each block, with a line for each row; without blocks, a panel for each row.

    Columns are training iterations. The paper's panels are below ours.
    """
    frame = frame.copy()
    if report.kind.block is None:
        frame["block"], frame["row"] = frame["row"], ""
    blocks, series = (list(frame[name].unique()) for name in ("block", "row"))
    sides, steps = _sides(report, frame), list(frame["column"].unique())
    numbered = all(step.isdigit() for step in steps)
    frame["step"] = [int(c) if numbered else steps.index(c) for c in frame["column"]]
    n = min(MOST_PANELS, len(blocks))
    rows = -(-len(blocks) // n)
    shape = {"sharex": True, "sharey": "row" if len(sides) > 1 else True}
    size = (PAGE_WIDTH, 2.1 * rows * len(sides) + 0.9)
    with canvas(size, rows * len(sides), n, **shape) as (sheet, grid):
        handles: dict[str, Any] = {}
        for axes in grid.flat[len(blocks) * len(sides) :]:
            axes.set_visible(False)
        for k, (side, name) in enumerate(sides.items()):
            for i, (block, points) in enumerate(_parts(frame, "block")):
                axes = grid[k * rows + i // n][i % n]
                plots.plain_frame(axes, grid="y")
                axes.set_title(block, loc="left")
                axes.set_xlim(frame["step"].min() - 0.3, frame["step"].max() + 0.3)
                axes.set_xticks(sorted(frame["step"].unique()))
                if i % n == 0:
                    unit = points["unit"].iloc[0]
                    axes.set_ylabel(f"{name} ({unit})" if len(sides) > 1 else unit)
                if k == len(sides) - 1 and i + n >= len(blocks):
                    axes.set_xlabel("training iterations")
                    axes.tick_params(labelbottom=True)
                for row, own in _parts(points, "row"):
                    place = series.index(row)
                    colour, marker, dashes = STYLES[place % len(STYLES)]
                    # Offset horizontally, so that no interval hides another.
                    at = own["step"] + 0.06 * (place - (len(series) - 1) / 2)
                    drawn = _mark(axes, own, at, side, color=colour, marker=marker, markersize=4.5,
                                  linestyle=dashes, linewidth=1.3)  # fmt: skip
                    handles.setdefault(row, drawn)
                if points[side].isna().all():
                    plots.note(axes, points["why"].iloc[0] or NO_PAPER)
        if report.figure.kind == "shares":
            grid[0][0].set_ylim(bottom=0.0)  # last, since it ends the scaling to the data
        if len(series) > 1:
            sheet.legend(handles.values(), handles, loc="outside upper center", ncols=len(series),
                         frameon=False)  # fmt: skip
        if not numbered:
            told = (f"{i} {step.rpartition(': ')[2]}" for i, step in enumerate(steps))
            sheet.suptitle(f"Iterations: {', '.join(told)}", x=0.01, ha="left", fontsize=plots.SIZE)


def draw_histograms(report: FigureReport, frame: pd.DataFrame, canvas: Canvas) -> None:
    """Draw a histogram for each row over bins; a bar far above all others is cut off."""
    rows = list(frame["row"].unique())
    second = frame.groupby("row")["value"].apply(lambda own: own.nlargest(2).iloc[-1:].max())
    top = 1.4 * second.max() or 100.0
    size = (PAGE_WIDTH, 1.15 * len(rows) + 0.6)
    with canvas(size, len(rows), 1, sharex=True, sharey=True) as (sheet, panels):
        for axes, (row, own) in zip(panels[:, 0], _parts(frame, "row"), strict=True):
            plots.plain_frame(axes, grid="y")
            axes.set_title(row, loc="left")
            axes.set_xlim(0.0, 1.0)
            axes.set_ylim(0.0, np.nan_to_num(top, nan=100.0))
            if own["value"].isna().any():
                plots.note(axes, own["why"].iloc[0])
                continue
            width = 1.0 / len(own)
            errors = [own["value"] - own["low"], own["high"] - own["value"]]
            bars = axes.bar(own["column"].astype(float), own["value"], width=width, align="edge",
                            color=OURS, alpha=0.85, edgecolor="white",
                            yerr=np.nan_to_num(errors), error_kw={"elinewidth": 1})  # fmt: skip
            for bar in bars:
                if bar.get_height() > top:
                    share = f"{bar.get_height():.0f}%: cut off"
                    axes.annotate(share, (bar.get_x() + width, top), xytext=(4, -2), va="top",
                                  textcoords="offset points")  # fmt: skip
        panels[-1, 0].set_xlabel("value, scaled from 0 to 1 over the prompts of a seed")
        sheet.supylabel("share of prompts (%)", fontsize=plots.SIZE)


def variance_bounds(gap: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the smallest and largest possible variance of n rewards with a given range.

    For range R, the variance is at least R²/2n (all but the two extremes at the midpoint) and at
    most R²/4, a little less for odd n (half at each extreme).
    """
    low, high = n // 2, n - n // 2
    return np.asarray(gap**2 / (2 * n)), np.asarray(gap**2 * low * high / n**2)


def draw_scatter(report: FigureReport, frame: pd.DataFrame, canvas: Canvas) -> None:
    """Draw a dot for each prompt of the first seed; the numbers beside it are over all seeds."""
    figure, data = report.figure, report.data
    assert isinstance(figure, CorrelationFigure)
    assert isinstance(data, PromptData)
    with canvas((PAGE_WIDTH, 4.6)) as (_, panels):
        axes = panels[0][0]
        plots.plain_frame(axes)
        axes.set_xlabel(f"{label_of(figure.x)}, in units of the reward model")
        axes.set_ylabel(label_of(figure.y))
        if frame["value"].isna().any():
            plots.note(axes, frame["why"].iloc[0])
            return
        first = data.of()[0]
        x, y = xy(figure, first)
        axes.scatter(x, y, s=9, color=OURS, alpha=0.45, linewidths=0, zorder=3,
                     label=f"the {len(x)} prompts of seed {data.seeds[0]}")  # fmt: skip
        if (figure.x, figure.y) == ("a_min", "var"):
            gap = np.linspace(0.0, float(x.max()), 100)
            bounds = variance_bounds(gap, first.rewards.shape[1])
            for name, dashes, bound in zip(("least", "largest"), ":-", bounds, strict=True):
                axes.plot(gap, bound, color=INK, linewidth=0.9, linestyle=dashes,
                          label=f"{name} possible variance")  # fmt: skip
        axes.legend(loc="upper left", frameon=False, borderaxespad=0.0)
        for i, series in enumerate(frame["row"].unique()):
            at: dict[str, Any] = {"y": 0.8 - 0.05 * i, "transform": axes.transAxes, "va": "top"}
            axes.text(0.02, s=f"{series}:", **at)
            for j, point in enumerate(p for p in report.drawn if p.series == series):
                text = f"{point.at} {report.text_of(point)}"
                axes.text(0.24 + 0.24 * j, s=text, **at)


DRAW: Mapping[str, Callable[[FigureReport, pd.DataFrame, Canvas], None]] = {
    "gains": draw_dots,
    "iterations": draw_lines,
    "ratings": draw_lines,
    "shares": draw_lines,
    "densities": draw_histograms,
    "correlation": draw_scatter,
    "topics": draw_dots,
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
    DRAW[report.figure.kind](report, frame_of(report), canvas)
