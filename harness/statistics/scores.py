"""Per-prompt values under several seeds, the input of every statistic, and their variance.

A seed is one complete repetition of a recipe (data order, sampling, training, answering).

Crossed (`ScoreMatrix`): the same benchmark prompts are answered under every seed. The model has one
value per seed s and prompt p, with all effects random and independent:

    y[s, p] = mean + seed[s] + prompt[p] + error[s, p]

With S seeds and P prompts the expected mean squares of the two-way analysis of variance are

    E MS_seed   = var_error + P var_seed
    E MS_prompt = var_error + S var_prompt
    E MS_error  = var_error

so the variance of the grand mean, var_seed/S + var_prompt/P + var_error/(S P), is estimated by
(MS_seed + MS_prompt - MS_error) / (S P). This is also the two-way clustered variance.

Four choices are ours. With them, 95% intervals with 800 or more prompts miss a true zero 3.5 to 6%
of the time from three seeds up, and those with 40 prompts 2 to 5%, whatever the ratio of the
effects (`tests/statistics/test_error_rates.py`):

* The prompts' own part, MS_prompt - MS_error, is truncated at zero. The seeds keep their whole mean
  square: with few seeds, MS_seed - MS_error is often negative by chance, and an interval from the
  remainder would be far too short.
* Degrees of freedom: 1/df = w/(S - 1) + (1 - w)/d, where w is the seeds' share of the estimated
  variance and d the degrees of freedom of the prompts' own part. Satterthwaite's formula has w
  squared, but with an estimated w and few seeds it is anticonservative, because a seed mean square
  that is small by chance both shortens the interval and raises the degrees of freedom: it misses
  up to 8% of the time with three seeds.
* The prompts' own part is a difference of two mean squares and gets Satterthwaite's degrees of
  freedom, (MS_prompt - MS_error)^2 / (MS_prompt^2 / (P - 1) + MS_error^2 / ((S - 1)(P - 1))), but
  no fewer than the seeds'. If prompts do not differ in the mean, as for one recipe under two
  names, that part is pure chance, and P - 1 degrees would go to seeds that are close by chance.
* Two seeds have at least the mean square of the error, which theirs exceeds in expectation. Two
  that are close by chance would leave the prompts' small part alone, or nothing: up to 9% of such
  intervals would miss. With the floor at most 5% do, and far fewer if seeds differ little. From
  three seeds up, where nothing is amiss, it would only make intervals wider.

Nested (`NestedScores`): if prompts themselves are scored, each run draws or makes its own, and two
recipes share only their seeds:

    y[s, p] = mean + seed[s] + prompt[s, p]

The variance of the seed means includes both levels, so

    variance of the mean = (sample variance of the S seed means) / S,  with S - 1 degrees of freedom

is unbiased and its t interval is exact for normal seed means, whatever the two variances are and
however a seed's prompts depend on each other (several are rewrites of one parent, and sets of two
recipes can share prompts). Differences are paired by seed, because recipes start from the same
human prompts under the same seed.

With few seeds: two or three seed means can be close by chance, and their spread is then less
informative than that of the prompts. So the spread of the prompts within seeds, taken as
independent, gives a second interval (Welch and Satterthwaite), and the wider one counts; the
p-value is the larger of the two. If seeds add no variance of their own, this misses a true zero in
1 to 3% of cases instead of 5%; as they add more, it approaches 5%.

Sources: Satterthwaite (1946), Biometrics Bulletin 2(6); Clark (1973), The language-as-fixed-effect
fallacy (crossed random subjects and items); Searle, Casella and McCulloch (1992), Variance
Components, chapter 3 (nested classification); Cameron, Gelbach and Miller (2011), Robust inference
with multiway clustering.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError

FloatArray = npt.NDArray[np.float64]

ROUNDING = 1e-9
"""Values within this distance count as equal."""


def student_quantile(level: float | FloatArray, df: float | FloatArray) -> FloatArray:
    """Return quantiles of Student's t, without the slow import of `scipy.stats`."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(df, level))


@dataclass(frozen=True)
class Spread:
    """The uncertainty of a mean, from which Student's t gives intervals and p-values."""

    standard_error: float
    df: float
    """Degrees of freedom of the standard error."""

    @cached_property
    def half_width(self) -> float:
        return float(student_quantile(0.975, self.df)) * self.standard_error

    def p_above_zero(self, mean: float) -> float:
        """Return the one-sided p-value of a mean against a true mean of zero or less.

        Without variance it is 0, 1/2, or 1, depending on the sign of the mean.
        """
        from scipy.special import stdtr

        if self.standard_error == 0.0:
            return (1.0 - float(np.sign(mean))) / 2.0
        return float(stdtr(self.df, -mean / self.standard_error))

    def detectable(self, alpha: float, power: float) -> float:
        """Return the smallest true mean that a two-sided test at `alpha` detects with `power`."""
        levels = np.array([1.0 - alpha / 2.0, power])
        return float(student_quantile(levels, self.df).sum()) * self.standard_error


class Scores(ABC):
    """The values behind a cell, or a weighted sum of such values, paired by seed."""

    seeds: tuple[int, ...]

    @property
    @abstractmethod
    def mean(self) -> float:
        """Mean over seeds and prompts."""

    @property
    @abstractmethod
    def level(self) -> float | None:
        """The common value if all values are equal, else None."""

    @abstractmethod
    def spreads(self) -> tuple[Spread, ...]:
        """Return the uncertainty of the mean; of two spreads the wider one counts.

        With one seed it is over prompts only and does not cover other seeds.
        """

    @abstractmethod
    def scaled(self, weight: float) -> Self:
        """Return all values multiplied by a number."""

    @abstractmethod
    def plus(self, other: Self) -> Self:
        """Return the sum with scores of the same seeds and, unless nested, the same prompts."""

    @abstractmethod
    def constant(self, value: float) -> Self:
        """Return scores of the same seeds that all have one value, without spread."""

    def minus(self, other: Self) -> Self:
        """Return the difference, paired as in `plus`."""
        return self.plus(other.scaled(-1.0))


def weighted_sum(terms: Sequence[tuple[float, Scores]]) -> Scores:
    """Return the weighted sum of scores, paired by seed and, unless nested, by prompt."""
    return reduce(lambda a, b: a.plus(b), [scores.scaled(weight) for weight, scores in terms])


@dataclass(frozen=True, eq=False)
class ScoreMatrix(Scores):
    """Per-prompt values of one recipe on one column: complete, crossed, with unique ids."""

    values: FloatArray
    """Shape (seeds, prompts), in the unit of the column."""
    seeds: tuple[int, ...]
    prompts: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check that there are two prompts or more, and that every value is finite."""
        _require_scores(self.values)

    @classmethod
    def from_seeds(cls, scores: Mapping[int, Mapping[str, float]]) -> ScoreMatrix:
        """Build the matrix from `{seed: {prompt id: value}}`."""
        seeds = tuple(sorted(scores))
        prompts = tuple(scores[seeds[0]])
        for seed in seeds[1:]:
            _require_same(f"seed {seeds[0]}", prompts, f"seed {seed}", scores[seed])
        values = [[scores[seed][prompt] for prompt in prompts] for seed in seeds]
        return cls(np.array(values, dtype=np.float64), seeds, prompts)

    @classmethod
    def of(cls, values: npt.ArrayLike) -> ScoreMatrix:
        """Wrap an array of shape (seeds, prompts) as a matrix, with positions as ids."""
        array = np.asarray(values, dtype=np.float64)
        seeds, prompts = array.shape
        return cls(array, tuple(range(seeds)), tuple(str(i) for i in range(prompts)))

    def aligned_to(self, other: ScoreMatrix) -> ScoreMatrix:
        """Return this matrix with rows and columns in the order of `other`, of the same seeds."""
        if (self.seeds, self.prompts) == (other.seeds, other.prompts):
            return self
        _require_same("the first", other.prompts, "the second", self.prompts)
        row = {seed: i for i, seed in enumerate(self.seeds)}
        column = {prompt: i for i, prompt in enumerate(self.prompts)}
        rows = [row[seed] for seed in other.seeds]
        columns = [column[prompt] for prompt in other.prompts]
        return ScoreMatrix(self.values[np.ix_(rows, columns)], other.seeds, other.prompts)

    @property
    def mean(self) -> float:
        return float(self.values.mean(axis=(-2, -1)))

    @property
    def level(self) -> float | None:
        # Differences of equal values can be off in the last digit.
        return float(self.values[0, 0]) if np.ptp(self.values) < ROUNDING else None

    def spreads(self) -> tuple[Spread, ...]:
        seeds, prompts = self.values.shape
        if seeds == 1:
            variance = float(self.values[0].var(ddof=1)) / prompts
            return (Spread(float(np.sqrt(variance)), prompts - 1.0),)
        moments = crossed_moments(self.values)
        return (Spread(float(np.sqrt(float(moments.variance))), float(moments.df)),)

    def scaled(self, weight: float) -> ScoreMatrix:
        return ScoreMatrix(weight * self.values, self.seeds, self.prompts)

    def plus(self, other: ScoreMatrix) -> ScoreMatrix:
        """Return the entrywise sum, `other` aligned to this matrix first."""
        return ScoreMatrix(self.values + other.aligned_to(self).values, self.seeds, self.prompts)

    def constant(self, value: float) -> ScoreMatrix:
        return ScoreMatrix(np.full_like(self.values, value), self.seeds, self.prompts)


@dataclass(frozen=True, eq=False)
class NestedScores(Scores):
    """Scores of one recipe's prompts, which differ by seed, or a weighted sum over recipes."""

    seeds: tuple[int, ...]
    means: FloatArray
    """Mean of each seed, shape (seeds,), in the unit of the column."""
    variances: FloatArray
    """Variance of each of these means over its seed's prompts."""
    squares: FloatArray
    """For each seed, the sum over recipes of squared variance / degrees of freedom, for
    Satterthwaite's formula."""

    @classmethod
    def from_seeds(cls, scores: Mapping[int, Mapping[str, float]]) -> NestedScores:
        """Build the scores from `{seed: {prompt id: value}}`."""
        seeds = tuple(sorted(scores))
        sets = [np.fromiter(scores[seed].values(), dtype=np.float64) for seed in seeds]
        for values in sets:
            _require_scores(values)
        sizes = np.array([len(values) for values in sets], dtype=np.float64)
        variances = np.array([values.var(ddof=1) for values in sets]) / sizes
        means = np.array([values.mean() for values in sets])
        return cls(seeds, means, variances, variances**2 / (sizes - 1.0))

    @property
    def mean(self) -> float:
        return float(self.means.mean())

    @property
    def level(self) -> float | None:
        # The mean of equal numbers can be off in its last digit.
        same = np.ptp(self.means) < ROUNDING and float(self.variances.max()) < ROUNDING**2
        return self.mean if same else None

    def spreads(self) -> tuple[Spread, ...]:
        """Return the uncertainty of the mean by seeds (if two or more) and by prompts."""
        seeds = len(self.seeds)
        variance, squares = float(self.variances.sum()), float(self.squares.sum())
        # Without variance the interval is a point, whatever the degrees of freedom.
        df = variance**2 / squares if squares > 0.0 else 1.0
        within = Spread(float(np.sqrt(variance)) / seeds, df)
        if seeds == 1:
            return (within,)
        return (Spread(float(np.sqrt(self.means.var(ddof=1) / seeds)), seeds - 1.0), within)

    def scaled(self, weight: float) -> NestedScores:
        variances, squares = weight**2 * self.variances, weight**4 * self.squares
        return NestedScores(self.seeds, weight * self.means, variances, squares)

    def plus(self, other: NestedScores) -> NestedScores:
        order = [other.seeds.index(seed) for seed in self.seeds]
        return NestedScores(
            self.seeds,
            self.means + other.means[order],
            self.variances + other.variances[order],
            self.squares + other.squares[order],
        )

    def constant(self, value: float) -> NestedScores:
        nothing = np.zeros_like(self.means)
        return NestedScores(self.seeds, nothing + value, nothing, nothing)


class CrossedMoments(NamedTuple):
    """The mean of a crossed matrix and its variance components, in the values' batch shape."""

    mean: FloatArray
    variance: FloatArray
    """Estimated variance of the mean."""
    df: FloatArray
    """Degrees of freedom of `variance`; at least the seeds', and equal to them without variance."""
    ms_seed: FloatArray
    ms_prompt: FloatArray
    ms_error: FloatArray
    """Mean square of the interaction and error."""

    @classmethod
    def of(
        cls, mean: FloatArray, squares: Sequence[FloatArray], shape: tuple[int, int]
    ) -> CrossedMoments:
        """Return them from the mean squares of seeds, prompts, and error of (seeds, prompts)."""
        (ms_seed, ms_prompt, ms_error), (seeds, prompts) = squares, shape
        seed_df = float(seeds - 1)
        from_seeds = np.maximum(ms_seed, ms_error) if seeds == 2 else ms_seed
        own = np.maximum(ms_prompt - ms_error, 0.0)
        total = from_seeds + own
        chance = (ms_prompt**2 + ms_error**2 / (seeds - 1)) / (prompts - 1)
        own_df = np.divide(own**2, chance, out=np.zeros_like(total), where=chance > 0)
        seed_share = np.divide(from_seeds, total, out=np.ones_like(total), where=total > 0)
        df = 1.0 / (seed_share / seed_df + (1.0 - seed_share) / np.maximum(own_df, seed_df))
        return cls(mean, total / (seeds * prompts), df, ms_seed, ms_prompt, ms_error)


def crossed_moments(values: FloatArray) -> CrossedMoments:
    """Estimate the mean over crossed seeds and prompts, and its variance.

    `values` has shape (..., seeds, prompts), at least two of each; leading axes are a batch.
    """
    seeds, prompts = values.shape[-2:]
    mean = values.mean(axis=(-2, -1))
    centered = values - mean[..., None, None]
    seed_effect = centered.mean(axis=-1)
    prompt_effect = centered.mean(axis=-2)
    residual = centered - seed_effect[..., :, None] - prompt_effect[..., None, :]
    ms_seed = prompts * np.square(seed_effect).sum(axis=-1) / (seeds - 1)
    ms_prompt = seeds * np.square(prompt_effect).sum(axis=-1) / (prompts - 1)
    ms_error = np.square(residual).sum(axis=(-2, -1)) / ((seeds - 1) * (prompts - 1))
    return CrossedMoments.of(mean, (ms_seed, ms_prompt, ms_error), (seeds, prompts))


def _require_scores(values: FloatArray) -> None:
    if values.shape[-1] < 2 or not np.isfinite(values).all():
        raise HarnessError(
            f"A seed has {values.shape[-1]} scored prompts, or one whose score is not finite; "
            "statistics need two prompts or more, all with a score."
        )


def _require_same(first: str, prompts: Iterable[str], second: str, others: Iterable[str]) -> None:
    if differing := sorted({*prompts} ^ {*others}):
        raise HarnessError(
            f"The prompts of {first} and {second} differ in {len(differing)} ids "
            f"({', '.join(differing[:3])}); compare scores on the same prompts only."
        )
