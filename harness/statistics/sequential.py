"""Sequential testing: the number of seeds a test still needs, and when to stop adding seeds.

*Seeds needed.* The variance so far is split into a part that shrinks with more seeds (between-seed
variance, error) and one that does not (prompts that one row is better at than another): with n
seeds the expected mean squares are

    E MS_seed   as observed
    E MS_prompt = MS_error + n / S (MS_prompt - MS_error)
    E MS_error  as observed

and the smallest detectable margin follows as for any interval.

*When to stop.* Retesting a claim at 5% after every few seeds has an error rate far above 5%. A
group sequential test spends its 5% over the looks: at a fraction t of the maximum number of seeds
it has spent

    spent(t) = 4 (1 - Phi(z / sqrt(t))),    z = Phi^-1(1 - level / 4),

half of it on each side, almost nothing early and nearly all at the end (the O'Brien-Fleming-type
spending function of Lan and DeMets, for looks at any time). The level of each look follows from the
previous ones, for a statistic with independent increments. A t test compares its p-value with these
levels (Jennison and Turnbull 2000, section 3.8). Because all seeds answer the same prompts, looks
are more alike than with independent increments, which is conservative. With at least three seeds at
the first look, the overall error is 4 to 6% (`tests/statistics/test_sequential.py`).

Sources: O'Brien and Fleming (1979), Biometrics 35(3); Lan and DeMets (1983), Biometrika 70(3);
Armitage, McPherson and Rowe (1969), JRSS A 132(2) (the recursion); Jennison and Turnbull (2000),
Group Sequential Methods with Applications to Clinical Trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from harness.errors import HarnessError
from harness.statistics.scores import (
    CrossedMoments,
    FloatArray,
    NestedScores,
    ScoreMatrix,
    Scores,
    Spread,
    crossed_moments,
)

MOST_SEEDS = 200
"""A margin that needs more seeds counts as out of reach."""

_POINTS = 201
"""Quadrature points for the density of a statistic that has not crossed a bound."""


def seeds_needed(margin: Scores, sought: float, level: float, power: float) -> int | None:
    """Return the number of seeds with which a two-sided test detects a margin.

    Args:
        margin: Scores of at least two seeds whose mean is tested.
        sought: The size to detect.
        level: Level of the test.
        power: Power of the test.

    Returns:
        The number, at least 2, or None if `MOST_SEEDS` are too few.
    """
    numbers = range(2, MOST_SEEDS + 1)
    found = (n for n in numbers if _detectable(margin, n, level, power) <= sought)
    return next(found, None)


def _detectable(margin: Scores, seeds: int, level: float, power: float) -> float:
    """Return the smallest detectable mean with another number of seeds."""
    if isinstance(margin, ScoreMatrix):
        now, prompts = margin.values.shape
        seen = crossed_moments(margin.values)
        own = np.maximum(seen.ms_prompt - seen.ms_error, 0.0)
        squares = (seen.ms_seed, seen.ms_error + seeds / now * own, seen.ms_error)
        expected = CrossedMoments.of(seen.mean, squares, (seeds, prompts))
        spreads = [Spread(float(np.sqrt(expected.variance)), float(expected.df))]
    else:
        assert isinstance(margin, NestedScores)
        fewer = (len(margin.seeds) / seeds) ** 0.5
        by_seed, within = margin.spreads()
        spreads = [
            Spread(by_seed.standard_error * fewer, seeds - 1.0),
            Spread(within.standard_error * fewer, within.df / fewer**2),
        ]
    return max(spread.detectable(level, power) for spread in spreads)


def spent(share: float, level: float) -> float:
    """Return the error spent by a share, in (0, 1], of the maximum number of seeds."""
    from scipy.special import ndtr, ndtri

    return float(4.0 * ndtr(ndtri(level / 4.0) / share**0.5))


def levels_of_looks(looks: Sequence[int], most: int, level: float) -> list[float]:
    """Return the significance level at each look.

    Args:
        looks: Seeds at each look, increasing.
        most: The maximum number of seeds, those of the last possible look.
        level: The overall two-sided error.

    Raises:
        HarnessError: The looks do not increase from at least 2, or exceed the maximum.
    """
    from scipy.special import ndtr

    rising = all(before < after for before, after in pairwise(looks))
    if not looks or not rising or looks[0] < 2 or looks[-1] > most:
        raise HarnessError(
            f"looks at {', '.join(map(str, looks))} of at most {most} seeds do not rise from 2 "
            "to that; name other numbers of seeds"
        )
    shares = [look / most for look in looks]
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    bounds: list[float] = []
    points, density = np.zeros(1), np.ones(1)
    before, used = 0.0, 0.0
    for share in shares:
        # The score statistic given no crossing: a sum of increments with total variance `share`.
        step = (share - before) ** 0.5
        allowed = spent(share, level) - used
        bound = _bound(points, density, step, allowed)
        bounds.append(bound / share**0.5)
        grid = bound * nodes
        apart = (grid[:, None] - points[None, :]) / step
        kept = np.exp(-0.5 * apart**2) / (step * (2.0 * np.pi) ** 0.5) @ density
        points, density = grid, kept * (bound * weights)
        before, used = share, spent(share, level)
    return [float(2.0 * ndtr(-bound)) for bound in bounds]


def _bound(points: FloatArray, density: FloatArray, step: float, allowed: float) -> float:
    """Return the bound that the statistic exceeds with the allowed probability after one step."""
    from scipy.special import ndtr

    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2.0
        beyond = ndtr((-middle - points) / step) + ndtr((points - middle) / step)
        low, high = (middle, high) if float(beyond @ density) > allowed else (low, middle)
    return high
