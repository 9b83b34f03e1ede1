"""Numbers of figures that come from single prompts: shares, densities, correlations, topics.

Each number is taken in each seed over its prompts and averaged over the seeds.

Prompts whose rewards are all equal have the least value of advantage and variance alike, and tie.
A correlation is therefore given over all prompts and over those with any spread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.eva.informativeness import informativeness
from harness.registry.figures import (
    CorrelationFigure,
    DensitiesFigure,
    SharesFigure,
    TopicsFigure,
)
from harness.report.figures.points import Point, Quantity, seeds_point
from harness.report.figures.prompts import Floats, PromptRewards, RewardData, ShareData
from harness.statistics import spearman

NAMES: Mapping[str, str] = {
    "a_min": "best less worst (A*_min)",
    "a_avg": "best less mean (A*_avg)",
    "a_dis": "best less second best (A*_dis)",
    "var": "variance (var)",
    "mean": "mean (avg)",
    "mean_inv": "mean (1/avg inverts it)",
    "a_min_inv": "best less worst (1/A*_min inverts it)",
    "uniform": "uniform",
}
"""What an informativeness metric is called in a figure."""

ALL_TOPICS = "all topics"
"""Stands for the topics while none are known."""

TRAINED_SHARE = "share of training prompts"

SUMMARY, HISTOGRAM = "summary", "histogram"
"""Panels of densities: what is told of a metric, and the share of prompts in each bin."""

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

ALL, SPREAD = "all prompts", "prompts with any spread"
"""The prompts that a correlation is over."""

RHO, PROMPTS = "Spearman's ρ", "prompts of a seed"

SHARE, MEAN = "share of prompts", "mean reward"
"""Panels of topics, beside that of the reward gap."""


def scaled(values: Floats) -> Floats:
    """Return values from 0 to 1, min-max normalised as weights are; all 0 where they are equal."""
    width = float(np.ptp(values))
    if width == 0.0:
        return np.zeros_like(values)
    return np.asarray((values - values.min()) / width)


def share_points(_: SharesFigure, data: ShareData) -> list[Point]:
    """Return the share of each topic among the training prompts of each iteration."""
    points = []
    for topic in data.topics or (ALL_TOPICS,):
        for iteration, found in data.found.items():
            parts = [data.prompts.get((iteration, seed)) for seed in data.seeds]
            shares = [sum(t == topic for _, t in part) / len(part) for part in parts if part]
            place = (topic, TRAINED_SHARE, str(iteration))
            points.append(seeds_point(place, "share", "", found, shares))
    return points


def density_points(figure: DensitiesFigure, data: RewardData) -> list[Point]:
    """Return what is told of each metric, from 0 to 1 over a seed's prompts, then its histogram."""
    points = []
    for metric in figure.metrics:
        name = NAMES[metric]
        seeds = [scaled(informativeness(part.rewards, metric)) for part in data.parts]
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


def correlation_points(figure: CorrelationFigure, data: RewardData) -> list[Point]:
    """Return the rank correlation and the number of prompts, over all and over those that vary."""
    points = []
    for series in (ALL, SPREAD):
        pairs = [xy(figure, part, only_spread=series == SPREAD) for part in data.parts]
        rho = [spearman(x.tolist(), y.tolist()) for x, y in pairs]
        place = ("", series, RHO)
        points.append(seeds_point(place, "rank correlation", "", data.found, rho))
        counts = [float(len(x)) for x, _ in pairs]
        points.append(seeds_point(("", series, PROMPTS), "count", "", data.found, counts))
    return points


def correlation_findings(figure: CorrelationFigure, points: Sequence[Point]) -> list[str]:
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
    return informativeness(rewards, figure.x), informativeness(rewards, figure.y)


def variance_bounds(gap: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the least and the largest variance that n rewards of a range can have.

    n rewards of range R have a variance of at least R²/2n, where all but the two ends lie in the
    middle, and of at most R²/4 (a little less for odd n), where half of them lie at each end.

    Args:
        gap: Ranges, in the reward model's units.
        n: Rewards of a prompt, at least 2.
    """
    low, high = n // 2, n - n // 2
    return np.asarray(gap**2 / (2 * n)), np.asarray(gap**2 * low * high / n**2)


def gap_name(figure: TopicsFigure) -> str:
    """Return what the reward gap is called."""
    return f"reward gap: {NAMES[figure.gap]}"


def topic_points(figure: TopicsFigure, data: RewardData) -> list[Point]:
    """Return share, mean reward and reward gap of each topic."""
    gaps = [informativeness(part.rewards, figure.gap) for part in data.parts]
    means = [part.rewards.mean(axis=1) for part in data.parts]
    points = []
    for topic in data.topics or (ALL_TOPICS,):
        chosen = [np.array([t == topic for t in part.topics]) for part in data.parts]
        quantities: tuple[tuple[str, Quantity, Sequence[float | None]], ...] = (
            (SHARE, "share", [float(inside.mean()) for inside in chosen]),
            (MEAN, "reward", _means(means, chosen)),
            (gap_name(figure), "reward", _means(gaps, chosen)),
        )
        for panel, quantity, values in quantities:
            unit = "" if quantity == "share" else "reward"
            points.append(seeds_point((panel, panel, topic), quantity, unit, data.found, values))
    return points


def _means(values: Sequence[Floats], chosen: Sequence[Floats]) -> list[float | None]:
    """Return the mean over the chosen prompts of each seed, None where a seed has none."""
    return [
        float(of_seed[inside].mean()) if inside.any() else None
        for of_seed, inside in zip(values, chosen, strict=True)
    ]


def topic_findings(figure: TopicsFigure, points: Sequence[Point]) -> list[str]:
    """Return which topics lie at the ends, and how the two orders agree; none while unknown."""
    means = {p.at: p.value for p in points if p.panel == MEAN and p.value is not None}
    gaps = {p.at: p for p in points if p.panel == gap_name(figure) and p.value is not None}
    if len(means) < 2 or means.keys() != gaps.keys():
        return []
    lowest = min(means, key=means.__getitem__)
    first, second = sorted(gaps.values(), key=lambda point: -(point.value or 0.0))[:2]
    said = [
        f"The topic with the lowest mean reward is {lowest} ({means[lowest]:.2f}).",
        f"The topic with the largest reward gap is {first.at} ({first.value:.2f}), before "
        f"{second.at} ({second.value:.2f}){_overlap(second, first)}.",
    ]
    rho = spearman(list(means.values()), [gaps[topic].value or 0.0 for topic in means])
    if rho is not None:
        said.append(
            f"Over the {len(means)} topics the rank correlation of mean reward and reward gap is "
            f"{rho:+.2f}."
        )
    return said


def _overlap(lower: Point, upper: Point) -> str:
    """Return in words that the intervals of two points overlap, nothing where they do not."""
    if lower.high is None or upper.low is None or lower.high < upper.low:
        return ""
    return ", whose interval overlaps with it"
