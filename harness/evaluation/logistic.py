"""Unregularised logistic regression with soft labels, by Newton's method.

One fit serves the Bradley-Terry model and length control. The log-likelihood is concave; callers
make sure first that it has a maximum (that the labels are not separated), because only they know
what the score should be when it has none.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from harness.errors import HarnessError
from harness.evaluation.scores import FloatArray

_STEPS = 100
_LAST_STEP = 1e-8  # in logits; convergence is quadratic, so what is left is below rounding
_SHORTEST = 1e-6


def fit_logistic(design: FloatArray, target: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the maximum-likelihood coefficients of `target ~ expit(design @ coefficients)`.

    Args:
        design: Shape (rows, features), of full column rank; no intercept is added.
        target: Shape (rows,), in [0, 1].
        weight: Shape (rows,), positive.

    Returns:
        The coefficients, shape (features,).

    Raises:
        HarnessError: No maximum was reached.
    """
    coefficients = np.zeros(design.shape[1])
    value = _log_likelihood(design @ coefficients, target, weight)
    slack = 1e-12 * weight.sum()  # rounding near the maximum is not a step too far
    for _ in range(_STEPS):
        fitted = expit(design @ coefficients)
        gradient = design.T @ (weight * (target - fitted))
        step = np.linalg.solve(information(design, fitted, weight), gradient)
        if np.abs(design @ step).max() <= _LAST_STEP:
            return coefficients + step
        scale = 1.0
        risen = _log_likelihood(design @ (coefficients + step), target, weight)
        while risen < value - slack and scale > _SHORTEST:
            scale /= 2.0
            risen = _log_likelihood(design @ (coefficients + scale * step), target, weight)
        coefficients, value = coefficients + scale * step, risen
    raise HarnessError(
        "A logistic fit did not converge; look whether one side wins every judgment."
    )


def information(design: FloatArray, fitted: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the Fisher information at the fitted probabilities, shape (features, features)."""
    return np.asarray((design * (weight * fitted * (1.0 - fitted))[:, None]).T @ design)


def _log_likelihood(logits: FloatArray, target: FloatArray, weight: FloatArray) -> float:
    return float((weight * (target * logits - np.logaddexp(0.0, logits))).sum())
