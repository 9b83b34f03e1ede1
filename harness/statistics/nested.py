"""Scores of which every seed has prompts of its own: prompts nested in seeds.

Where prompts themselves are scored, each run draws or makes its own: a prompt of one seed has no
counterpart in another, and two recipes have seeds in common and nothing else. Model, all effects
random:

    y[s, p] = mean + seed[s] + prompt[s, p]

The mean of a seed over its P prompts varies by var_seed + var_prompt / P, and the mean over S
seeds by a share of 1 / S of that. Both levels are in the spread of the seed means, so that

    variance of the mean = (sample variance of the S seed means) / S,  with S - 1 degrees of freedom

is unbiased and its t interval exact for normal seed means, whatever the two variances are, and
whatever the prompts of a seed have in common (several are rewrites of one parent, and a set can
hold prompts that another recipe's holds as well). A difference is taken seed by seed, because
recipes start from the same human prompts under the same seed.

The rule for few seeds: two or three seed means can lie close together by chance, and their spread
then says less than the prompts themselves do. So the spread of the prompts within the seeds, taken
as independent, gives a second interval (Welch and Satterthwaite), and the wider one counts; a
p-value is the larger one of two. Where seeds add nothing to their prompts' spread this misses a
true zero in 1 to 3% of cases instead of 5%, and it approaches 5% as they do
(`tests/statistics/test_error_rates.py`). With one seed the prompts' interval is all there is, and
it says nothing of other seeds.

Sources: Searle, Casella and McCulloch (1992), Variance Components, chapter 3 (nested
classification); Satterthwaite (1946), Biometrics Bulletin 2(6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.errors import HarnessError
from harness.statistics.matrix import FloatArray
from harness.statistics.spread import Spread

ROUNDING = 1e-9
"""Seed means that are no further apart are one number."""


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

    @property
    def level(self) -> float | None:
        """The one number that every value is, None where they differ."""
        # The mean of equal numbers can be off in its last digit.
        same = np.ptp(self.means) < ROUNDING and float(self.variances.max()) < ROUNDING**2
        return self.mean if same else None

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

    def spreads(self) -> tuple[Spread, ...]:
        """Return how far the mean may be off: by the seeds, if two or more, and by the prompts."""
        seeds = len(self.seeds)
        variance, squares = float(self.variances.sum()), float(self.squares.sum())
        # Without any spread the interval is a point, whatever the degrees of freedom.
        df = variance**2 / squares if squares > 0.0 else 1.0
        within = Spread(float(np.sqrt(variance)) / seeds, df)
        return (seed_spread(self.means), within) if seeds > 1 else (within,)


def seed_spread(means: FloatArray) -> Spread:
    """Return how far the mean over seeds may be off, from the spread of the seed means.

    Args:
        means: Seed means, shape (seeds,), at least two.
    """
    return Spread(float(np.sqrt(means.var(ddof=1) / len(means))), len(means) - 1.0)
