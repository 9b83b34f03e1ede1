"""Preference pairs: a prompt's best completion against its worst.

The model. Chosen is the completion of highest reward, rejected the one of lowest, the first of
equals in both cases. If all completions of a prompt have the same reward, both rules name the
first one: the pair then sets a text against itself, its DPO loss is log 2 whatever the policy, and
its gradient is 0 up to rounding. Such a pair teaches nothing but still fills a place in the batch,
and so lowers the step that the other pairs take. The authors keep these
pairs, and so does the default here; `drop_ties` removes them. Either way they are counted.

A pair of *different* texts with equal rewards never arises from a prompt with any reward spread,
because its best and worst then differ in reward.

Source: paper section 3.3.1 and appendix A; authors' code (argmax and argmin, no filter).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.eva.informativeness import check_rewards


@dataclass(frozen=True)
class Pairs:
    """Best-against-worst pairs, as positions.

    Attributes:
        prompt: K prompt positions, rising.
        chosen: K sample positions of the chosen completions.
        rejected: K sample positions of the rejected completions.
        reward_chosen: K rewards of the chosen completions.
        reward_rejected: K rewards of the rejected completions.
        ties: number of prompts whose rewards are all equal, kept or dropped.
    """

    prompt: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rejected: NDArray[np.int64]
    reward_chosen: NDArray[np.float64]
    reward_rejected: NDArray[np.float64]
    ties: int

    def __len__(self) -> int:
        return int(self.prompt.shape[0])


def best_against_worst(rewards: ArrayLike, *, drop_ties: bool = False) -> Pairs:
    """Pair each prompt's best completion with its worst, given P x N rewards.

    `drop_ties` leaves out the prompts whose rewards are all equal.

    Raises:
        InformativenessError: fewer than two completions, or a reward that is not finite.
    """
    array = check_rewards(rewards)
    chosen, rejected = array.argmax(axis=1), array.argmin(axis=1)
    # Best and worst are the same completion exactly when the whole row is tied.
    tied = chosen == rejected
    prompt = np.flatnonzero(~tied) if drop_ties else np.arange(array.shape[0])
    return Pairs(
        prompt=prompt.astype(np.int64),
        chosen=chosen[prompt].astype(np.int64),
        rejected=rejected[prompt].astype(np.int64),
        reward_chosen=array[prompt, chosen[prompt]],
        reward_rejected=array[prompt, rejected[prompt]],
        ties=int(tied.sum()),
    )
