"""How far a mean may be off: a standard error, and how well that is known.

The t distribution turns both into an interval and a p-value; they agree, so that a two-sided
p-value is below 1 - confidence just when the interval excludes zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Spread:
    """How far a mean may be off.

    Attributes:
        standard_error: Standard error of the mean, in the unit of the values.
        df: Degrees of freedom of its estimate.
    """

    standard_error: float
    df: float

    def half_width(self, confidence: float) -> float:
        """Return half the width of the t interval at a confidence, for example 0.95."""
        return float(stats.t.ppf(0.5 + confidence / 2, self.df)) * self.standard_error

    def p_above_zero(self, mean: float) -> float:
        """Return the one-sided p-value of a mean against a true mean of zero or less.

        Without any variance it is 0, 1/2 or 1, by the sign of the mean.
        """
        if self.standard_error == 0.0:
            return (1.0 - float(np.sign(mean))) / 2.0
        return float(stats.t.sf(mean / self.standard_error, self.df))

    def detectable(self, alpha: float, power: float) -> float:
        """Return the smallest true mean that a two-sided test at a level finds with a power."""
        quantiles = stats.t.ppf(1.0 - alpha / 2.0, self.df) + stats.t.ppf(power, self.df)
        return float(quantiles) * self.standard_error
