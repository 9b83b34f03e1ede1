"""A stand-in for vLLM in "another" Python, and a profile's words to serve with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.registry.serving import Served, Serving

FAKE_ENGINES = Path(__file__).parents[1] / "inference" / "fake_engines"


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


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Install the stand-in; return the file with a line for each start and each readiness."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE_ENGINES))
    monkeypatch.setenv("HARNESS_VLLM_PYTHON", sys.executable)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the locks are
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FAKE_STARTS", str(tmp_path / "starts"))
    for variable in ("SOLVER", "CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{variable}_URL", raising=False)
    return tmp_path / "starts"
