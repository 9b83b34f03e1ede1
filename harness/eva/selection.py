"""Which prompts the creator starts from: a share of the set, drawn by weight.

The model. `weighted` makes successive draws without replacement: each draw picks one of the
prompts still left, with probability proportional to its weight. `greedy` takes the prompts of
highest weight. Both return positions in the order drawn.

Weighted draws can run out of prompts of positive weight: the duelling advantage, for one, is zero
wherever the best answer was given twice. Then either nothing is selected (`error`), or the
remaining draws are uniform over the prompts of zero weight (`uniform`), which is the limit of
adding a small floor to every weight.

Source: paper section 3.2 (weighted), section 4.2.2 and table 5 (greedy); the authors draw with
pandas' weighted sampling without replacement, which is the same procedure.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.errors import HarnessError, UserError

Sampling = Literal["weighted", "greedy"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)

TooFew = Literal["error", "uniform"]
TOO_FEW: tuple[TooFew, ...] = get_args(TooFew)

Positions = NDArray[np.int64]


class SelectionError(HarnessError):
    """The weights do not allow the draws asked for."""


def selected_count(n_prompts: int, fraction: float) -> int:
    """Return how many of `n_prompts` a `fraction` selects: rounded down, as the authors do.

    Raises:
        UserError: the fraction is outside (0, 1].
        SelectionError: the fraction selects no prompt at all.

    Source: authors' code (`int(0.25 * n)` in `src/evolve_prompt.py`).
    """
    if not 0.0 < fraction <= 1.0:
        raise UserError(f"the fraction of prompts to select is {fraction}: give one in (0, 1].")
    count = int(fraction * n_prompts)
    if count == 0:
        raise SelectionError(
            f"a fraction of {fraction} of {n_prompts} prompts selects none: use more prompts or a "
            "larger fraction."
        )
    return count


def select(
    weights: ArrayLike,
    count: int,
    sampling: str,
    rng: np.random.Generator,
    too_few: str = "error",
) -> Positions:
    """Choose `count` prompts by weight.

    Args:
        weights: P weights, each at least 0, with sum 1.
        count: number of prompts to choose, from 1 to P.
        sampling: `weighted` or `greedy`.
        rng: generator of the draws; not used by `greedy`.
        too_few: what weighted sampling does when fewer prompts than draws have a positive weight:
            `error`, or `uniform` draws from the others.

    Returns:
        `count` distinct positions, in the order drawn (`greedy`: by falling weight, ties by
        position).

    Raises:
        UserError: unknown sampling, or unknown `too_few`.
        SelectionError: more draws than prompts, or (weighted, `error`) than prompts of positive
            weight.
    """
    array = np.asarray(weights, dtype=np.float64)
    if sampling not in SAMPLINGS:
        raise UserError(f"unknown sampling `{sampling}`: use one of {', '.join(SAMPLINGS)}.")
    if too_few not in TOO_FEW:
        raise UserError(f"unknown too_few `{too_few}`: use one of {', '.join(TOO_FEW)}.")
    if not 1 <= count <= array.shape[0]:
        raise SelectionError(
            f"{count} prompts are to be selected from {array.shape[0]}: lower the fraction."
        )
    if sampling == "greedy":
        return np.argsort(-array, kind="stable")[:count].astype(np.int64)
    positive = int(np.count_nonzero(array > 0))
    if positive < count and too_few == "uniform":
        first = rng.choice(array.shape[0], size=positive, replace=False, p=array)
        rest = rng.choice(np.flatnonzero(array == 0), size=count - positive, replace=False)
        return np.concatenate([first, rest]).astype(np.int64)
    if positive < count:
        raise SelectionError(
            f"{count} prompts are to be drawn but only {positive} of {array.shape[0]} have a "
            "positive weight: lower the fraction, use more prompts, or sample with `greedy`."
        )
    return rng.choice(array.shape[0], size=count, replace=False, p=array).astype(np.int64)
