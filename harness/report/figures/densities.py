"""How the values of each informativeness metric are distributed over prompts.

A metric is scaled from 0 to 1 over the prompts of a seed. Shares and quartiles are taken in each
seed and averaged over the seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.registry.figures import DensitiesFigure
from harness.report.figures.metrics import NAMES, scaled, values_of
from harness.report.figures.point import Point, Quantity, seeds_point
from harness.report.figures.rewards import Floats, RewardData

SUMMARY, HISTOGRAM = "summary", "histogram"
"""Panels: what is told of a metric, and the share of prompts in each bin."""

LOW = 0.1
"""Values below this, from 0 to 1, count as low."""

TOLD: tuple[tuple[str, Quantity, Callable[[Floats], float]], ...] = (
    ("at the least value", "share", lambda v: float((v == 0.0).mean())),
    (f"below {LOW:g}", "share", lambda v: float((v < LOW).mean())),
    ("lower quartile", "level", lambda v: float(np.quantile(v, 0.25))),
    ("median", "level", lambda v: float(np.median(v))),
    ("upper quartile", "level", lambda v: float(np.quantile(v, 0.75))),
)
"""What is told of a metric: name, quantity, and how it is computed from the scaled values."""


def density_points(figure: DensitiesFigure, data: RewardData) -> list[Point]:
    """Return what is told of each metric, then its histogram."""
    points = []
    for metric in figure.metrics:
        name = NAMES[metric]
        seeds = [scaled(values_of(part.rewards, metric)) for part in data.parts]
        for at, quantity, number in TOLD:
            told = [number(values) for values in seeds]
            points.append(seeds_point((SUMMARY, name, at), quantity, "0-1", data.found, told))
        edges = np.linspace(0.0, 1.0, figure.bins + 1)
        shares = [np.histogram(values, edges)[0] / len(values) for values in seeds]
        for i, edge in enumerate(edges[:-1]):
            in_bin = [float(seed[i]) for seed in shares]
            place = (HISTOGRAM, name, f"{edge:.4g}")
            points.append(seeds_point(place, "share", "0-1", data.found, in_bin))
    return points
