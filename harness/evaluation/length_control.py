"""A win rate at equal lengths: preference regressed on the difference of lengths.

Model, for prompt i with preference p[i] in [0, 1] for the model over the baseline:

    p[i] ~ expit(theta + beta * tanh(d[i] / sd(d))),   d[i] = length of answer - of baseline's

fitted by maximum likelihood with soft labels and no penalty. The score is expit(theta), the
preference predicted where the two answers are equally long.

This is **not** AlpacaEval's length-controlled win rate and must not carry its name. AlpacaEval's
regression has a third term, the difficulty of each instruction from a joint fit over its
leaderboard, an L1 penalty chosen by cross-validation, and two further "gamed" baselines mixed in
with a small weight; its score is the mean of the predictions over instructions. What the two share
is the tanh of the standardised length difference, and predicting at zero.

Where no finite fit exists:

* one side is preferred with certainty everywhere: the score is the limit, 0 or 1, which is also
  the plain win rate;
* all answers are exactly as long as the baseline's: there is nothing to control for, and the score
  is the plain win rate;
* the length term is the same for all prompts (to a thousandth) but not zero, or a threshold on it
  separates wins from losses: equal lengths lie far outside what was seen, or the prediction there
  depends on how the fit runs off to infinity. There is no score.

Source: Dubois et al. (2024), Length-controlled AlpacaEval, section 3 (the length term);
existence: Albert and Anderson (1984), Biometrika 71.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from harness.evaluation.logistic import fit_logistic, information
from harness.evaluation.scores import FloatArray

_NARROWEST = 1e-3  # range of the length term below which nothing can be carried to zero

State = Literal["fitted", "equal lengths", "one side always preferred", "not identified"]


@dataclass(frozen=True, eq=False)
class LengthControl:
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


def control_length(preference: FloatArray, difference: FloatArray) -> LengthControl:
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
    if np.all(preference == preference[0]) and preference[0] in (0.0, 1.0):
        return LengthControl(
            float(preference[0]), preference.copy(), None, "one side always preferred"
        )
    if not difference.any():
        return LengthControl(float(preference.mean()), preference.copy(), None, "equal lengths")
    if np.ptp(difference) == 0.0:
        return LengthControl(None, None, None, "not identified")
    x = np.tanh(difference / difference.std(ddof=1))
    if np.ptp(x) < _NARROWEST or _separated(x, preference):
        return LengthControl(None, None, None, "not identified")
    design, weight = np.column_stack([np.ones_like(x), x]), np.ones_like(x)
    theta, beta = fit_logistic(design, preference, weight)
    fitted = expit(design @ np.array([theta, beta]))
    rate = float(expit(theta))
    inverse = np.linalg.inv(information(design, fitted, weight))
    influence = len(x) * rate * (1.0 - rate) * (design @ inverse[0]) * (preference - fitted)
    return LengthControl(rate, rate + influence, float(beta), "fitted")


def _separated(x: FloatArray, preference: FloatArray) -> bool:
    """Say whether a threshold on x has all weight of wins on one side and of losses on the other.

    A soft preference puts some weight on both outcomes at its x.
    """
    won, lost = x[preference > 0.0], x[preference < 1.0]
    return bool(won.min() >= lost.max() or won.max() <= lost.min())
