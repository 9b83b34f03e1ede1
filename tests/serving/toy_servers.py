"""A profile's words on servers, for tests."""

from harness.registry.serving import Served, Serving


def served(**changes: object) -> Served:
    """Return how a model is served, by default on six tenths of a GPU."""
    usual = {
        "engine": "vllm", "model": f"owner/creator@{'0' * 40}", "dtype": "bfloat16",
        "max_length": 4096, "gpu_memory": 0.6,
    }  # fmt: skip
    return Served.model_validate(usual | changes)


def declared(**shares: float) -> Serving:
    """Return roles with their shares of the GPU's memory, each with a model of its own."""
    return Serving.model_validate(
        {
            role: served(gpu_memory=share, model=f"owner/{role}@{'0' * 40}")
            for role, share in shares.items()
        }
    )
