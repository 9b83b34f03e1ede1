"""The prioritised generative buffer: evolved prompts that wait to be trained on.

The model. The buffer is a list of at most `capacity` prompts in the order they came in, each with
the informativeness it was given then. A mini-batch is drawn by weight,

    w_i = max(floor, (v_i - min v) / (max v - min v)),        p_i = w_i / sum(w)

and what is drawn leaves for good. What comes in is added at the end; if there are then too many,
the oldest leave (or the least informative). The floor is there because min-max gives the least
informative prompt weight 0: it would stay until it is evicted and never be trained on.

Source: paper section 3.2 (prioritised sampling) and appendix A (size, first in, first out).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.errors import HarnessError, UserError
from harness.eva.evolving import Prompt
from harness.eva.informativeness import is_inverse

Eviction = Literal["oldest", "least_informative"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entry:
    """A prompt in the buffer.

    Attributes:
        prompt: the prompt with its lineage.
        informativeness: what it was given on entering, or at the last scoring of the buffer.
        entered: step that put it in.
    """

    prompt: Prompt
    informativeness: float
    entered: int


class Buffer:
    """Prompts waiting to be trained on, oldest first.

    Attributes:
        capacity: most prompts it holds.
        entries: what it holds.
    """

    def __init__(self, capacity: int, entries: Iterable[Entry] = ()) -> None:
        """Make a buffer, with what it held when it was saved.

        Raises:
            UserError: the capacity is below 1.
            HarnessError: more entries than it may hold.
        """
        if capacity < 1:
            raise UserError(f"the buffer's capacity is {capacity}: give at least 1.")
        self.capacity = capacity
        self.entries = list(entries)
        if len(self.entries) > capacity:
            raise HarnessError(f"{len(self.entries)} prompts are in a buffer of {capacity}.")

    def __len__(self) -> int:
        return len(self.entries)

    def can_give(self, count: int, replacement: bool) -> bool:
        """Return whether so many prompts can be drawn, with replacement or without."""
        return len(self) >= (min(count, 1) if replacement else count)

    def take(
        self, count: int, rng: np.random.Generator, metric: str, floor: float, replacement: bool
    ) -> list[Prompt]:
        """Draw prompts by weight and remove them; return them in the order drawn.

        With replacement one prompt may be drawn several times; it leaves once.

        Raises:
            HarnessError: fewer prompts than draws (without replacement), or none at all.
        """
        if count == 0:
            return []
        if not self.can_give(count, replacement):
            raise HarnessError(
                f"{count} prompts are to be drawn from a buffer that holds {len(self)}: the "
                "creator's rewrites did not replace what was trained on, so let it make more "
                "(n_new, n_new_bootstrap) or draw less from the buffer (ratio_evol)."
            )
        values = [entry.informativeness for entry in self.entries]
        chances = floored_weights(values, metric, floor)
        drawn = rng.choice(len(self), size=count, replace=replacement, p=chances)
        prompts = [self.entries[position].prompt for position in drawn]
        gone = set(drawn.tolist())
        self.entries = [entry for i, entry in enumerate(self.entries) if i not in gone]
        return prompts

    def put(self, entries: Iterable[Entry], eviction: Eviction) -> int:
        """Add prompts at the end, and evict what is then too many; returns how many left.

        `least_informative` evicts the lowest informativeness first, of equals the oldest.
        """
        self.entries += entries
        surplus = max(0, len(self) - self.capacity)
        if eviction == "oldest":
            gone = set(range(surplus))
        else:
            values = np.array([entry.informativeness for entry in self.entries])
            gone = set(np.argsort(values, kind="stable")[:surplus].tolist())
        self.entries = [entry for i, entry in enumerate(self.entries) if i not in gone]
        return surplus

    def rescore(self, informativeness: Sequence[float]) -> None:
        """Give every prompt a new informativeness, in the order of `entries`."""
        self.entries = [
            Entry(entry.prompt, float(value), entry.entered)
            for entry, value in zip(self.entries, informativeness, strict=True)
        ]


def floored_weights(values: Sequence[float], metric: str, floor: float) -> Floats:
    """Turn B informativeness values, B at least 1, into chances of being drawn, with sum 1.

    Unlike the weights offline, equal values are no error: there is then nothing to prefer, and
    every prompt has the same chance. Inverse metrics use 1 - min-max.
    """
    array = np.asarray(values, dtype=np.float64)
    low, high = array.min(), array.max()
    if low == high:
        return np.full(len(array), 1.0 / len(array))
    scaled = (array - low) / (high - low)
    if is_inverse(metric):
        scaled = 1.0 - scaled
    floored = np.maximum(scaled, floor)
    return np.asarray(floored / floored.sum())
