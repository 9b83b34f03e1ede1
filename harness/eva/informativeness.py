"""How informative a prompt is for the policy, and which prompts the creator evolves.

Model. Each of P prompts has N rewards, one per sampled completion, from *one* reward model. A
metric reduces them to one number, the prompt's informativeness. Weights are the informativeness,
min-max normalized over the whole prompt set and divided by its sum:

    w_i = (v_i - min v) / (max v - min v),        weight_i = w_i / sum(w)

An inverse metric uses `1 - w_i` instead of `w_i`, not the reciprocal. The least informative prompt
thus has weight exactly 0, and if all prompts are equally informative, weights are undefined: an
error, because any selection would be an artifact of rounding or row order.

A selection is a share of the set. `weighted` draws successively without replacement, each time with
probability proportional to weight among the remaining prompts. `greedy` takes the prompts of
highest weight. Weighted draws can run out of prompts with positive weight; the dueling advantage,
for example, is zero wherever the best answer was given twice. Then selection either fails (`error`)
or draws the rest uniformly from the prompts of zero weight (`uniform`), the limit of adding a small
floor to every weight.

Names: the paper's A*_min is the advantage of the best completion over the *worst* (`a_min`),
A*_avg over the *mean* (`a_avg`), A*_dis over the *second best* (`a_dis`).

Source: paper section 3.2, section 4.2.2, tables 3 to 5; the authors' code for min-max and for the
inverse metrics. They use pandas' weighted sampling without replacement, which is equivalent.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.errors import HarnessError
from harness.extensions import METRICS

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


def check_rewards(rewards: ArrayLike) -> Floats:
    """Return P x N rewards as a float array after checking shape, N >= 2, and finiteness."""
    array = np.asarray(rewards, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] == 0:
        raise HarnessError(
            f"the rewards have shape {array.shape}, but one row for each prompt and one column for "
            "each completion are needed: check the annotated completions."
        )
    if array.shape[1] < 2:
        raise HarnessError(
            "each prompt has a single rewarded completion, but comparing needs at least two: raise "
            "the number of samples for each prompt."
        )
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise HarnessError(
            f"{int(bad.sum())} of {array.size} rewards are not finite (first: prompt {row}, sample "
            f"{column}, {array[row, column]}): check the reward model."
        )
    return array


def informativeness(rewards: ArrayLike, metric: str) -> Floats:
    """Reduce finite P x N rewards to P values of informativeness.

    They are in the reward model's units (`var`: squared; `uniform`: all 1). Inverse metrics return
    the quantity to invert (`mean_inv` the mean, `a_min_inv` the gap); `weights` does the inversion.

    Source: paper table 3 (advantages) and table 4 (the others).
    """
    reduced = METRICS.load(metric)
    array = check_rewards(rewards)
    values = np.asarray(reduced(array), dtype=np.float64)
    if values.shape != array.shape[:1] or not np.isfinite(values).all():
        given = "some that are not finite"
        if values.shape != array.shape[:1]:
            given = f"an array of the shape {values.shape}" if values.shape else "a single number"
        raise HarnessError(
            f"the metric `{metric}` gives no finite number for each of the {len(array)} prompts, "
            f"but {given}: correct it in the plug-in that adds it."
        )
    return values


def below_best(rewards: Floats) -> Floats:
    """Return how far each reward is below the best of its prompt.

    Metrics of these distances are exactly 0 for equal rewards, whereas `max - mean` would leave a
    rounding error for min-max to amplify.
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
    """Return whether low values of a metric mark the informative prompts."""
    added = METRICS.added(metric)
    return metric in ("mean_inv", "a_min_inv") if added is None else bool(added.options["inverse"])


def weights(values: ArrayLike, metric: str, floor: float | None = None) -> Floats:
    """Turn the informativeness of P prompts into sampling weights, each >= 0, with sum 1.

    The metric determines the weights: min-max, 1 - min-max, or 1/P (`uniform`). `floor` is a lower
    bound on these before normalizing to sum 1; with it, equal values give equal weights, no error.

    Source: authors' code (`src/evolve_prompt.py`); paper section 3.3.2 and appendix A.
    """
    METRICS.load(metric)
    array = np.asarray(values, dtype=np.float64)
    low, high = array.min(), array.max()
    if metric == "uniform" or (low == high and floor is not None):
        return np.full(len(array), 1.0 / len(array))
    if low == high:
        raise HarnessError(
            f"all {len(array)} prompts have the same informativeness ({metric} = {low:g}), so "
            "there is no ground to prefer one: check that the reward model tells the completions "
            "apart, or sample with the metric `uniform`."
        )
    scaled = (array - low) / (high - low)
    if is_inverse(metric):
        scaled = 1.0 - scaled
    if floor is not None:
        scaled = np.maximum(scaled, floor)
    return np.asarray(scaled / scaled.sum())


def selected_count(n_prompts: int, fraction: float) -> int:
    """Return how many of `n_prompts` a `fraction` in (0, 1] selects, rounded down; 0 is an error.

    Source: authors' code (`int(0.25 * n)` in `src/evolve_prompt.py`).
    """
    count = int(round(fraction * n_prompts, 9))  # 0.29 of 400 is 116, not 115.99…
    if count == 0:
        raise HarnessError(
            f"a fraction of {fraction} of {n_prompts} prompts selects none: use more prompts or a "
            "larger fraction."
        )
    return count


def select(
    weights: ArrayLike,
    count: int,
    sampling: Literal["weighted", "greedy"],
    rng: np.random.Generator,
    too_few: Literal["error", "uniform"] = "error",
) -> Positions:
    """Choose `count` of P prompts by weight: distinct positions, in the order drawn.

    `greedy` orders by descending weight, ties by position, and does not use `rng`. `too_few` says
    what weighted sampling does if fewer than `count` prompts have positive weight.
    """
    array = np.asarray(weights, dtype=np.float64)
    if sampling == "greedy":
        return np.argsort(-array, kind="stable")[:count].astype(np.int64)
    positive = int(np.count_nonzero(array > 0))
    if positive < count and too_few == "uniform":
        first = rng.choice(array.shape[0], size=positive, replace=False, p=array)
        rest = rng.choice(np.flatnonzero(array == 0), size=count - positive, replace=False)
        return np.concatenate([first, rest]).astype(np.int64)
    if positive < count:
        raise HarnessError(
            f"{count} prompts are to be drawn but only {positive} of {array.shape[0]} have a "
            "positive weight: lower the fraction, use more prompts, or sample with `greedy`."
        )
    return rng.choice(array.shape[0], size=count, replace=False, p=array).astype(np.int64)
