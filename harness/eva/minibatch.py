"""What goes into and comes out of a step of online eva: its settings, its prompts, its outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.eva.buffer import Eviction
from harness.eva.evolving import Prompt, Shape

Phase = Literal["human", "warm-up", "mix-up", "bootstrap"]


@dataclass(frozen=True)
class StreamSettings:
    """How mini-batches are made; sizes in prompts. The fields are those of a recipe's `online`.

    Raises:
        UserError: a share makes no whole number of prompts, or the buffer cannot fill a mini-batch.
    """

    minibatch: int
    capacity: int
    metric: str
    n_new: int
    n_new_bootstrap: int
    ratio_evol: float
    evolve_share: float
    shape: Shape = "independent"
    tree_depth: int = 1
    warm_up_steps: int | None = None
    human_order: Literal["one_pass", "iid"] = "one_pass"
    buffer_holds: Literal["evolved", "evolved_and_human"] = "evolved"
    weight_floor: float = 0.01
    replacement: bool = False
    evolve_by: Literal["rank", "draw"] = "rank"
    child_score: Literal["rollout", "parent"] = "rollout"
    rescore_every: int | None = None
    eviction: Eviction = "oldest"
    retries: int = 0

    def __post_init__(self) -> None:
        for name, share in (("ratio_evol", self.ratio_evol), ("evolve_share", self.evolve_share)):
            if not 0 <= share <= 1 or abs(share * self.minibatch % 1) > 1e-9:
                raise UserError(
                    f"`{name}` {share:g} of a mini-batch of {self.minibatch} is no whole number of "
                    "prompts: choose a share in [0, 1] that divides it."
                )
        if self.capacity < self.minibatch:
            raise UserError(
                f"the buffer holds {self.capacity} prompts and a mini-batch takes "
                f"{self.minibatch}: enlarge the buffer."
            )

    @property
    def from_buffer(self) -> int:
        """Prompts of a mini-batch that come from the buffer in mix-up."""
        return round(self.ratio_evol * self.minibatch)

    @property
    def evolved(self) -> int:
        """Prompts of a mini-batch that are evolved."""
        return round(self.evolve_share * self.minibatch)


@dataclass(frozen=True)
class MiniBatch:
    """The prompts of one step: its number, from 1, its phase, and how many came from the buffer."""

    step: int
    phase: Phase
    prompts: tuple[Prompt, ...]
    from_buffer: int


@dataclass
class Fed:
    """What a step did to the prompts after its rollouts.

    Attributes:
        informativeness: of the mini-batch's prompts, in order.
        children: rewrites that entered the buffer.
        scored: prompts that were rolled out besides the mini-batch.
        calls: calls of the creator.
        dropped: rewrites given up after all retries.
        unusable: unusable rewrites by reason.
        evicted: prompts that left the buffer untrained.
    """

    informativeness: NDArray[np.float64]
    children: list[Prompt] = field(default_factory=list)
    scored: int = 0
    calls: int = 0
    dropped: int = 0
    unusable: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
