"""A radar: one polygon for each series, one axis for each category."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from harness.report.figures.drawing import MUTED, STYLES, Drawing, canvas, half_widths


def draw(drawing: Drawing, path: Path) -> None:
    """Draw the polygons of the series that are whole; name the others in the legend."""
    categories, series = drawing.distinct("at"), drawing.distinct("series")
    values = [point.value for point in drawing.points if point.value is not None]
    polar = {"projection": "polar"}
    with canvas(drawing, path, 1, 1, (8.0, 5.4), subplot_kw=polar) as (sheet, panels):
        axes = panels[0][0]
        angles = np.arange(len(categories)) * 2 * np.pi / len(categories)
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_xticks(angles, categories)
        axes.tick_params(axis="x", pad=14)
        if values:
            # The axis need not start at the worst rating; its numbers say where it does.
            low, high = math.floor(min(values) - 0.5), math.ceil(max(values))
            axes.set_ylim(low, high)
            axes.set_yticks(range(low + 1, high + 1))
        axes.set_rlabel_position(180 / len(categories))
        axes.tick_params(axis="y", labelsize=7.5, labelcolor=MUTED)
        axes.grid(color="#dddddd", linewidth=0.6)
        for i, name in enumerate(series):
            points = drawing.at(series=name)
            colour, marker, dashes = STYLES[i % len(STYLES)]
            missing = [point for point in points if point.value is None]
            if missing:
                label = f"{name}: {drawing.missing(missing[0])}"
                axes.plot([], [], color=colour, marker=marker, linestyle=dashes, label=label)
                continue
            radii = [point.value or 0.0 for point in points]
            axes.plot([*angles, angles[0]], [*radii, radii[0]], color=colour, marker=marker,
                      linestyle=dashes, linewidth=1.4, markersize=4, label=name)  # fmt: skip
            # Side by side, so that no interval hides another.
            aside = angles + 0.02 * (i - (len(series) - 1) / 2)
            axes.errorbar(aside, radii, yerr=half_widths(points), fmt="none", ecolor=colour,
                          elinewidth=0.8, alpha=0.6)  # fmt: skip
        sheet.legend(loc="outside right center", frameon=False, fontsize=8.5)
