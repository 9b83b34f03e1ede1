"""Intervals for means and paired differences.

With two or more seeds, both prompts and seeds are treated as sampled (`harness.statistics.scores`):
the interval covers what other seeds *and* other prompts would give. With one seed the between-seed
variance is unknown: the interval is over prompts only and supports no conclusion about the recipe.
Comparisons are always paired, so shared effects cancel. All intervals are at 95%.

An interval depends on the two runs compared and on nothing else, so that a pair has one interval
wherever it is shown. Shrinking the variance between seeds toward that of other gains (a moderated
t) would give intervals that change with the rows beside them; with ten seeds it makes them 4%
narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.statistics.scores import ScoreMatrix, Scores, Spread


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and prompts with its 95% interval, in the unit of the values."""

    mean: float
    spreads: tuple[Spread, ...]
    """One, or two for prompts nested in seeds (by seeds and by prompts): the wider counts."""
    seeds: int
    """Number of seeds; with one, the interval is over prompts only."""

    @property
    def widest(self) -> Spread:
        return max(self.spreads, key=lambda spread: spread.half_width)

    @property
    def low(self) -> float:
        return self.mean - self.widest.half_width

    @property
    def high(self) -> float:
        return self.mean + self.widest.half_width

    @property
    def standard_error(self) -> float:
        return self.widest.standard_error

    def p_above_zero(self) -> float:
        """Return the one-sided p-value against a true mean of zero or less."""
        return max(spread.p_above_zero(self.mean) for spread in self.spreads)

    def detectable(self, alpha: float, power: float = 0.8) -> float:
        """Return the smallest true mean that a two-sided test at `alpha` detects with this power.

        It is (t[1 - alpha / 2] + t[power]) times the standard error, with the quantiles at the
        interval's degrees of freedom.

        Source: Bloom (1995), Evaluation Review 19(5) (minimum detectable effects).
        """
        return max(spread.detectable(alpha, power) for spread in self.spreads)


def mean_interval(values: Scores | npt.ArrayLike) -> Interval:
    """Return the mean of scores, or of a seeds x prompts array, with its interval."""
    scores = values if isinstance(values, Scores) else ScoreMatrix.of(values)
    return Interval(scores.mean, scores.spreads(), len(scores.seeds))


def paired_difference(a: Scores | npt.ArrayLike, b: Scores | npt.ArrayLike) -> Interval:
    """Return the mean of `a - b` with its interval; the order of seeds and prompts may differ."""
    left, right = (it if isinstance(it, Scores) else ScoreMatrix.of(it) for it in (a, b))
    return mean_interval(left.minus(right))


def mean_over_seeds(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean of one number per seed, and the ends of its t interval (None for one seed).

    For numbers that are not means over shared prompts, such as a rank correlation over a seed's
    training prompts or the share of a topic among them.
    """
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) == 1:
        return mean, None, None
    half = Spread(float(array.std(ddof=1)) / len(array) ** 0.5, len(array) - 1.0).half_width
    return mean, mean - half, mean + half
