"""The names of engines."""

from __future__ import annotations


def get_model(model_name: str) -> type:
    """Return an engine's class."""
    if model_name not in ("hf", "vllm", "local-completions"):
        raise ValueError(f"Attempted to load model '{model_name}'")
    return object
