"""Tiny checkpoints for the tests of training."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gemma import build_tiny_gemma


@pytest.fixture(scope="session", autouse=True)
def _fewer_objects_to_collect() -> None:
    """A trainer collects garbage when it ends, which takes a second over all that was imported."""
    gc.freeze()


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another random policy, which online training and its segments start from."""
    return build_tiny_gemma(tmp_path_factory.mktemp("start"), seed=1)


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the reference of an online training."""
    return build_tiny_gemma(tmp_path_factory.mktemp("other"), seed=2)


@pytest.fixture
def passes() -> Iterator[list[int]]:
    """Collect the number of sequences in each forward pass that a gradient is taken of."""
    seen: list[int] = []

    def note(module: Any, given: Any, _: Any) -> None:
        if isinstance(module, torch.nn.Embedding) and torch.is_grad_enabled():
            seen.append(len(given[0]))

    hook = torch.nn.modules.module.register_module_forward_hook(note)
    yield seen
    hook.remove()
