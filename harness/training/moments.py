"""An optimiser's state on disk: safetensors, one tensor for each parameter and moment.

The trainers' own checkpoints are pickles, which are not to be read from anybody.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def write_moments(optimizer: Any, path: Path) -> None:
    """Write an optimiser's state as safetensors, `<parameter>.<moment>` each."""
    state = optimizer.state_dict()["state"]
    save_file(
        {f"{index}.{name}": value for index, kept in state.items() for name, value in kept.items()},
        path,
    )


def read_moments(optimizer: Any, path: Path) -> None:
    """Give a new optimiser over the same parameters a state that `write_moments` wrote."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(path).items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
