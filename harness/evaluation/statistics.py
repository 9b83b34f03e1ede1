"""The fit behind a preference at equal lengths, which is not AlpacaEval's.

For prompt i with preference p[i] in [0, 1] for the model over the baseline:

    p[i] ~ expit(theta + beta * tanh(d[i] / sd(d))),   d[i] = length of answer - of baseline's

The score is expit(theta). AlpacaEval's regression has a third term (the difficulty of each
instruction, from a joint fit over its leaderboard), a penalty, and two gamed baselines mixed in.
Here a logistic regression with soft labels and no penalty is fitted by Newton's method. Where one
side is always preferred, or all lengths are equal, the score is the plain win rate; where the
labels are separated by length, or lengths hardly vary, no finite fit exists, and no score.

Source: Dubois et al. (2024), Length-controlled AlpacaEval, section 3 (the length term); existence:
Albert and Anderson (1984), Biometrika 71.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.errors import HarnessError
from harness.evaluation.scores import FloatArray

_STEPS = 100
_LAST_STEP = 1e-8  # in logits; convergence is quadratic, so what is left is below rounding
_NARROWEST = 1e-3  # range of the length term below which nothing can be carried to zero

State = Literal["fitted", "equal lengths", "one side always preferred", "not identified"]


@dataclass(frozen=True, eq=False)
class AtEqualLengths:
    """The preference at equal lengths.

    Attributes:
        rate: Preference for the model at equal lengths, in [0, 1]; None if not identified.
        values: Per-prompt values whose mean is `rate`, shape (prompts,); None with it.
        slope: beta, the log-odds per unit of tanh(difference / sd); None unless fitted.
        state: How the rate came about.
    """

    rate: float | None
    values: FloatArray | None
    slope: float | None
    state: State


def control_length(preference: FloatArray, difference: FloatArray) -> AtEqualLengths:
    """Fit the preference at equal lengths.

    The per-prompt value is the rate plus the prompt's influence on it, rate (1 - rate) times the
    first entry of information^-1 @ (1, x[i]) (p[i] - fitted[i]), times the number of prompts.
    The fit makes the influences sum to zero. Plain residuals would do so too, but would leave out
    the uncertainty of carrying the fit to a length difference that was seldom seen, and give
    intervals too short by up to a half where one model's answers are much longer.

    Args:
        preference: Preference for the model over the baseline, in [0, 1], shape (prompts,).
        difference: Answer length minus the baseline's, any unit, shape (prompts,).
    """
    from scipy.special import expit

    if np.all(preference == preference[0]) and preference[0] in (0.0, 1.0):
        return AtEqualLengths(
            float(preference[0]), preference.copy(), None, "one side always preferred"
        )
    if not difference.any():
        return AtEqualLengths(float(preference.mean()), preference.copy(), None, "equal lengths")
    if np.ptp(difference) == 0.0:
        return AtEqualLengths(None, None, None, "not identified")
    x = np.tanh(difference / difference.std(ddof=1))
    if np.ptp(x) < _NARROWEST or _separated(x, preference):
        return AtEqualLengths(None, None, None, "not identified")
    design, weight = np.column_stack([np.ones_like(x), x]), np.ones_like(x)
    theta, beta = fit_logistic(design, preference, weight)
    fitted = expit(design @ np.array([theta, beta]))
    rate = float(expit(theta))
    inverse = np.linalg.inv(information(design, fitted, weight))
    influence = len(x) * rate * (1.0 - rate) * (design @ inverse[0]) * (preference - fitted)
    return AtEqualLengths(rate, rate + influence, float(beta), "fitted")


def _separated(x: FloatArray, preference: FloatArray) -> bool:
    """Say whether a threshold on x has all weight of wins on one side and of losses on the other.

    A soft preference puts some weight on both outcomes at its x.
    """
    won, lost = x[preference > 0.0], x[preference < 1.0]
    return bool(won.min() >= lost.max() or won.max() <= lost.min())


def fit_logistic(design: FloatArray, target: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the maximum-likelihood coefficients of `target ~ expit(design @ coefficients)`.

    Args:
        design: Shape (rows, features), of full column rank; no intercept is added.
        target: Shape (rows,), in [0, 1].
        weight: Shape (rows,), positive.

    Returns:
        The coefficients, shape (features,).
    """
    from scipy.special import expit

    coefficients = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        fitted = expit(design @ coefficients)
        gradient = design.T @ (weight * (target - fitted))
        step = np.linalg.solve(information(design, fitted, weight), gradient)
        coefficients = coefficients + step
        if np.abs(design @ step).max() <= _LAST_STEP:
            return coefficients
    raise HarnessError(
        "A logistic fit did not converge; look whether one side wins every judgment."
    )


def information(design: FloatArray, fitted: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the Fisher information at the fitted probabilities, shape (features, features)."""
    return np.asarray((design * (weight * fitted * (1.0 - fitted))[:, None]).T @ design)
