"""A scatter plot of two metrics: a dot for each prompt of a seed, between arithmetic's bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.registry.figures import CorrelationFigure
from harness.report.figures.correlation import RHO, variance_bounds, xy
from harness.report.figures.drawing import INK, OURS, Drawing, canvas, note, plain_frame
from harness.report.figures.metrics import NAMES
from harness.report.figures.rewards import RewardData


def draw(drawing: Drawing, path: Path) -> None:
    """Draw the prompts of the first seed; the correlations beside them are over all seeds."""
    figure, data = drawing.figure, drawing.data
    assert isinstance(figure, CorrelationFigure)
    assert isinstance(data, RewardData)
    with canvas(drawing, path, 1, 1, (6.4, 4.6)) as (_, panels):
        axes = panels[0][0]
        plain_frame(axes)
        axes.set_xlabel(f"{NAMES[figure.x]}, in units of the reward model")
        axes.set_ylabel(f"{NAMES[figure.y]}")
        points = drawing.at(at=RHO)
        if any(point.state != "ok" for point in points):
            note(axes, drawing.missing(points[0]))
            return
        first = data.parts[0]
        x, y = xy(figure, first)
        axes.scatter(x, y, s=9, color=OURS, alpha=0.45, linewidths=0, zorder=3,
                     label=f"prompts of seed {data.seeds[0]}")  # fmt: skip
        if (figure.x, figure.y) == ("a_min", "var"):
            gap = np.linspace(0.0, float(x.max()), 100)
            low, high = variance_bounds(gap, first.rewards.shape[1])
            axes.plot(gap, high, color=INK, linewidth=0.9, linestyle="--",
                      label="largest possible variance")  # fmt: skip
            axes.plot(gap, low, color=INK, linewidth=0.9, linestyle=":",
                      label="least possible variance")  # fmt: skip
        told = [
            f"{RHO} = {point.value:.3f}{_interval(point.low, point.high)}, {point.series}"
            for point in points
            if point.value is not None
        ]
        axes.text(0.02, 0.98, "\n".join(told), transform=axes.transAxes, va="top", fontsize=8)
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88), frameon=False, fontsize=8)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" (95%: {low:.3f} to {high:.3f})"
