"""Whether one measurement of some things orders them as another one does.

Each of K things (reward models, say) has two measurements, each a mean over seeds and prompts, and
Spearman's rank correlation says how alike they order the things. It can be off for two reasons,
which two intervals keep apart:

*Over seeds and prompts*, the things as they are: each measurement would have come out a little
differently with other seeds and prompts. Seeds and prompts are resampled, crossed, the same ones
for all things, and the correlation is computed again. Resampling adds its own noise to means that
are noisy already, which pulls correlations towards zero, so this interval is on the careful side.

*Over the things*, their measurements as they are: another choice of K things would have given
another correlation. The things are resampled. With six to ten of them this interval is crude and
rather too narrow, and it means something only if the things are a fair sample of some kind, which
things made to be graded are not. The exact permutation test beside it asks less: how often a
correlation at least as large comes of a random pairing.

A measurement can also be held against numbers that are simply given, printed in a paper without
their spread; then only the first question can be asked.

Source: Owen 2007 on resampling rows and columns of a crossed table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.errors import HarnessError
from harness.statistics.comparisons import spearman
from harness.statistics.intervals import Scores
from harness.statistics.matrix import FloatArray, ScoreMatrix
from harness.statistics.nested import NestedScores

DRAWS = 2000
"""Resamples behind each interval."""

LEAST = 4
"""Fewest things of which a correlation is computed; of three it can take four values."""

PERMUTATIONS = 50_000
"""Random pairings of the permutation test; up to eight things have fewer, and all are tried."""

DECIMALS = 9
"""Decimals to which means are ranked. Other threads round sums differently, and two means that are
one number must stay a tie."""


@dataclass(frozen=True)
class RankCorrelation:
    """A rank correlation over some things.

    Attributes:
        things: Number of things.
        rho: Spearman's correlation of the measurements.
        low: Lower end of its 95% interval over seeds and prompts.
        high: Upper end.
        things_low: Lower end of its 95% interval over the things.
        things_high: Upper end.
        p_value: Two-sided p-value of the permutation test.
    """

    things: int
    rho: float
    low: float
    high: float
    things_low: float
    things_high: float
    p_value: float


@dataclass(frozen=True)
class RankAgreement:
    """A rank correlation of a measurement of some things with given numbers.

    Attributes:
        rho: Spearman's correlation.
        low: Lower end of its 95% interval over seeds and prompts.
        high: Upper end.
    """

    rho: float
    low: float
    high: float


def rank_agreement(
    measured: Sequence[Scores], given: Sequence[float], seed: int = 0
) -> RankAgreement | None:
    """Return how alike a measurement and given numbers order some things.

    Prompts that every seed has for itself come and go with their seed.

    Args:
        measured: Scores of each thing; all things have the same seeds and, unless each seed has
            prompts of its own, the same prompts.
        given: The number given for each thing.
        seed: Seed of the resampling.

    Returns:
        The correlation; None with fewer than four things, or where a side is the same for all.

    Raises:
        HarnessError: The two are not of equally many things, or the things do not have the same
            seeds and prompts.
    """
    if len(measured) < LEAST and len(measured) == len(given):
        return None
    means = np.array([scores.mean for scores in measured]).round(DECIMALS)
    rho = spearman(means.tolist(), given)
    if rho is None:
        return None
    drawn = _redrawn(measured, np.random.default_rng(seed))
    low, high = _interval(_rhos(drawn, np.broadcast_to(np.asarray(given), drawn.shape)))
    return RankAgreement(rho, low, high)


def _redrawn(measured: Sequence[Scores], rng: np.random.Generator) -> FloatArray:
    """Return each thing's mean over what is resampled of it, shape (draws, things)."""
    matrices = [scores for scores in measured if isinstance(scores, ScoreMatrix)]
    if matrices:
        return _resampled(_stacked(matrices), rng)
    nested = [scores for scores in measured if isinstance(scores, NestedScores)]
    means = np.stack([scores.means for scores in nested])
    seeds = means.shape[1]
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    return np.asarray((by_seed @ means.T).round(DECIMALS))


def rank_correlation(
    first: Sequence[ScoreMatrix], second: Sequence[ScoreMatrix], seed: int = 0
) -> RankCorrelation | None:
    """Return how alike two measurements order some things.

    Args:
        first: Values of the first measurement, a matrix of seeds x prompts for each thing; all
            things have the same seeds and prompts.
        second: The same of the second measurement, which may have other seeds and prompts.
        seed: Seed of the resampling.

    Returns:
        The correlation; None with fewer than four things, or where a measurement is the same for
        all of them.

    Raises:
        HarnessError: The two are not of equally many things, or the things of a measurement do not
            have the same seeds and prompts.
    """
    if len(first) != len(second):
        raise HarnessError(
            f"Measurements of {len(first)} and {len(second)} things cannot be correlated; give "
            "both of each thing."
        )
    if len(first) < LEAST:
        return None
    left, right = _stacked(first), _stacked(second)
    means = left.mean(axis=(1, 2)).round(DECIMALS), right.mean(axis=(1, 2)).round(DECIMALS)
    rho = spearman(*(list(map(float, side)) for side in means))
    if rho is None:
        return None
    rng = np.random.default_rng(seed)
    low, high = _interval(_rhos(_resampled(left, rng), _resampled(right, rng)))
    chosen = rng.integers(len(first), size=(DRAWS, len(first)))
    things_low, things_high = _interval(_rhos(means[0][chosen], means[1][chosen]))
    p_value = permutation_p(*means, rng)
    return RankCorrelation(len(first), rho, low, high, things_low, things_high, p_value)


def _stacked(matrices: Sequence[ScoreMatrix]) -> FloatArray:
    """Return the values of all things, shape (things, seeds, prompts)."""
    return np.stack([matrix.aligned_to(matrices[0]).values for matrix in matrices])


def _resampled(values: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return each thing's mean over resampled seeds and prompts, shape (draws, things)."""
    _, seeds, prompts = values.shape
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    by_prompt = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=DRAWS) / prompts
    over_prompts = np.einsum("ksp,dp->dks", values, by_prompt, optimize=True)
    return np.asarray(np.einsum("dks,ds->dk", over_prompts, by_seed).round(DECIMALS))


def _rhos(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the rank correlation of each row, leaving out those where a side is constant."""
    a, b = (stats.rankdata(side, axis=1) for side in (left, right))
    a, b = (side - side.mean(axis=1, keepdims=True) for side in (a, b))
    norms = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    kept = norms > 0.0
    return np.asarray((a * b).sum(axis=1)[kept] / norms[kept])


def _interval(rhos: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(rhos, (0.025, 0.975))
    return float(low), float(high)


def permutation_p(left: FloatArray, right: FloatArray, rng: np.random.Generator) -> float:
    """Return the two-sided p-value of Spearman's correlation among random pairings.

    Args:
        left: A value of each thing.
        right: Another value of each thing, in the same order.
        rng: Draws the pairings where there are too many to try all.
    """
    ranks = stats.rankdata(right)

    def statistic(ordered: FloatArray, axis: int = -1) -> FloatArray:
        a = stats.rankdata(ordered, axis=axis)
        products = (a - a.mean(axis=axis, keepdims=True)) * (ranks - ranks.mean())
        return np.asarray(products.sum(axis=axis))

    result = stats.permutation_test(
        (left,),
        statistic,
        permutation_type="pairings",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        rng=rng,
    )
    return float(result.pvalue)
