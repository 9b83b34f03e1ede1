"""Intervals for means and paired differences of per-prompt values.

With two seeds or more, prompts and seeds are both sampled and crossed
(`harness.statistics.variance`), and the interval says what another set of seeds *and* another set
of prompts would give. With one seed the variance between seeds is unknown: the interval is over
prompts only, says so in `over`, and no p-value is given, because nothing can be concluded about
the recipe from it.

A comparison is always paired: the same seeds and the same prompts on both sides, so that what
they share cancels. Where prompts themselves are scored, every seed has its own
(`harness.statistics.nested`), and a comparison is paired by seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError
from harness.statistics.matrix import ScoreMatrix
from harness.statistics.nested import NestedScores
from harness.statistics.spread import Spread
from harness.statistics.variance import Prior, crossed_moments

Scores = ScoreMatrix | NestedScores
"""The values behind a cell: on prompts that all seeds share, or on prompts of each seed's own."""

Over = Literal["prompts", "seeds and prompts"]


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, in the unit of the values.

    Attributes:
        mean: Mean over seeds and prompts.
        low: Lower end of the interval.
        high: Upper end of the interval.
        spreads: How far the mean may be off. There is one, or two where every seed has prompts of
            its own: by the seeds and by the prompts. The one that gives more counts.
        seeds: Number of seeds.
        prompts: Number of prompts; those of all seeds together where each has its own.
        over: What was resampled in thought: "prompts" with one seed, else "seeds and prompts".
        confidence: Nominal coverage, for example 0.95.
    """

    mean: float
    low: float
    high: float
    spreads: tuple[Spread, ...]
    seeds: int
    prompts: int
    over: Over
    confidence: float

    @property
    def standard_error(self) -> float:
        """Standard error of the mean, from the spread behind the interval."""
        return self._widest.standard_error

    @property
    def df(self) -> float:
        """Degrees of freedom of that standard error."""
        return self._widest.df

    @property
    def _widest(self) -> Spread:
        return max(self.spreads, key=lambda spread: spread.half_width(self.confidence))

    def p_above_zero(self) -> float:
        """Return the one-sided p-value against a true mean of zero or less."""
        return max(spread.p_above_zero(self.mean) for spread in self.spreads)


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference with its interval and the test of no difference.

    Attributes:
        p_value: Two-sided p-value against a true difference of zero, from the same spreads as the
            interval, so that it is below 1 - confidence just when the interval excludes zero.
            None with one seed.
    """

    p_value: float | None


def mean_interval(
    values: Scores | npt.ArrayLike, confidence: float = 0.95, prior: Prior | None = None
) -> Interval:
    """Return the mean of scores with its interval.

    Args:
        values: Per-prompt values, seeds x prompts, or nested scores.
        confidence: Nominal coverage, strictly between 0 and 1.
        prior: What is known of the seeds' mean square from elsewhere; not used for nested scores
            or one seed.

    Raises:
        HarnessError: The matrix is incomplete or the confidence is not between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise HarnessError(f"The confidence {confidence} is not between 0 and 1; use 0.95.")
    scores = values if isinstance(values, NestedScores) else ScoreMatrix.of(values)
    spreads = scores.spreads() if isinstance(scores, NestedScores) else (_crossed(scores, prior),)
    seeds, mean = len(scores.seeds), scores.mean
    over: Over = "prompts" if seeds == 1 else "seeds and prompts"
    half = max(spread.half_width(confidence) for spread in spreads)
    return Interval(mean, mean - half, mean + half, spreads, seeds, scores.count, over, confidence)


def _crossed(matrix: ScoreMatrix, prior: Prior | None) -> Spread:
    """Return how far the mean of a matrix may be off; of one seed, over its prompts alone."""
    seeds, prompts = matrix.values.shape
    if seeds == 1:
        return Spread(float(np.sqrt(float(matrix.values[0].var(ddof=1)) / prompts)), prompts - 1.0)
    moments = crossed_moments(matrix.values, prior)
    return Spread(float(np.sqrt(float(moments.variance))), float(moments.df))


def paired_difference(
    a: Scores | npt.ArrayLike,
    b: Scores | npt.ArrayLike,
    confidence: float = 0.95,
    prior: Prior | None = None,
) -> Difference:
    """Return the mean of `a - b` with its interval and p-value.

    Args:
        a: Per-prompt values, seeds x prompts, or nested scores.
        b: The same for what it is compared with; rows and columns may be in another order.
        confidence: Nominal coverage, strictly between 0 and 1.
        prior: As in `mean_interval`.

    Raises:
        HarnessError: The two do not have the same seeds and, unless nested, the same prompts.
    """
    if isinstance(a, NestedScores) and isinstance(b, NestedScores):
        return _test(a.minus(b), confidence)
    if isinstance(a, NestedScores) or isinstance(b, NestedScores):
        raise HarnessError(
            "Scores of prompts cannot be compared with scores of answers; compare two columns of "
            "one kind."
        )
    return _test(ScoreMatrix.of(a).minus(ScoreMatrix.of(b)), confidence, prior)


def difference_of_differences(
    a: ScoreMatrix | npt.ArrayLike,
    b: ScoreMatrix | npt.ArrayLike,
    c: ScoreMatrix | npt.ArrayLike,
    d: ScoreMatrix | npt.ArrayLike,
    confidence: float = 0.95,
) -> Difference:
    """Return the mean of `(a - b) - (c - d)`, all four paired, with its interval and p-value.

    It answers whether one change helps more in one setting than in another, which two separate
    intervals do not.

    Raises:
        HarnessError: The four do not have the same seeds and the same prompts.
    """
    first = ScoreMatrix.of(a).minus(ScoreMatrix.of(b))
    second = ScoreMatrix.of(c).minus(ScoreMatrix.of(d))
    return _test(first.minus(second), confidence)


def _test(difference: Scores, confidence: float, prior: Prior | None = None) -> Difference:
    interval = mean_interval(difference, confidence, prior)
    p_value = None if interval.over == "prompts" else _two_sided_p(interval)
    return Difference(**vars(interval), p_value=p_value)


def _two_sided_p(interval: Interval) -> float:
    """Return the p-value of a mean against zero; without any variance it is 1 or 0."""
    return 2.0 * replace(interval, mean=abs(interval.mean)).p_above_zero()
