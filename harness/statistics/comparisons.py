"""Comparisons over the rows of a table: many p-values, rank correlation, agreement of signs.

They are what can be said about a toy-scale table beside the paper's: not whether the numbers
agree, but whether the rows order and the gains point the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.errors import HarnessError


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values, in the order given.

    Rejecting where the adjusted value is below a level keeps the chance of any false rejection
    in the family below that level, whatever the dependence between the tests.

    Args:
        p_values: The family's p-values; leave out comparisons that have none.

    Raises:
        HarnessError: A p-value is not between 0 and 1.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise HarnessError("A p-value is not between 0 and 1; leave out comparisons without one.")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation over rows, ties sharing their mean rank.

    Returns:
        The correlation, or None where it says nothing: fewer than three rows, or one side
        constant.

    Raises:
        HarnessError: The two have different lengths, or a value is not finite.
    """
    left, right = _finite_pair(a, b)
    if len(left) < 3 or np.ptp(left) == 0.0 or np.ptp(right) == 0.0:
        return None
    return float(stats.spearmanr(left, right).statistic)


@dataclass(frozen=True)
class SignAgreement:
    """How many gains point the same way as the paper's.

    Attributes:
        agree: Rows where both gains have the same sign.
        total: Rows compared: those where the paper's gain is not zero.
    """

    agree: int
    total: int


def sign_agreement(ours: Sequence[float], paper: Sequence[float]) -> SignAgreement:
    """Count the rows whose gain has the sign of the paper's gain.

    A row where the paper prints no gain (zero) claims no direction and is not counted. A gain of
    exactly zero on our side agrees with neither direction.

    Raises:
        HarnessError: The two have different lengths, or a value is not finite.
    """
    left, right = _finite_pair(ours, paper)
    counted = right != 0.0
    agree = np.sign(left[counted]) == np.sign(right[counted])
    return SignAgreement(agree=int(agree.sum()), total=int(counted.sum()))


def _finite_pair(
    a: Sequence[float], b: Sequence[float]
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]
]:
    left, right = np.array(a, dtype=np.float64).ravel(), np.array(b, dtype=np.float64).ravel()
    if len(left) != len(right):
        raise HarnessError(
            f"Two columns of {len(left)} and {len(right)} rows cannot be compared; give both "
            "values of each row."
        )
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise HarnessError("A compared value is not finite; leave out rows without a score.")
    return left, right
