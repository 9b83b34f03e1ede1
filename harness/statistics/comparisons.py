"""Comparisons across rows of a table, and joint tests of several statements.

A statement says that one mean is above zero, often that of a weighted sum of scores: `a - b` for a
difference, `a - b + share (c - d)` for a difference that may fall short of zero by a share of a
gain. Putting the gain itself into the sum, rather than its estimate into a margin, keeps the gain's
noise in the test. A claim is a conjunction of such statements:

* It is shown if every statement is: its one-sided p-value is the largest of theirs
  (intersection-union test). Two statements, d + m > 0 and m - d > 0, are the two one-sided tests
  of equivalence; one, d + m > 0, is the test of non-inferiority.
* It is refuted if any statement is: the one-sided p-value against it is the smallest of theirs
  times their number (Bonferroni).

Both directions are tested, so a claim's p-value is twice the smaller of the two. For one statement
it is the usual two-sided p-value, and the claim is decided at 5% exactly when the 95% interval
excludes zero.

Rank correlations measure whether two measurements of K items (rows, reward models) order them
alike. Each measurement is a mean over seeds and prompts, and the correlation has two sources of
error, each with its own interval:

*Over seeds and prompts*, with fixed items: seeds and prompts are resampled, crossed, the same ones
for all items, and the correlation is recomputed. Resampling adds noise to already noisy means,
which pulls correlations toward zero, so this interval is conservative.

*Over the items*, with fixed measurements: the items are resampled. With six to ten items this
interval is crude and somewhat too narrow, and it is meaningful only if the items are a fair sample
of a population, which items built to be graded are not. The exact permutation test asks less: how
often a random pairing gives a correlation at least as large.

A measurement can also be compared with given numbers, such as a paper's values printed without
their spread; then only the first interval exists.

Sources: Berger (1982), Technometrics 24(4) (intersection-union); Schuirmann (1987), Journal of
Pharmacokinetics and Biopharmaceutics 15(6) (two one-sided tests); Rothmann et al. (2003),
Statistics in Medicine 22(2) (a margin that is a share of an estimated effect); Owen (2007) on
resampling rows and columns of a crossed table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harness.statistics.intervals import Interval
from harness.statistics.scores import FloatArray, NestedScores, ScoreMatrix, Scores

DRAWS = 2000
"""Resamples behind each interval of a rank correlation."""

_SEED = 0

MIN_ITEMS = 4
"""Minimum items for a correlation; with three it can take only four values."""

PERMUTATIONS = 50_000
"""Random pairings in the permutation test; up to eight items have fewer, and all are tried."""

DECIMALS = 9
"""Decimals that means are rounded to before ranking, so that ties survive rounding differences
between thread counts."""


@dataclass(frozen=True)
class Conjunction:
    """The joint result of several statements."""

    p_for: float
    """One-sided p-value against "some statement is false": small shows the conjunction."""
    p_against: float
    """One-sided p-value against "every statement is true": small refutes it."""
    weakest: int
    """Index of the statement with the strongest evidence against it."""

    @property
    def p_value(self) -> float:
        """Twice the smaller of the two p-values, at most 1."""
        return min(1.0, 2.0 * min(self.p_for, self.p_against))

    @property
    def favored(self) -> bool:
        """Whether the data lean toward the conjunction rather than against it."""
        return self.p_for < self.p_against


def conjunction(statements: Sequence[Interval]) -> Conjunction:
    """Jointly test statements, each that a mean from at least two seeds is above zero."""
    p_for = [statement.p_above_zero() for statement in statements]
    # Compute the other tail directly; 1 - p would lose precision for small values.
    p_against = [
        replace(statement, mean=-statement.mean).p_above_zero() for statement in statements
    ]
    return Conjunction(
        p_for=max(p_for),
        p_against=min(1.0, len(statements) * min(p_against)),
        weakest=int(np.argmin(p_against)),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values of a family, in the order given.

    Rejecting adjusted values below a level controls the family-wise error rate at that level under
    any dependence between the tests.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def sign_agreement(ours: Sequence[float], paper: Sequence[float]) -> tuple[int, int]:
    """Return how many gains have the same sign as the paper's, and how many are compared.

    A row where the paper's gain is zero claims no direction and is not counted. A gain of exactly
    zero on our side agrees with neither direction.
    """
    left, right = np.sign(ours), np.sign(paper)
    return int((left == right)[right != 0.0].sum()), int((right != 0.0).sum())


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation over rows, with mean ranks for ties.

    None if undefined: fewer than three rows, or one side constant.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if len(left) < 3 or np.ptp(left) == 0.0 or np.ptp(right) == 0.0:
        return None
    return float(np.corrcoef(mean_ranks(left), mean_ranks(right))[0, 1])


def mean_ranks(values: FloatArray) -> FloatArray:
    """Return ranks along the last axis, from 1, with mean ranks for ties.

    Same as `scipy.stats.rankdata`, but importing `scipy.stats` takes longer than a report.
    """
    # One order ranks ties from the left, the other from the right: the mean is their mean rank.
    up, down = (
        np.argsort(np.argsort(it, axis=-1, kind="stable"), axis=-1) for it in (values, -values)
    )
    ranks: FloatArray = (up - down + values.shape[-1] + 1) / 2.0
    return ranks


@dataclass(frozen=True)
class RankCorrelation:
    """How alike two measurements order a set of items: Spearman's correlation."""

    things: int
    rho: float
    low: float
    """Of the 95% interval over seeds and prompts."""
    high: float
    things_low: float
    """Of the 95% interval over the items."""
    things_high: float
    p_value: float
    """Two-sided, of the permutation test."""


def rank_correlation(
    first: Sequence[ScoreMatrix], second: Sequence[ScoreMatrix]
) -> RankCorrelation | None:
    """Return the rank correlation of two measurements of the same items.

    The measurements may have different seeds. None with fewer than four items, or if a measurement
    is the same for all of them.
    """
    if len(first) < MIN_ITEMS:
        return None
    left, right = _stacked(first), _stacked(second)
    means = left.mean(axis=(1, 2)).round(DECIMALS), right.mean(axis=(1, 2)).round(DECIMALS)
    rho = spearman(*(list(map(float, side)) for side in means))
    if rho is None:
        return None
    rng = np.random.default_rng(_SEED)
    low, high = _interval(
        _rhos(*(_resampled(side, _weights(rng, *side.shape[1:])) for side in (left, right)))
    )
    chosen = rng.integers(len(first), size=(DRAWS, len(first)))
    things_low, things_high = _interval(_rhos(means[0][chosen], means[1][chosen]))
    p_value = permutation_p(*means, rng)
    return RankCorrelation(len(first), rho, low, high, things_low, things_high, p_value)


def rank_agreement(
    measured: Sequence[Scores], given: Sequence[float]
) -> tuple[float, float, float] | None:
    """Return Spearman's rho of a measurement with given numbers, and the ends of its 95% interval.

    All items have the same seeds and prompts; prompts nested in seeds are resampled along with
    their seed. None as in `rank_correlation`.
    """
    if len(measured) < MIN_ITEMS:
        return None
    means = np.array([scores.mean for scores in measured]).round(DECIMALS)
    rho = spearman(means.tolist(), given)
    if rho is None:
        return None
    drawn = _redrawn(measured)
    return rho, *_interval(_rhos(drawn, np.broadcast_to(np.asarray(given), drawn.shape)))


def _redrawn(measured: Sequence[Scores]) -> FloatArray:
    """Return each item's resampled means, shape (draws, things)."""
    matrices = [scores for scores in measured if isinstance(scores, ScoreMatrix)]
    if matrices:
        values = _stacked(matrices)
        return _resampled(values, _first_weights(*values.shape[1:]))
    nested = [scores for scores in measured if isinstance(scores, NestedScores)]
    means = np.stack([scores.means for scores in nested])
    seeds = means.shape[1]
    rng = np.random.default_rng(_SEED)
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    return np.asarray((by_seed @ means.T).round(DECIMALS))


def _stacked(matrices: Sequence[ScoreMatrix]) -> FloatArray:
    """Return the values of all items, shape (things, seeds, prompts)."""
    return np.stack([matrix.aligned_to(matrices[0]).values for matrix in matrices])


Weights = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Counts of each seed and each prompt per draw; shapes (draws, seeds), (draws, prompts)."""


def _weights(rng: np.random.Generator, seeds: int, prompts: int) -> Weights:
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS)
    by_prompt = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=DRAWS)
    return by_seed.astype(np.int32), by_prompt.astype(np.int32)


# Columns across tables share a few shapes, and drawing dominates the cost.
@lru_cache(maxsize=12)
def _first_weights(seeds: int, prompts: int) -> Weights:
    return _weights(np.random.default_rng(_SEED), seeds, prompts)


def _resampled(values: FloatArray, weights: Weights) -> FloatArray:
    """Return each item's mean over resampled seeds and prompts, shape (draws, things)."""
    by_seed, by_prompt = (times / times.shape[1] for times in weights)
    over_prompts = np.einsum("ksp,dp->dks", values, by_prompt, optimize=True)
    return np.asarray(np.einsum("dks,ds->dk", over_prompts, by_seed).round(DECIMALS))


def _rhos(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the rank correlation of each row, dropping rows where a side is constant."""
    a, b = (mean_ranks(side) for side in (left, right))
    a, b = (side - side.mean(axis=1, keepdims=True) for side in (a, b))
    norms = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    kept = norms > 0.0
    return np.asarray((a * b).sum(axis=1)[kept] / norms[kept])


def _interval(rhos: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(rhos, (0.025, 0.975))
    return float(low), float(high)


def permutation_p(left: FloatArray, right: FloatArray, rng: np.random.Generator) -> float:
    """Return the two-sided permutation p-value of Spearman's correlation.

    `left` and `right` hold one value per item; `rng` draws pairings if there are too many to
    enumerate.
    """
    from scipy import stats

    # From pairing to pairing, only the sum of the products of ranks varies in rho.
    ranks = mean_ranks(right)
    result = stats.permutation_test(
        (mean_ranks(left),),
        lambda paired, axis: (paired * ranks).sum(axis=axis),
        permutation_type="pairings",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        rng=rng,
    )
    return float(result.pvalue)
