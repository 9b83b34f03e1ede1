"""Means over seeds of a number that each seed has of its own.

Some numbers are no mean over benchmark prompts that all seeds answer: a rank correlation over the
training prompts of a seed, the share of a topic among them. Each seed gives one such number from
prompts of its own, and the numbers of the seeds are the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.errors import HarnessError


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its interval.

    Attributes:
        mean: Mean over the seeds.
        low: Lower end of the interval; None with one seed, whose spread is unknown.
        high: Upper end; None with one seed.
        seeds: Number of seeds.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int


def mean_over_seeds(values: Sequence[float], confidence: float = 0.95) -> SeedMean:
    """Return the mean of one value for each seed, with its t interval.

    Args:
        values: One value for each seed.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        HarnessError: There is no value, one is not finite, or the confidence is not between 0
            and 1.
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) == 0 or not np.isfinite(array).all():
        raise HarnessError(
            "A mean over seeds needs a finite value of each seed; leave out what is not defined."
        )
    if not 0.0 < confidence < 1.0:
        raise HarnessError(f"The confidence {confidence} is not between 0 and 1; use 0.95.")
    mean = float(array.mean())
    if len(array) == 1:
        return SeedMean(mean, None, None, 1)
    error = float(array.std(ddof=1)) / len(array) ** 0.5
    half = float(stats.t.ppf(0.5 + confidence / 2, len(array) - 1)) * error
    return SeedMean(mean, mean - half, mean + half, len(array))
