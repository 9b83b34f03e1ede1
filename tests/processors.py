"""Hardware without GPUs, for trainings under accelerate."""

from typing import Any

from harness.registry.training import Hardware


def on_processors(**changes: Any) -> Hardware:
    """Return the hardware of two processes without GPUs, but for `changes`."""
    declared: dict[str, Any] = {
        "accelerate": "cpu-two-processes.yaml",
        "devices": 2,
        "micro_batch": 1,
        "gradient_checkpointing": False,
        "checkpoint_every": 2,
        "attention": "eager",
    }
    return Hardware.model_validate(declared | changes)
