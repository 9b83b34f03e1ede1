"""Histograms side by side: the share of prompts in each bin of each metric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.figures.densities import HISTOGRAM
from harness.report.figures.drawing import (
    INK,
    OURS,
    Drawing,
    canvas,
    half_widths,
    note,
    plain_frame,
)
from harness.report.figures.point import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(drawing: Drawing, path: Path) -> None:
    """Draw a panel for each metric, all with the same axes.

    A bar far above all others would flatten them; it is cut off and its share written on it.
    """
    points = drawing.at(panel=HISTOGRAM)
    metrics = list(dict.fromkeys(point.series for point in points))
    top = _top(points, metrics)
    with canvas(drawing, path, 1, len(metrics), (2.1 * len(metrics) + 0.4, 3.0), sharey=True) as (
        _, panels,
    ):  # fmt: skip
        for axes, metric in zip(panels[0], metrics, strict=True):
            plain_frame(axes, grid="y")
            name, _, symbol = metric.partition(" (")
            axes.set_title(f"{name}\n{symbol.rstrip(')')}", loc="left")
            bins = [point for point in points if point.series == metric]
            if any(point.value is None for point in bins):
                note(axes, drawing.missing(bins[0]))
                continue
            _histogram(axes, bins, top)
        panels[0][0].set_ylabel("share of prompts (%)")


def _top(points: Sequence[Point], metrics: Sequence[str]) -> float:
    """Return the end of the axis in %: above the second highest bar of every metric."""
    second = [
        sorted(point.value or 0.0 for point in points if point.series == metric)[-2]
        for metric in metrics
    ]
    return 100 * max(second, default=0.0) * 1.4 or 100.0


def _histogram(axes: Axes, bins: Sequence[Point], top: float) -> None:
    width = 1.0 / len(bins)
    middles = [float(point.at) + width / 2 for point in bins]
    shares = [100 * (point.value or 0.0) for point in bins]
    axes.bar(middles, shares, width=width, color=OURS, alpha=0.85)
    errors = [[100 * value for value in side] for side in half_widths(bins)]
    axes.errorbar(middles, shares, yerr=errors, fmt="none", ecolor=INK, elinewidth=0.8)
    for middle, share in zip(middles, shares, strict=True):
        if share > top:
            axes.text(middle + width, 0.96 * top, f"{share:.0f}%: cut off", va="top", fontsize=7.5)
    axes.set_xlim(0.0, 1.0)
    axes.set_xticks([0.0, 0.5, 1.0])
    axes.set_ylim(0.0, top)
    axes.set_xlabel("value, from 0 to 1")
