"""The training mix of one eva iteration: mostly evolved pairs, with some of the original ones.

The model. The mix has a fixed size, so that every arm of a table trains on equally many pairs, and
a fixed share of it is evolved. Each part is a uniform sample without replacement of its set, and
the whole is shuffled. Where unusable rewrites have left fewer evolved items than the share asks
for, all of them are taken and original ones fill their places. The authors take fixed shares of
each *set*, which gives the same mix when both sets are as large as the mix and another one
otherwise; here the share is one of the mix, by construction.

Source: paper appendix A (20% original, 80% evolved); authors' code
(`src/snippets/combine_ds.py`).

`repeated` is no part of the method: a control trains on a small set for as long as on a mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from harness.errors import HarnessError, UserError

Item = TypeVar("Item")


class MixingError(HarnessError):
    """There are fewer items than the mix needs."""


def evolved_count(size: int, evolved_share: float) -> int:
    """Return how many of a mix of `size` items are evolved: the whole number nearest to the share.

    Raises:
        UserError: the share is outside [0, 1], or the size is not positive.
    """
    if not 0.0 <= evolved_share <= 1.0:
        raise UserError(f"the evolved share of the mix is {evolved_share}: give one in [0, 1].")
    if size < 1:
        raise UserError(f"the size of the mix is {size}: give a positive number.")
    return round(size * evolved_share)


def mix(
    base: Sequence[Item],
    evolved: Sequence[Item],
    size: int,
    evolved_share: float,
    rng: np.random.Generator,
) -> list[Item]:
    """Mix original and evolved items into one shuffled training set of a size.

    `evolved_count(size, evolved_share)` of them come from `evolved`, or all that there are.

    Raises:
        UserError: see `evolved_count`.
        MixingError: there are too few items.
    """
    n_evolved = min(evolved_count(size, evolved_share), len(evolved))
    if len(base) < size - n_evolved:
        raise MixingError(
            f"a mix of {size} with an evolved share of {evolved_share} needs {size - n_evolved} "
            f"original items beside {n_evolved} evolved ones, but there are {len(base)}: lower the "
            "size or change the share."
        )
    parts: list[Item] = []
    for items, count in ((base, size - n_evolved), (evolved, n_evolved)):
        parts += [items[int(i)] for i in rng.choice(len(items), size=count, replace=False)]
    return [parts[int(i)] for i in rng.permutation(size)]


def repeated(items: Sequence[Item], size: int, rng: np.random.Generator) -> list[Item]:
    """Go over items again and again until there are `size`.

    Each pass takes every item once, in an order of its own, and the last pass is cut off.

    Raises:
        UserError: the size is not positive.
        MixingError: there are no items.
    """
    if size < 1:
        raise UserError(f"{size} items are asked for: give a positive number.")
    if not items:
        raise MixingError("there are no items to go over: check the stage that selects them.")
    passes = -(-size // len(items))
    order = [int(i) for _ in range(passes) for i in rng.permutation(len(items))]
    return [items[i] for i in order[:size]]
