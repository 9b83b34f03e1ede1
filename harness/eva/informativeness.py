"""How much a prompt can still teach the policy, and the weight it is therefore sampled with.

The model. Each of P prompts has N rewards, one for each sampled completion, of *one* reward model.
A metric reduces them to one number, the prompt's informativeness. Weights are the min-max
normalised informativeness over the whole prompt set, divided by their sum:

    w_i = (v_i - min v) / (max v - min v),        weight_i = w_i / sum(w)

An inverse metric uses `1 - w_i` in place of `w_i`; it is not a reciprocal. So the least informative
prompt has weight exactly 0, and if all prompts are equally informative no weights exist: that is an
error, because any choice made then would be an artefact of rounding or of row order.

Names: the paper's A*_min is the advantage of the best completion over the *worst* (`a_min`),
A*_avg over the *mean* (`a_avg`), A*_dis over the *second best* (`a_dis`).

Source: paper section 3.2 and table 3; the authors' code for min-max and for the inverse metrics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.errors import HarnessError
from harness.extensions import METRICS

Floats = NDArray[np.float64]


class InformativenessError(HarnessError):
    """The rewards do not define an informativeness."""


class NoSpreadError(InformativenessError):
    """All prompts are equally informative, so that min-max weights are undefined."""


def check_rewards(rewards: ArrayLike) -> Floats:
    """Return P x N rewards as a float array, refusing what no comparison can be made on.

    Raises:
        InformativenessError: no prompt, fewer than two completions, or a reward that is not finite.
    """
    array = np.asarray(rewards, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] == 0:
        raise InformativenessError(
            f"the rewards have shape {array.shape}, but one row for each prompt and one column for "
            "each completion are needed: check the annotated completions."
        )
    if array.shape[1] < 2:
        raise InformativenessError(
            "each prompt has a single rewarded completion, but comparing needs at least two: raise "
            "the number of samples for each prompt."
        )
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InformativenessError(
            f"{int(bad.sum())} of {array.size} rewards are not finite (first: prompt {row}, sample "
            f"{column}, {array[row, column]}): check the reward model."
        )
    return array


def informativeness(rewards: ArrayLike, metric: str) -> Floats:
    """Reduce each prompt's rewards to its informativeness.

    The inverse metrics return the quantity they invert (`mean_inv` the mean, `a_min_inv` the gap):
    the inversion belongs to the weights.

    Args:
        rewards: P x N finite rewards, in the reward model's units.
        metric: one of `harness.extensions.METRICS`.

    Returns:
        P values, in the reward model's units (`var`: squared; `uniform`: all 1).

    Raises:
        UserError: unknown metric.
        InformativenessError: see `check_rewards`.

    Source: paper table 3 (advantages) and table 4 (the others).
    """
    reduced = METRICS.get(metric)
    array = check_rewards(rewards)
    values = np.asarray(reduced(array), dtype=np.float64)
    if values.shape != array.shape[:1] or not np.isfinite(values).all():
        given = "some that are not finite"
        if values.shape != array.shape[:1]:
            given = f"an array of the shape {values.shape}" if values.shape else "a single number"
        raise InformativenessError(
            f"the metric `{metric}` gives no finite number for each of the {len(array)} prompts, "
            f"but {given}: correct it in the plug-in that adds it."
        )
    return values


def below_best(rewards: Floats) -> Floats:
    """Return how far each reward lies below the best of its prompt.

    What is taken from these distances is exactly 0 for equal rewards, where `max - mean` would
    leave a rounding error for min-max to blow up.
    """
    return np.asarray(rewards.max(axis=1, keepdims=True) - rewards)


def a_min(rewards: Floats) -> Floats:
    """Return the best completion's advantage over the worst. Paper table 3."""
    return np.asarray(below_best(rewards).max(axis=1))


def a_avg(rewards: Floats) -> Floats:
    """Return the best completion's advantage over the mean. Paper table 3."""
    return np.asarray(below_best(rewards).mean(axis=1))


def a_dis(rewards: Floats) -> Floats:
    """Return the best completion's advantage over the second best. Paper table 3."""
    return np.asarray(np.sort(below_best(rewards), axis=1)[:, 1])


def var(rewards: Floats) -> Floats:
    """Return the variance of the rewards. Paper table 4."""
    return np.asarray(below_best(rewards).var(axis=1))


def mean(rewards: Floats) -> Floats:
    """Return the mean of the rewards. Paper table 4."""
    return np.asarray(rewards.mean(axis=1))


def uniform(rewards: Floats) -> Floats:
    """Return 1 for every prompt. Paper table 4."""
    return np.ones(rewards.shape[0])


a_min_inv, mean_inv = a_min, mean


def is_inverse(metric: str) -> bool:
    """Return whether prompts with small numbers are the informative ones under a metric."""
    added = METRICS.added(metric)
    return metric in ("mean_inv", "a_min_inv") if added is None else bool(added.options["inverse"])


def weights(values: ArrayLike, metric: str) -> Floats:
    """Turn the informativeness of a prompt set into sampling weights.

    Args:
        values: P informativeness values, as `informativeness` returns them for `metric`.
        metric: one of `harness.extensions.METRICS`; decides between min-max, 1 - min-max, and 1/P
            (`uniform`).

    Returns:
        P weights, each at least 0, with sum 1.

    Raises:
        UserError: unknown metric.
        NoSpreadError: all values are equal (which includes a single prompt).

    Source: authors' code (`src/evolve_prompt.py`); paper section 3.2.
    """
    METRICS.get(metric)
    array = np.asarray(values, dtype=np.float64)
    if metric == "uniform":
        return np.full(array.shape[0], 1.0 / array.shape[0])
    low, high = array.min(), array.max()
    if low == high:
        raise NoSpreadError(
            f"all {array.shape[0]} prompts have the same informativeness ({metric} = {low:g}), so "
            "there is no ground to prefer one: check that the reward model tells the completions "
            "apart, or sample with the metric `uniform`."
        )
    scaled = (array - low) / (high - low)
    if is_inverse(metric):
        scaled = 1.0 - scaled
    return np.asarray(scaled / scaled.sum())
