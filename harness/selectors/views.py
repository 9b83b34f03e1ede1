"""How a selector sees rewards: methods for right and wrong answers need more than a learned reward.

- `raw`: as they are; their spread is what several methods put in place of p (1 - p);
- `beat`: 1 where a reward is above the median of all rewards seen lately, else 0;
- `rank`: the share of rewards seen lately that lie below it, half of those equal to it included.

Both refer to all prompts, so that an easy prompt has many successes and a hard one few.

Source: ours, for methods whose papers have rewards of 0 and 1 alone.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.informativeness import Floats
from harness.registry.recipe import Seen

LATELY = 2048
"""Rewards that a view remembers."""


class View:
    """A way to see rewards, with the rewards it has seen."""

    def __init__(self, seen: Seen = "raw") -> None:
        self.seen = seen
        self.lately: deque[float] = deque(maxlen=LATELY)

    def take(self, rewards: ArrayLike) -> None:
        """Remember rewards; each once, before it is looked at."""
        if self.seen != "raw":
            self.lately.extend(np.asarray(rewards, dtype=float).ravel().tolist())

    def __call__(self, rewards: ArrayLike) -> Floats:
        """Return rewards as they are seen, in their shape."""
        array = np.asarray(rewards, dtype=float)
        if self.seen == "raw":
            return array
        lately = np.sort(np.array(self.lately))
        if self.seen == "beat":
            return np.asarray(array > np.median(lately), dtype=float)
        below = np.searchsorted(lately, array, "left") + np.searchsorted(lately, array, "right")
        return np.asarray(below / (2 * len(lately)))
