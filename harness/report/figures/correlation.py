"""One informativeness metric against another over prompts: Spearman's rank correlation.

Prompts whose rewards are all equal have the least value of advantage and variance alike, and tie.
The correlation is therefore given over all prompts and over those with any spread.

n rewards of range R have a variance of at least R²/2n, where all but the two ends lie in the
middle, and of at most R²/4 (a little less for odd n), where half of them lie at each end.
"""

from __future__ import annotations

import numpy as np

from harness.registry.figures import CorrelationFigure
from harness.report.figures.metrics import NAMES, values_of
from harness.report.figures.point import Point, seeds_point
from harness.report.figures.rewards import Floats, PromptRewards, RewardData

ALL, SPREAD = "all prompts", "prompts with any spread"
"""The prompts that a correlation is over."""

RHO, PROMPTS = "Spearman's ρ", "prompts of a seed"


def correlation_points(figure: CorrelationFigure, data: RewardData) -> list[Point]:
    """Return the rank correlation and the number of prompts, over all and over those that vary."""
    from harness.statistics import spearman

    points = []
    for series in (ALL, SPREAD):
        pairs = [xy(figure, part, only_spread=series == SPREAD) for part in data.parts]
        rho = [spearman(x.tolist(), y.tolist()) for x, y in pairs]
        place = ("", series, RHO)
        points.append(seeds_point(place, "rank correlation", "", data.found, rho))
        counts = [float(len(x)) for x, _ in pairs]
        points.append(seeds_point(("", series, PROMPTS), "count", "", data.found, counts))
    return points


def correlation_findings(figure: CorrelationFigure, points: list[Point]) -> list[str]:
    """Return what was measured, in a sentence; none while it was not."""
    rho = {point.series: point for point in points if point.at == RHO}
    if any(point.value is None for point in rho.values()):
        return []
    told = ", ".join(f"{p.value:.3f} over {series}" for series, p in rho.items())
    names = f"{NAMES[figure.x]} and {NAMES[figure.y]}"
    return [f"Rank correlation of {names}, mean over seeds: {told}."]


def xy(
    figure: CorrelationFigure, part: PromptRewards, *, only_spread: bool = False
) -> tuple[Floats, Floats]:
    """Return both metrics of a seed's prompts, in the reward model's units.

    Args:
        figure: The figure.
        part: The rewards of a seed.
        only_spread: Leave out prompts whose rewards are all equal.
    """
    rewards = part.rewards
    if only_spread:
        rewards = rewards[np.ptp(rewards, axis=1) > 0.0]
    if not len(rewards):
        return np.empty(0), np.empty(0)
    return values_of(rewards, figure.x), values_of(rewards, figure.y)


def variance_bounds(gap: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the least and the largest variance that n rewards of a range can have.

    Args:
        gap: Ranges, in the reward model's units.
        n: Rewards of a prompt, at least 2.
    """
    low, high = n // 2, n - n // 2
    return np.asarray(gap**2 / (2 * n)), np.asarray(gap**2 * low * high / n**2)
