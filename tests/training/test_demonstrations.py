"""Adapters trained on demonstrations, on a small random policy."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from harness.models.loading import load_model
from harness.registry.training import Lora
from harness.training.demonstrations import train_adapters

PAIRS = [(f"Say the number {n}.", f"Number {n} it is.") for n in range(64)]


def test_the_factors_of_the_named_layers_are_written(policy_path: Path, tmp_path: Path) -> None:
    """64 pairs are 8 steps, and the rate is 0 at the first; what starts at zero has moved."""
    out, before = tmp_path / "adapters.safetensors", load_model(policy_path).state_dict()
    lora = Lora(rank=2, alpha=2, targets=("q_proj", "v_proj"))
    train_adapters(policy_path, PAIRS, lora, out, learning_rate=1e-3, batch_size=8, max_length=64)
    layers = {name.removesuffix(".weight"): weight for name, weight in before.items()
              if name.endswith(("q_proj.weight", "v_proj.weight"))}  # fmt: skip
    factors = load_file(out)
    assert factors.keys() == {f"{layer}.lora_{side}.weight" for layer in layers for side in "AB"}
    for layer, weight in layers.items():
        first, second = (factors[f"{layer}.lora_{side}.weight"] for side in "AB")
        assert first.dtype == second.dtype == torch.bfloat16
        assert (second @ first).shape == weight.shape
        assert second.abs().max() > 0
