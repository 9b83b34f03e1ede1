"""How much a prompt can still teach the policy, and which prompts the creator starts from.

The model. Each of P prompts has N rewards, one for each sampled completion, of *one* reward model.
A metric reduces them to one number, the prompt's informativeness. Weights are the min-max
normalised informativeness over the whole prompt set, divided by their sum:

    w_i = (v_i - min v) / (max v - min v),        weight_i = w_i / sum(w)

An inverse metric uses `1 - w_i` in place of `w_i`; it is not a reciprocal. So the least informative
prompt has weight exactly 0, and if all prompts are equally informative no weights exist: that is an
error, because any choice made then would be an artefact of rounding or of row order.

A selection is a share of the set. `weighted` makes successive draws without replacement: each picks
one of the prompts still left, with probability proportional to its weight. `greedy` takes the
prompts of highest weight. Weighted draws can run out of prompts of positive weight: the duelling
advantage, for one, is zero wherever the best answer was given twice. Then either nothing is
selected (`error`), or the remaining draws are uniform over the prompts of zero weight (`uniform`),
which is the limit of adding a small floor to every weight.

Names: the paper's A*_min is the advantage of the best completion over the *worst* (`a_min`),
A*_avg over the *mean* (`a_avg`), A*_dis over the *second best* (`a_dis`).

Source: paper section 3.2, section 4.2.2, tables 3 to 5; the authors' code for min-max and for the
inverse metrics. They draw with pandas' weighted sampling without replacement, which is the same.
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
    """Return P x N rewards as a float array, refusing what no comparison can be made on."""
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
    """Reduce each prompt's rewards, P x N and finite, to its informativeness, P values.

    They are in the reward model's units (`var`: squared; `uniform`: all 1). The inverse metrics
    return the quantity they invert (`mean_inv` the mean, `a_min_inv` the gap): the inversion
    belongs to the weights.

    Source: paper table 3 (advantages) and table 4 (the others).
    """
    reduced = METRICS.get(metric)
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


def weights(values: ArrayLike, metric: str, floor: float | None = None) -> Floats:
    """Turn a metric's informativeness of P prompts into sampling weights, each >= 0, with sum 1.

    The metric decides between min-max, 1 - min-max, and 1/P (`uniform`). With a floor no min-max is
    below it, and equal values are no error: every prompt has then the same chance.

    Source: authors' code (`src/evolve_prompt.py`); paper section 3.2.
    """
    METRICS.get(metric)
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
    """Return how many of `n_prompts` a `fraction` in (0, 1] selects: rounded down, and not 0.

    Source: authors' code (`int(0.25 * n)` in `src/evolve_prompt.py`).
    """
    count = int(fraction * n_prompts)
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

    `greedy` orders them by falling weight, ties by position, and draws nothing from `rng`.
    `too_few` says what weighted sampling does when fewer prompts than draws have a positive weight.
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
