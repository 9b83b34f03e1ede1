"""This project's own preference at equal lengths, whose score differs from AlpacaEval's.

For prompt i with preference p[i] in [0, 1] for the model over the baseline:

    p[i] ~ expit(theta + beta * tanh(d[i] / sd(d))),   d[i] = length of answer - of baseline's

The score is expit(theta). AlpacaEval's regression has a third term (the difficulty of each
instruction, from a joint fit over its leaderboard), a penalty, and two gamed baselines mixed in.

Source: Dubois et al. (2024), Length-controlled AlpacaEval, section 3 (the length term); Albert and
Anderson (1984), Biometrika 71 (existence of the fit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.errors import HarnessError
from harness.evaluation.scores import FloatArray

_STEPS = 100
_LAST_STEP = 1e-8  # in logits; convergence is quadratic, so the remaining error is below rounding
_NARROWEST = 1e-3  # range of the length term below which the fit cannot be extrapolated to zero

State = Literal["fitted", "equal lengths", "one side always preferred", "not identified"]


@dataclass(frozen=True, eq=False)
class AtEqualLengths:
    """The preference at equal lengths.

    Attributes:
        rate: Preference for the model at equal lengths, in [0, 1]; None if not identified.
        values: Per-prompt values whose mean is `rate`, shape (prompts,); None if `rate` is.
        slope: beta, the log-odds per unit of tanh(difference / sd); None unless fitted.
    """

    rate: float | None
    values: FloatArray | None
    slope: float | None
    state: State


def control_length(preference: FloatArray, difference: FloatArray) -> AtEqualLengths:
    """Fit the preference at equal lengths.

    If one side is always preferred, or all lengths are equal, the rate is the plain win rate. If
    the labels are separated by length, or the length differences hardly vary, the rate is not
    identified. The per-prompt value is the rate plus the prompt's influence on it: rate (1 - rate)
    times the first entry of information^-1 @ (1, x[i]) (p[i] - fitted[i]), times the number of
    prompts. The fit makes the influences sum to zero. Plain residuals would too, but they ignore
    the uncertainty of extrapolating to rarely seen length differences, and give intervals up to
    50% too short when one model's answers are much longer.

    Args:
        preference: Preference for the model over the baseline, in [0, 1], shape (prompts,).
        difference: Answer length minus the baseline's, any unit, shape (prompts,).
    """
    from scipy.special import expit

    none = AtEqualLengths(None, None, None, "not identified")
    if np.all(preference == preference[0]) and preference[0] in (0.0, 1.0):
        return AtEqualLengths(
            float(preference[0]), preference.copy(), None, "one side always preferred"
        )
    if not difference.any():
        return AtEqualLengths(float(preference.mean()), preference.copy(), None, "equal lengths")
    if np.ptp(difference) == 0.0:
        return none
    x = np.tanh(difference / difference.std(ddof=1))
    if np.ptp(x) < _NARROWEST or _separated(x, preference):
        return none
    design = np.column_stack([np.ones_like(x), x])
    try:
        theta, beta = fit_logistic(design, preference)
    except HarnessError:  # nearly separated: the slope has hardly a bound
        return none
    fitted = expit(design @ np.array([theta, beta]))
    rate = float(expit(theta))
    inverse = np.linalg.inv(information(design, fitted))
    influence = len(x) * rate * (1.0 - rate) * (design @ inverse[0]) * (preference - fitted)
    return AtEqualLengths(rate, rate + influence, float(beta), "fitted")


def _separated(x: FloatArray, preference: FloatArray) -> bool:
    """Return whether a threshold on x separates wins from losses; a soft preference is both."""
    won, lost = x[preference > 0.0], x[preference < 1.0]
    return bool(won.min() >= lost.max() or won.max() <= lost.min())


def fit_logistic(design: FloatArray, target: FloatArray) -> FloatArray:
    """Return the maximum-likelihood coefficients of `target ~ expit(design @ coefficients)`.

    `design` is (rows, features), of full column rank, without an intercept; `target` is in [0, 1].
    """
    from scipy.special import expit

    coefficients = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        fitted = expit(design @ coefficients)
        step = np.linalg.solve(information(design, fitted), design.T @ (target - fitted))
        coefficients = coefficients + step
        if np.abs(design @ step).max() <= _LAST_STEP:
            return coefficients
    raise HarnessError(
        "A logistic fit did not converge; check whether one side wins every judgment."
    )


def information(design: FloatArray, fitted: FloatArray) -> FloatArray:
    """Return the Fisher information at the fitted probabilities, shape (features, features)."""
    return np.asarray((design * (fitted * (1.0 - fitted))[:, None]).T @ design)
