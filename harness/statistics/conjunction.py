"""Statements that a mean is above zero, tested one by one and together.

A statement is about the mean of one set of scores, often a weighted sum of several: `a - b` for a
difference, `a - b + share (c - d)` for a difference that may fall short of zero by a share of a
gain. Putting the gain into the sum, rather than its estimate into a margin, keeps the noise of
the gain in the test. A claim is a conjunction of such statements:

* It is shown when every statement is shown: its one-sided p-value is the largest of theirs
  (intersection-union test). Two statements, d + m > 0 and m - d > 0, are the two one-sided tests
  of equivalence; one, d + m > 0, is the test of non-inferiority.
* It is refuted when any statement is refuted: the one-sided p-value against it is the smallest of
  theirs times their number (Bonferroni).

Both directions are looked at, so the p-value of a claim is twice the smaller of the two. For one
statement it is the usual two-sided p-value, and the claim is decided at 5% just when the 95%
interval excludes zero.

Sources: Berger (1982), Technometrics 24(4) (intersection-union); Schuirmann (1987), Journal of
Pharmacokinetics and Biopharmaceutics 15(6) (two one-sided tests); Rothmann et al. (2003),
Statistics in Medicine 22(2) (a margin that is a share of an estimated effect).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, Self, TypeVar

import numpy as np

from harness.errors import HarnessError
from harness.statistics.intervals import Interval


class Linear(Protocol):
    """What weighted sums are made of: a score matrix, or nested scores."""

    def scaled(self, weight: float) -> Self:
        """Return all values times a number."""

    def plus(self, other: Self) -> Self:
        """Return the sum with scores of the same seeds."""


AnyScores = TypeVar("AnyScores", bound=Linear)


@dataclass(frozen=True)
class Conjunction:
    """How several statements fare together.

    Attributes:
        p_for: One-sided p-value against "some statement is false": small shows the conjunction.
        p_against: One-sided p-value against "every statement is true": small refutes it.
        weakest: Position of the statement with the least in its favour.
    """

    p_for: float
    p_against: float
    weakest: int

    @property
    def p_value(self) -> float:
        """Twice the smaller of the two p-values, at most 1."""
        return min(1.0, 2.0 * min(self.p_for, self.p_against))

    @property
    def favoured(self) -> bool:
        """Whether the data lean to the conjunction rather than against it."""
        return self.p_for < self.p_against


def weighted_sum(terms: Sequence[tuple[float, AnyScores]]) -> AnyScores:
    """Return the weighted sum of scores, paired by seed and, unless nested, by prompt.

    Raises:
        HarnessError: There is no term, or the scores differ in seeds or prompts.
    """
    if not terms:
        raise HarnessError("A weighted sum needs at least one set of scores; none was given.")
    return reduce(lambda a, b: a.plus(b), [scores.scaled(weight) for weight, scores in terms])


def conjunction(statements: Sequence[Interval]) -> Conjunction:
    """Test statements, each "this mean is above zero", together.

    Args:
        statements: The means with their standard errors, from two seeds or more.

    Raises:
        HarnessError: There is no statement, or one seed stands behind one.
    """
    if not statements:
        raise HarnessError("A conjunction needs at least one statement; none was given.")
    if any(statement.over == "prompts" for statement in statements):
        raise HarnessError("One seed says nothing about a recipe; run two seeds or more.")
    p_for = [statement.p_above_zero() for statement in statements]
    # The other tail for itself, not as 1 - p, which would lose the digits of small values.
    p_against = [
        replace(statement, mean=-statement.mean).p_above_zero() for statement in statements
    ]
    return Conjunction(
        p_for=max(p_for),
        p_against=min(1.0, len(statements) * min(p_against)),
        weakest=int(np.argmin(p_against)),
    )


def detectable(interval: Interval, alpha: float, power: float = 0.8) -> float:
    """Return the smallest true mean that a test like this one finds with the power asked for.

    It is (t[1 - alpha / 2] + t[power]) times the standard error, the quantiles at the interval's
    degrees of freedom: a mean that large is, with that probability, far enough from zero.

    Args:
        interval: The mean with its standard error.
        alpha: Two-sided level of the test.
        power: Probability of finding it.

    Raises:
        HarnessError: The level or the power is not between 0 and 1.

    Source: Bloom (1995), Evaluation Review 19(5) (minimum detectable effects).
    """
    if not (0.0 < alpha < 1.0 and 0.0 < power < 1.0):
        raise HarnessError(
            f"A level of {alpha} or a power of {power} is not between 0 and 1; use 0.05 and 0.8."
        )
    return max(spread.detectable(alpha, power) for spread in interval.spreads)
