"""A whole model in one process, where a training has spread its own over several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harness.errors import HarnessError
from harness.models.loading import load_model


def filled(start: Path, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return the model of a checkpoint with other weights, on the processor, in float32.

    Args:
        start: checkpoint that a training started from.
        weights: what it ended with, by name; a weight under two names may be given once.

    Raises:
        HarnessError: a weight is not given, or there is no checkpoint at `start`.
    """
    with plain_loading():
        model = load_model(start, "causal")
    model.load_state_dict(weights, strict=False)
    missing = model.state_dict().keys() - weights.keys() - _second_names(model)
    if missing:
        raise HarnessError(f"the processes gave no weights for {sorted(missing)[0]}; report this.")
    return model


@contextmanager
def plain_loading() -> Iterator[None]:
    """Load a model whole in this process, where under ZeRO-3 it would be spread over all of them.

    Without it the first process, loading alone, would wait for the others for ever.
    """
    from transformers.integrations import deepspeed as integration

    found = integration._hf_deepspeed_config_weak_ref
    integration.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        integration._hf_deepspeed_config_weak_ref = found


def _second_names(model: Any) -> set[str]:
    """Return the names of weights that are other weights under a second name."""
    named = dict(model.named_parameters(remove_duplicate=False))
    return set(named) - {name for name, _ in model.named_parameters()}
