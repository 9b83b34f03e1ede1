"""Looking more than once: the seeds that a test still needs, and a rule that says when to stop.

*Seeds that are needed.* The variance seen so far is split into what more seeds make smaller (luck
of the seeds, errors) and what they do not (prompts that one row is better at than another): with n
seeds the mean squares would expect

    E MS_seed   as seen
    E MS_prompt = MS_error + n / S (MS_prompt - MS_error)
    E MS_error  as seen

and the smallest margin that would be found follows as for any interval.

*When to stop.* A claim that is tested again after every few seeds at 5% is decided by chance far
more often than that. A group sequential test spends its 5% over the looks: by a share t of the
most seeds it has spent

    spent(t) = 4 (1 - Phi(z / sqrt(t))),    z = Phi^-1(1 - level / 4),

half of it on each side: next to nothing early and nearly all at the end (O'Brien and Fleming's
shape in the form of Lan and DeMets, for looks whenever they come). The level of each look follows
from the levels before it, for a statistic that gains independent increments. A t test is judged by
its p-value against these levels (Jennison and Turnbull 2000, section 3.8). Prompts that every seed
answers make looks more alike than independent increments do, and that errs on the careful side.
With three seeds or more at the first look the overall error is 4 to 6%
(`tests/statistics/test_sequential.py`).

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
    Prior,
    ScoreMatrix,
    Scores,
    Spread,
    crossed_moments,
)

MOST_SEEDS = 200
"""Beyond so many seeds a margin counts as out of reach."""

_POINTS = 201
"""Points at which the density of a statistic that has not crossed is kept."""


def seeds_needed(
    margin: Scores, sought: float, level: float, power: float, prior: Prior | None = None
) -> int | None:
    """Return with how many seeds a two-sided test finds a margin of some size with some power.

    Args:
        margin: Scores of two seeds or more whose mean is tested.
        sought: The size that should be found.
        level: Level of the test.
        power: Probability with which it should be found.
        prior: What the seeds' variance borrows.

    Returns:
        The number, 2 at least; None where `MOST_SEEDS` are too few.
    """
    numbers = range(2, MOST_SEEDS + 1)
    found = (n for n in numbers if _detectable(margin, n, level, power, prior) <= sought)
    return next(found, None)


def _detectable(
    margin: Scores, seeds: int, level: float, power: float, prior: Prior | None
) -> float:
    """Return the smallest mean that would be found with another number of seeds."""
    if isinstance(margin, ScoreMatrix):
        now, prompts = margin.values.shape
        seen = crossed_moments(margin.values)
        own = np.maximum(seen.ms_prompt - seen.ms_error, 0.0)
        squares = (seen.ms_seed, seen.ms_error + seeds / now * own, seen.ms_error)
        expected = CrossedMoments.of(seen.mean, squares, (seeds, prompts), prior)
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
    """Return the error that may be spent by a share of the most seeds, above 0 and up to 1."""
    from scipy.special import ndtr, ndtri

    return float(4.0 * ndtr(ndtri(level / 4.0) / share**0.5))


def levels_of_looks(looks: Sequence[int], most: int, level: float) -> list[float]:
    """Return the level at which a p-value decides at each look.

    Args:
        looks: Seeds at each look, rising.
        most: The most seeds there will be, those of the last look that may come.
        level: The overall error, two-sided.

    Raises:
        HarnessError: The looks do not rise, or go beyond the most.
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
        # The score statistic of what has not crossed: a sum of increments of variance `share`.
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
    """Return how far from zero a statistic goes with some probability after one more step."""
    from scipy.special import ndtr

    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2.0
        beyond = ndtr((-middle - points) / step) + ndtr((points - middle) / step)
        low, high = (middle, high) if float(beyond @ density) > allowed else (low, middle)
    return high
