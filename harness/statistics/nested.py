"""Scores of which every seed has prompts of its own: prompts nested in seeds.

Where prompts themselves are scored, each run makes its own: no prompt is shared by two seeds, and
two recipes have seeds in common and nothing else. Model, all effects random:

    y[s, p] = mean + seed[s] + prompt[s, p]

The mean of a seed over its P prompts varies by var_seed + var_prompt / P, and the mean over S
seeds by a share of 1 / S of that. Both levels are in the spread of the seed means, so that

    variance of the mean = (sample variance of the S seed means) / S,  with S - 1 degrees of freedom

is unbiased and its t interval exact for normal seed means, whatever the two variances are. The
prompts' own spread adds nothing to it on purpose: prompts of one seed are not independent (several
are rewrites of one parent, and a set can hold prompts that another recipe's holds as well), and
what they share shows between seeds only. A difference is taken seed by seed, because recipes start
from the same human prompts under the same seed.

Two seeds are as valid as ten, and very wide (t has one degree of freedom). With one seed there is
no spread between seeds: what is left is the spread of its prompts, taken as independent, which
says nothing of other seeds. A weighted sum of several such means then has the Welch-Satterthwaite
degrees of freedom.

Sources: Searle, Casella and McCulloch (1992), Variance Components, chapter 3 (nested
classification); Satterthwaite (1946), Biometrics Bulletin 2(6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.errors import HarnessError
from harness.statistics.matrix import FloatArray


@dataclass(frozen=True, eq=False)
class NestedScores:
    """Scores of one recipe's prompts by seed, or a weighted sum of several recipes' scores.

    Attributes:
        seeds: One id for each seed.
        means: Mean of each seed, shape (seeds,), in the unit of the column.
        variances: Variance of each of these means over the prompts of its seed.
        squares: Of each seed the sum of squared variances over their degrees of freedom, one for
            each recipe in the sum; from it follow the degrees of freedom of one seed.
        count: Prompts of all seeds together.
    """

    seeds: tuple[int, ...]
    means: FloatArray
    variances: FloatArray
    squares: FloatArray
    count: int

    @classmethod
    def from_seeds(cls, scores: Mapping[int, Mapping[str, float]]) -> NestedScores:
        """Take the scores of `{seed: {prompt id: value}}`.

        Raises:
            HarnessError: There is no seed, one has fewer than two prompts, or a value is not
                finite.
        """
        if not scores:
            raise HarnessError("Scores of prompts need at least one seed; none has scores yet.")
        seeds = tuple(sorted(scores))
        sets = [np.fromiter(scores[seed].values(), dtype=np.float64) for seed in seeds]
        for seed, values in zip(seeds, sets, strict=True):
            if len(values) < 2 or not np.isfinite(values).all():
                raise HarnessError(
                    f"Seed {seed} has {len(values)} scored prompts, or one whose score is not "
                    "finite; statistics need two prompts or more, all with a score."
                )
        sizes = np.array([len(values) for values in sets], dtype=np.float64)
        variances = np.array([values.var(ddof=1) for values in sets]) / sizes
        return cls(
            seeds=seeds,
            means=np.array([values.mean() for values in sets]),
            variances=variances,
            squares=variances**2 / (sizes - 1.0),
            count=int(sizes.sum()),
        )

    @property
    def mean(self) -> float:
        """Mean of the seed means."""
        return float(self.means.mean())

    def scaled(self, weight: float) -> NestedScores:
        """Return all values times a number."""
        return NestedScores(
            self.seeds,
            weight * self.means,
            weight**2 * self.variances,
            weight**4 * self.squares,
            self.count,
        )

    def plus(self, other: NestedScores) -> NestedScores:
        """Return the sum with another recipe's scores, seed by seed.

        Raises:
            HarnessError: The two do not have the same seeds.
        """
        if set(self.seeds) != set(other.seeds):
            raise HarnessError(
                f"Scores of the seeds {self.seeds} and {other.seeds} cannot be compared; run both "
                "with the same seeds."
            )
        order = [other.seeds.index(seed) for seed in self.seeds]
        return NestedScores(
            self.seeds,
            self.means + other.means[order],
            self.variances + other.variances[order],
            self.squares + other.squares[order],
            self.count + other.count,
        )

    def minus(self, other: NestedScores) -> NestedScores:
        """Return the difference from another recipe's scores, seed by seed.

        Raises:
            HarnessError: The two do not have the same seeds.
        """
        return self.plus(other.scaled(-1.0))

    def constant(self, value: float) -> NestedScores:
        """Return scores of the same seeds whose mean is a number without any spread."""
        nothing = np.zeros_like(self.means)
        return NestedScores(self.seeds, nothing + value, nothing, nothing, 0)

    def moments(self) -> tuple[float, float, float]:
        """Return the mean, its estimated variance, and the degrees of freedom of that."""
        if len(self.seeds) > 1:
            means, variances, df = nested_moments(self.means)
            return float(means), float(variances), df
        variance, square = float(self.variances[0]), float(self.squares[0])
        # Without any spread the interval is a point, whatever the degrees of freedom.
        return self.mean, variance, variance**2 / square if square > 0.0 else 1.0


def nested_moments(means: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Estimate the mean over seeds that have prompts of their own, and its variance.

    Args:
        means: Seed means, shape (..., seeds), at least two; leading axes are a batch.

    Returns:
        The mean and its variance, each of shape (...), and the degrees of freedom.
    """
    seeds = means.shape[-1]
    return means.mean(axis=-1), means.var(axis=-1, ddof=1) / seeds, seeds - 1.0
