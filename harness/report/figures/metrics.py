"""Informativeness metrics as figures show them: by name, and scaled from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.eva.informativeness import informativeness
from harness.report.figures.rewards import Floats

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
"""What a metric is called in a figure."""


def values_of(rewards: Floats, metric: str) -> Floats:
    """Return a metric of each prompt, in the reward model's units (variance: squared).

    Args:
        rewards: Shape (prompts, answers).
        metric: The metric.
    """
    return informativeness(rewards, metric)


def scaled(values: Floats) -> Floats:
    """Return values from 0 to 1, min-max normalised as weights are; all 0 where they are equal."""
    width = float(np.ptp(values))
    if width == 0.0:
        return np.zeros_like(values)
    return np.asarray((values - values.min()) / width)
