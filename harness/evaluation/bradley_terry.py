"""Bradley-Terry ratings by maximum likelihood, read as win rates against a baseline.

Model: i beats j with probability expit(r[i] - r[j]); a tie is half a win for each. Arena-Hard's
ratings have base 10 and scale 400, which only changes the unit of r: the win rate
1 / (1 + 10^((r[baseline] - r[model]) / 400)) is the same number.

With two models the fitted win rate is the share of weighted wins, ties half. The same holds for
many models that each met the baseline only.

Where one model never lost to another, the ratings that maximise the likelihood are infinitely far
apart. A finite maximum exists within each group of models connected by wins in both directions
(Ford, 1957); between groups the limit of the win rate is 0 or 1, and it is returned as such.

Source: Bradley and Terry (1952), Biometrika 39; Arena-Hard, lm-sys/arena-hard-auto
`show_result.py`, functions compute_mle_elo and predict_win_rate.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.special import expit

from harness.errors import HarnessError
from harness.evaluation.logistic import fit_logistic
from harness.evaluation.scores import FloatArray


def win_rates(wins: FloatArray, baseline: int) -> FloatArray:
    """Return each model's probability of beating the baseline.

    Args:
        wins: Shape (models, models); `wins[i, j]` is the weight of i's wins over j, ties half.
        baseline: Index of the baseline model.

    Returns:
        Shape (models,), in [0, 1]; 0.5 for the baseline itself.

    Raises:
        HarnessError: No chain of wins or losses connects a model with the baseline.
    """
    beats = (wins > 0).astype(np.int64)
    _, group = connected_components(beats, directed=True, connection="strong")
    peers = np.flatnonzero(group == group[baseline])
    rates = np.full(len(wins), np.nan)
    rates[breadth_first_order(beats, baseline, return_predecessors=False)] = 0.0
    rates[breadth_first_order(beats.T, baseline, return_predecessors=False)] = 1.0
    ratings = _ratings(wins[np.ix_(peers, peers)])
    rates[peers] = expit(ratings - ratings[np.flatnonzero(peers == baseline)[0]])
    if np.isnan(rates).any():
        raise HarnessError(
            f"{int(np.isnan(rates).sum())} models were never compared with the baseline, directly "
            "or through others; add battles that connect them."
        )
    return rates


def _ratings(wins: FloatArray) -> FloatArray:
    """Return natural-log ratings of models connected by wins in both directions, the first 0."""
    count = len(wins)
    if count == 1:
        return np.zeros(1)
    totals = wins + wins.T
    first, second = np.nonzero(np.triu(totals))
    design = np.zeros((len(first), count))
    design[np.arange(len(first)), first] = 1.0
    design[np.arange(len(first)), second] = -1.0
    weight = totals[first, second]
    fitted = fit_logistic(design[:, 1:], wins[first, second] / weight, weight)
    return np.concatenate([[0.0], fitted])
