"""Training data: best-versus-worst pairs of completions, and the mix of such pairs.

*Pairs.* The chosen completion has the highest reward and the rejected one the lowest, the first of
equals in both cases. If all completions of a prompt have the same reward, both are the first one:
the DPO loss of such a pair is log 2 whatever the policy, and its gradient is 0 up to rounding. It
teaches nothing but still takes up a place in the batch, which shrinks the step of the other pairs.
The authors keep these pairs, as does the default; a profile's `drop_ties` leaves them out of
training. Either way they are counted, and are part of a mix.

*Mix.* It has a fixed size, so every arm of a table trains on the same number of pairs, and a fixed
share of it is evolved. Each part is a uniform sample without replacement, and the whole is
shuffled. If unusable rewrites leave too few evolved items, all of them are taken and original ones
fill the gap. The authors take fixed shares of each *set*, which gives the same mix only if both
sets are as large as the mix; here the share is of the mix by construction. `repeated` is not part
of the method: a control trains on a small set for as long as on a mix.

Source: paper section 3.3.1 and appendix A (20% original, 80% evolved); authors' code (argmax and
argmin, no filter; `src/snippets/combine_ds.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from harness.errors import HarnessError
from harness.eva.informativeness import Positions, check_rewards

Item = TypeVar("Item")


def best_against_worst(rewards: ArrayLike) -> tuple[Positions, Positions]:
    """Return the positions of each prompt's best and worst completion, given P x N rewards.

    They coincide exactly when all rewards of a prompt are equal.
    """
    array = check_rewards(rewards)
    return array.argmax(axis=1), array.argmin(axis=1)


def evolved_count(size: int, evolved_share: float) -> int:
    """Return the number of evolved items in a mix of `size`, rounded to the nearest integer."""
    return round(size * evolved_share)


def mix(
    base: Sequence[Item],
    evolved: Sequence[Item],
    size: int,
    evolved_share: float,
    rng: np.random.Generator,
) -> list[Item]:
    """Mix original and evolved items into one shuffled training set of `size` items.

    `evolved_count(size, evolved_share)` of them come from `evolved`, or all of it if it has fewer.
    """
    n_evolved = min(evolved_count(size, evolved_share), len(evolved))
    if len(base) < size - n_evolved:
        raise HarnessError(
            f"a mix of {size} with an evolved share of {evolved_share} needs {size - n_evolved} "
            f"original items beside {n_evolved} evolved ones, but there are {len(base)}: lower the "
            "size or change the share."
        )
    parts: list[Item] = []
    for items, count in ((base, size - n_evolved), (evolved, n_evolved)):
        parts += [items[int(i)] for i in rng.choice(len(items), size=count, replace=False)]
    return [parts[int(i)] for i in rng.permutation(size)]


def repeated(items: Sequence[Item], size: int, rng: np.random.Generator) -> list[Item]:
    """Cycle through the items until there are `size`.

    Each pass takes every item once in a new random order; the last pass is cut short.
    """
    if not items:
        raise HarnessError("there are no items to go over: check the stage that selects them.")
    passes = -(-size // len(items))
    order = [int(i) for _ in range(passes) for i in rng.permutation(len(items))]
    return [items[i] for i in order[:size]]
