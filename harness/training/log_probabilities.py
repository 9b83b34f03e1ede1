"""The log-probabilities that TRL's DPO trainer computes and keeps to itself.

Losses and curves that TRL lacks are built from the very forward pass TRL makes, instead of a
second one that would cost as much again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def watched(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collect the log-probabilities of each forward pass of a model, with their gradients.

    Yields:
        A list that receives a tensor for each pass: sequences x (tokens - 1), 0 wherever the token
        predicted does not belong to a completion.
    """
    seen: list[torch.Tensor] = []
    handle = model.register_forward_hook(lambda _, inputs, output: seen.append(output.log_probs))
    try:
        yield seen
    finally:
        handle.remove()
