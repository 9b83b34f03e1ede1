"""Topics of prompts: their shares, their mean rewards, and how far rewards lie apart.

Each number is taken in each seed over its prompts of a topic and averaged over the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.registry.figures import TopicsFigure
from harness.report.figures.metrics import NAMES, values_of
from harness.report.figures.point import Point, Quantity, seeds_point
from harness.report.figures.rewards import Floats, PromptRewards, RewardData

SHARE, MEAN = "share of prompts", "mean reward"

ALL = "all topics"
"""Stands for the topics while none are known."""


def gap_name(figure: TopicsFigure) -> str:
    """Return what the reward gap is called."""
    return f"reward gap: {NAMES[figure.gap]}"


def topic_points(figure: TopicsFigure, data: RewardData) -> list[Point]:
    """Return share, mean reward and reward gap of each topic."""
    points = []
    for topic in data.topics or (ALL,):
        chosen = [np.array([t == topic for t in part.topics]) for part in data.parts]
        quantities: tuple[tuple[str, Quantity, Sequence[float | None]], ...] = (
            (SHARE, "share", [float(inside.mean()) for inside in chosen]),
            (MEAN, "reward", _means([part.rewards.mean(axis=1) for part in data.parts], chosen)),
            (gap_name(figure), "reward", _means(_gaps(figure, data.parts), chosen)),
        )
        for panel, quantity, values in quantities:
            unit = "" if quantity == "share" else "reward"
            points.append(seeds_point((panel, panel, topic), quantity, unit, data.found, values))
    return points


def _gaps(figure: TopicsFigure, parts: Sequence[PromptRewards]) -> list[Floats]:
    return [values_of(part.rewards, figure.gap) for part in parts]


def _means(values: Sequence[Floats], chosen: Sequence[Floats]) -> list[float | None]:
    """Return the mean over the chosen prompts of each seed, None where a seed has none."""
    return [
        float(of_seed[inside].mean()) if inside.any() else None
        for of_seed, inside in zip(values, chosen, strict=True)
    ]


def topic_findings(figure: TopicsFigure, points: list[Point]) -> list[str]:
    """Return which topics lie at the ends, and how the two orders agree; none while unknown."""
    from harness.statistics import spearman

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
